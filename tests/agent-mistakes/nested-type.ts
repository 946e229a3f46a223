// `observations` is a list of texts.
await memory.createEntities({
  entities: [{ name: 'Ann', entityType: 'person', observations: 'likes tea' }],
});
return 'done';
