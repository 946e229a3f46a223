// Write a file later.
// expect: "scheduled"
// file: later.txt later
setTimeout(async () => {
  await files.writeFile({ path: `${context.place}/later.txt`, content: 'later' });
}, 50);
return 'scheduled';
