// A member that the result does not have is named in a warning.
// expect: {}
// log: `info` has no member `size`
const info = await files.getFileInfo({ path: `${context.place}/a.txt` });
return { size: info.size };
