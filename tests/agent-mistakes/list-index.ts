// Entities have no `title`.
await memory.createEntities({ entities: [{ name: 'Ann', entityType: 'person', observations: [] }] });
const graph = await memory.readGraph({});
return graph.entities[0].title.toUpperCase();
