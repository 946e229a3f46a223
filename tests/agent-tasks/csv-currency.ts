// Sum up a CSV file per person and format the sums in German.
// expect: {"Ann":"15,00 €","Bob":"20,00 €"}
const { content } = await files.readTextFile({ path: `${context.place}/data.csv` });
const [header, ...lines] = content.trim().split('\n');
const sums = new Map<string, number>();
for (const line of lines) {
  const [name, amount] = line.split(',');
  sums.set(name, (sums.get(name) ?? 0) + Number(amount));
}
const euro = new Intl.NumberFormat('de-DE', { style: 'currency', currency: 'EUR' });
return Object.fromEntries([...sums].map(([name, sum]) => [name, euro.format(sum).replace(/\s/g, ' ')]));
