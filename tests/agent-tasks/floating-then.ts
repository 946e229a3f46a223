// Copy a file with `then`.
// expect: null
// file: then.txt 17
files.readTextFile({ path: `${context.place}/a.txt` }).then((r) =>
  files.writeFile({ path: `${context.place}/then.txt`, content: String(r.content.length) }));
