// `entityType` is missing in the entity.
await memory.createEntities({ entities: [{ name: 'Ann', type: 'person', observations: [] }] });
return 'done';
