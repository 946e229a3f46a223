// The smallest script.
const one: number = 1;
console.log(one satisfies number);
