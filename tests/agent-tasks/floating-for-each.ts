// Write three files with `forEach` and an async callback.
// expect: null
// file: each-x.txt x
// file: each-z.txt z
['x', 'y', 'z'].forEach(async (name) => {
  await files.writeFile({ path: `${context.place}/each-${name}.txt`, content: name });
});
