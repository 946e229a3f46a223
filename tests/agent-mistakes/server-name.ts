// The server is called `files`.
const listing = await mcp.filesystem.listDirectory({ path: context.place });
return listing.content.split('\n').length;
