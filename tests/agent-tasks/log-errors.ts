// Count the errors in all log files.
// expect: {"files":2,"errors":3}
const { content } = await files.listDirectory({ path: `${context.place}/logs` });
const names = content.split('\n').filter((l) => l.endsWith('.log')).map((l) => l.replace('[FILE] ', ''));
let errors = 0;
for (const name of names) {
  const log = await files.readTextFile({ path: `${context.place}/logs/${name}` });
  errors += log.content.split('\n').filter((l) => l.includes('ERROR')).length;
}
return { files: names.length, errors };
