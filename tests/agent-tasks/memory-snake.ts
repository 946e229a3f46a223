// Use snake_case keys for a schema in camelCase.
// expect: "animal"
await memory.create_entities({ entities: [{ name: 'Snake', entity_type: 'animal', observations: ['long'] }] });
const { entities } = await memory.open_nodes({ names: ['Snake'] });
return entities[0].entityType;
