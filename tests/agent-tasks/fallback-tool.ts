// Use another tool if one does not exist.
// expect: "ECHO: HI"
let text;
try {
  text = await mcp.everything.shout({ message: 'hi' });
} catch {
  text = (await mcp.everything.echo({ message: 'hi' })).toUpperCase();
}
return text;
