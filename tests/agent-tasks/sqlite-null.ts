// Find the rows without a value.
// expect: ["Bob"]
await sqlite.createTable({ query: 'CREATE TABLE c (name TEXT, email TEXT)' });
await sqlite.writeQuery({ query: "INSERT INTO c VALUES ('Ann', 'a'), ('Bob', NULL)" });
const rows = await sqlite.readQuery({ query: 'SELECT * FROM c' });
return rows.filter((r) => r.email === null).map((r) => r.name);
