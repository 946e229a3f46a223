// List the columns of every table.
// expect: {"t1":["a","b"]}
await sqlite.createTable({ query: 'CREATE TABLE t1 (a INTEGER, b TEXT)' });
const tables = await sqlite.listTables();
const out: Record<string, string[]> = {};
for (const { name } of tables) {
  if (name !== 't1') continue;
  const columns = await sqlite.describeTable({ table_name: name });
  out[name] = columns.map((c) => c.name);
}
return out;
