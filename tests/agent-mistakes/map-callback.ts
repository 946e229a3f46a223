// The callback calls a tool that does not exist.
const names = ['a.txt', 'data.csv'];
const texts = await Promise.all(names.map((name) => files.readFileText({ path: `${context.place}/${name}` })));
return texts.length;
