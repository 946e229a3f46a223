// Group rows in the script.
// expect: {"Rome":2,"Oslo":1}
await sqlite.createTable({ query: 'CREATE TABLE visits (city TEXT)' });
await sqlite.writeQuery({ query: "INSERT INTO visits VALUES ('Rome'), ('Oslo'), ('Rome')" });
const counts = new Map<string, number>();
for (const { city } of await sqlite.readQuery({ query: 'SELECT city FROM visits' })) counts.set(city, (counts.get(city) ?? 0) + 1);
return counts;
