// Walk a directory tree.
// expect: ["app-1.log","app-2.log"]
const tree = JSON.parse((await files.directoryTree({ path: `${context.place}/logs` })).content);
const names = (nodes: any[]): string[] => nodes.flatMap((n) => (n.type === 'directory' ? names(n.children) : [n.name]));
return names(tree).filter((n) => n.endsWith('.log')).sort();
