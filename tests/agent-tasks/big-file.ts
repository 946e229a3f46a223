// Return a small part of a big file.
// expect: {"first":"line 0","count":20000,"longest":10}
const { content } = await files.readTextFile({ path: `${context.place}/big.txt` });
const lines = content.split('\n').filter(Boolean);
return { first: lines[0], count: lines.length, longest: Math.max(...lines.map((l) => l.length)) };
