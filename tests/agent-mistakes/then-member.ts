// The result has `content`.
return await files.readTextFile({ path: `${context.place}/a.txt` }).then((text) => text.split('\n'));
