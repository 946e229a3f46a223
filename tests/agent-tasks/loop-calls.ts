// Call a tool in a loop.
// expect: "Echo: n0|Echo: n1|Echo: n2|Echo: n3|Echo: n4"
const out = [];
for (let n = 0; n < 5; n++) out.push(await everything.echo({ message: `n${n}` }));
return out.join('|');
