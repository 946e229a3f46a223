// The smallest script, as a program of its own.
const one: number = 1;
console.log(one satisfies number);
