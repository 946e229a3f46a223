// Import a CSV file into a table, and report months in US dollars.
// expect: ["March 2024: $30.50","April 2024: $4.50"]
type Month = { month: string; total: number };
async function main() {
  const csv = await files.readTextFile({ path: `${context.place}/data.csv` });
  const [, ...lines] = csv.content.trim().split(/\r?\n/);
  await sqlite.createTable({ query: 'CREATE TABLE imported (name TEXT, amount REAL, date TEXT)' });
  for (const line of lines) {
    const [name, amount, date] = line.split(',');
    await sqlite.writeQuery({ query: `INSERT INTO imported VALUES ('${name.replace(/'/g, "''")}', ${amount}, '${date}')` });
  }
  const months = (await sqlite.readQuery({
    query: "SELECT strftime('%Y-%m', date) AS month, SUM(amount) AS total FROM imported GROUP BY month ORDER BY month",
  })) as Month[];
  const usd = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' });
  const name = new Intl.DateTimeFormat('en-US', { month: 'long', year: 'numeric', timeZone: 'UTC' });
  return months.map(({ month, total }) => `${name.format(new Date(`${month}-01`))}: ${usd.format(total)}`);
}
return await main();
