// A tool takes one object.
const sum = await everything.getSum(2, 3);
return sum;
