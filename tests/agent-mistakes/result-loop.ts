// The entities are in `entities`.
const names = [];
for (const node of await memory.readGraph({})) {
  names.push(node.name);
}
return names;
