// `head` is a number.
const { content } = await files.readTextFile({ path: `${context.place}/a.txt`, head: '2' });
return content;
