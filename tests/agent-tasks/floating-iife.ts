// Write a file from an async function that is called at once.
// expect: null
// file: iife.txt ALPHA\nBETA\nGAMMA
(async () => {
  const { content } = await files.readTextFile({ path: `${context.place}/a.txt` });
  await files.writeFile({ path: `${context.place}/iife.txt`, content: content.toUpperCase().trim() });
})();
