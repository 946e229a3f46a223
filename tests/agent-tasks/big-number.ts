// Compute a factorial exactly.
// expect: {"factorial":"15511210043330985984000000","small":5}
let product = 1n;
for (let n = 1n; n <= 25n; n++) product *= n;
return { factorial: product, small: 5n };
