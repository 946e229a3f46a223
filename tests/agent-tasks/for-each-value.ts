// Collect values with `forEach` and an async callback.
// expect: [17,27]
const lengths: number[] = [];
['a.txt', 'config.json'].forEach(async (name, index) => {
  const file = await files.readTextFile({ path: `${context.place}/${name}` });
  lengths[index] = file.content.length;
});
return lengths.length === 0 ? lengths : 'not yet';
