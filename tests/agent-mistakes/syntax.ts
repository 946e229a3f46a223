// A bracket is missing.
const tables = await sqlite.listTables({};
return tables;
