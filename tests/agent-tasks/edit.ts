// Edit a file and check the change.
// expect: "one 2 three"
const path = `${context.place}/edit.txt`;
await files.writeFile({ path, content: 'one two three' });
await files.editFile({ path, edits: [{ oldText: 'two', newText: '2' }] });
return (await files.readTextFile({ path })).content;
