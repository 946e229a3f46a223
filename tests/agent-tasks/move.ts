// Move a file.
// expect: true
// file: to.txt moved
await files.writeFile({ path: `${context.place}/from.txt`, content: 'moved' });
await files.moveFile({ source: `${context.place}/from.txt`, destination: `${context.place}/to.txt` });
const found = await files.searchFiles({ path: context.place, pattern: 'to.txt' });
return found.content.includes('to.txt');
