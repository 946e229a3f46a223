// A result that is data already is parsed once more.
// expect: ["Bert","Cleo"]
await sqlite.createTable({ query: 'CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT)' });
await sqlite.writeQuery({ query: "INSERT INTO customers (name, email) VALUES ('Ann', 'ann@x.org'), ('Bert', NULL), ('Cleo', NULL)" });
const rows = JSON.parse(await sqlite.readQuery({ query: 'SELECT * FROM customers' }));
return rows.filter((row: any) => !row.email).map((row: any) => row.name);
