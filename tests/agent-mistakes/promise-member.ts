// The call is not awaited.
const graph = memory.readGraph({});
return graph.entities.map((entity) => entity.name);
