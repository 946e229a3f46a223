// The result is an object with `content`.
const text = await files.readTextFile({ path: `${context.place}/a.txt` });
return text.split('\n').filter(Boolean).length;
