// Remember an organisation, and list the people without a manager.
// expect: ["Eva","Ivo"]
const people = ['Eva', 'Finn', 'Gus', 'Hana', 'Ivo'];
await memory.createEntities({ entities: people.map((name) => ({ name, entityType: 'person', observations: [`${name} joined in ${2020 + name.length}`] })) });
await memory.createRelations({ relations: [
  { from: 'Eva', to: 'Finn', relationType: 'manages' },
  { from: 'Eva', to: 'Gus', relationType: 'manages' },
  { from: 'Finn', to: 'Hana', relationType: 'manages' },
] });
const { entities, relations } = await memory.openNodes({ names: people });
const managed = new Set(relations.filter((relation) => relation.relationType === 'manages').map((relation) => relation.to));
return entities.map((entity) => entity.name).filter((name) => !managed.has(name));
