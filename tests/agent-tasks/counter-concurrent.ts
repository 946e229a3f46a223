// Increment a counter twenty times at once.
// expect: true
await Promise.all(Array.from({ length: 20 }, () => counter.increment({})));
const { value } = await counter.read();
return value >= 20;
