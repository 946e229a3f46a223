// Store people and find one.
// expect: ["Ann"]
await memory.createEntities({ entities: [
  { name: 'Ann', entityType: 'person', observations: ['likes tea'] },
  { name: 'Acme', entityType: 'company', observations: [] },
] });
await memory.createRelations({ relations: [{ from: 'Ann', to: 'Acme', relationType: 'works at' }] });
const found = await memory.searchNodes({ query: 'tea' });
return found.entities.map((e) => e.name);
