// Calls two servers at once, catches an error and returns one value: `bascule run demo/morning.ts`
interface Morning { zone: string; notes: unknown; trouble: string }

const [time, found] = await Promise.all([
  clock.now({ timezone: 'Europe/Zurich' }),
  notes.searchNotes({ query: 'drawbridge' }),
]);
console.log('called two servers at once');

let trouble = 'none';
try {
  await mcp.trouble.fail({});
} catch (error) {
  if (!(error instanceof MCPToolError)) throw error;
  trouble = `${error.code} of ${error.toolName}: ${error.message}`;
}
return { zone: time.timezone, notes: found, trouble } satisfies Morning;
