// The tool is called `read_text_file`.
const text = await files.readTexts({ path: `${context.place}/a.txt` });
return text;
