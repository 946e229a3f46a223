// Find a tool, and call it by the name of its function.
// expect: "alpha"
const [found] = await mcp.search('read a text file', { k: 1 });
const { content } = await bascule.call('files.readTextFile', { path: `${context.place}/a.txt` });
return found.id.startsWith('files:') && content.split('\n')[0];
