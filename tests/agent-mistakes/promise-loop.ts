// The call is not awaited.
const tables = sqlite.listTables({});
for (const table of tables) {
  console.log(table.name);
}
return 'done';
