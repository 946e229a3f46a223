// There is no such file.
const { content } = await files.readTextFile({ path: `${context.place}/missing.txt` });
return content;
