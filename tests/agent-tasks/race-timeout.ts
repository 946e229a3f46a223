// Give a call a time limit of its own.
// expect: "Echo: fast"
const timeout = new Promise((_, reject) => setTimeout(() => reject(new Error('too slow')), 60_000));
return await Promise.race([everything.echo({ message: 'fast' }), timeout]);
