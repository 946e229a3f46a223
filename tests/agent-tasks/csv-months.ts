// Group a CSV file by the name of the month.
// expect: {"March":2,"April":1}
const { content } = await files.readTextFile({ path: `${context.place}/data.csv` });
const months: Record<string, number> = {};
for (const line of content.trim().split('\n').slice(1)) {
  const month = new Date(line.split(',')[2]).toLocaleString('en-US', { month: 'long', timeZone: 'UTC' });
  months[month] = (months[month] || 0) + 1;
}
return months;
