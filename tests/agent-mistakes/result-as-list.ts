// The result is an object.
const graph = await memory.readGraph({});
return graph.map((node) => node.name);
