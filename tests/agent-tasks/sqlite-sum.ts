// Sum up in SQL and format the sum.
// expect: "$35.00"
await sqlite.createTable({ query: 'CREATE TABLE sales (amount REAL)' });
for (const amount of [10.5, 20, 4.5]) {
  await sqlite.writeQuery({ query: `INSERT INTO sales VALUES (${amount})` });
}
const [{ total }] = await sqlite.readQuery({ query: 'SELECT SUM(amount) AS total FROM sales' });
return total.toLocaleString('en-US', { style: 'currency', currency: 'USD' });
