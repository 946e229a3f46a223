// `fs` does not exist.
const { content } = await files.readTextFile({ path: `${context.place}/a.txt` });
fs.writeFileSync('/tmp/copy.txt', content);
return 'copied';
