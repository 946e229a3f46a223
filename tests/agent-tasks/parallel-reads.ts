// Read several files at once.
// expect: [4,5,1]
const names = ['a.txt', 'data.csv', 'config.json'];
const texts = await Promise.all(names.map((name) => files.readTextFile({ path: `${context.place}/${name}` })));
return texts.map((t) => t.content.split('\n').length);
