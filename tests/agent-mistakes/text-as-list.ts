// `content` is text.
const listing = await files.listDirectory({ path: context.place });
return listing.content.map((line) => line.trim());
