// Return the different words of two files.
// expect: ["alpha","beta","gamma"]
const read = (name: string) => files.readTextFile({ path: `${context.place}/${name}` });
const all = await Promise.all([read('a.txt'), read('a.txt')]);
return new Set(all.flatMap((f) => f.content.trim().split(/\s+/)));
