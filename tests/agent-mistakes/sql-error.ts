// The server answers with the text of an error.
const rows = await sqlite.readQuery({ query: 'SELECT * FROM nowhere' });
return rows.map((row) => row.id);
