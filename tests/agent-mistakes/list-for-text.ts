// `path` is one text.
const file = await files.readTextFile({ path: [`${context.place}/a.txt`] });
return file.content;
