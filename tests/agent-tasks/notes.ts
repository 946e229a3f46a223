// Add notes and search them.
// expect: [2,true]
const added = await Promise.all(['tea', 'coffee'].map((text) => notes.addNote({ title: text, text: `buy ${text}`, tags: ['shop'] })));
const found = await notes.searchNotes({ query: 'coffee' });
return [added.length, JSON.stringify(found).includes('coffee')];
