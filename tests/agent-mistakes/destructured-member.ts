// The result has `content`.
const { text } = await files.readTextFile({ path: `${context.place}/a.txt` });
return text.toUpperCase();
