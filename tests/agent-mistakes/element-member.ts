// Entities have no `tags`.
await memory.createEntities({ entities: [{ name: 'Ann', entityType: 'person', observations: [] }] });
const graph = await memory.readGraph({});
return graph.entities.map((entity) => entity.tags.join(', '));
