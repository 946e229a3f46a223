// Take a number out of a text.
// expect: 42
const text = await everything.getSum({ a: 20, b: 22 });
return Number(text.match(/(\d+)\.?$/)[1]);
