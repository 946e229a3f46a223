// Write a file from `main()`, which nobody awaits.
// expect: null
// file: main.txt hello
// log: files:write_file
async function main() {
  await files.writeFile({ path: `${context.place}/main.txt`, content: 'hello' });
}
main();
