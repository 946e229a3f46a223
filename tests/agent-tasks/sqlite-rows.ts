// Create a table, fill it, and list the names.
// expect: ["Ann","Bob","Cy"]
await sqlite.createTable({ query: 'CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, email TEXT)' });
await sqlite.writeQuery({ query: "INSERT INTO people (name, email) VALUES ('Ann', 'ann@x.org'), ('Bob', NULL), ('Cy', 'it''s')" });
const rows = await sqlite.readQuery({ query: 'SELECT * FROM people ORDER BY id' });
return rows.map((row) => row.name);
