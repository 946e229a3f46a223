// `names` is a list.
const nodes = await memory.openNodes({ names: 'Ann' });
return nodes.entities;
