// The helper calls a tool with a wrong key.
async function read(name: string) {
  return await files.readTextFile({ file: `${context.place}/${name}` });
}
return (await read('a.txt')).content;
