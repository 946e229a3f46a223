// `content` is missing.
const name = `${context.place}/report.md`;
await files.writeFile({ path: name, text: '# Report' });
return 'written';
