// Two servers at once, one error caught, one value back. `bascule run demo/morning.ts`
interface Morning { zone: string; notes: unknown; trouble: string }

const [time, found] = await Promise.all([
  clock.now({ timezone: 'Europe/Zurich' }),
  notes.searchNotes({ query: 'drawbridge' }),
]);
console.log('asked two servers at once');

let trouble = 'none';
try {
  await mcp.trouble.fail({});
} catch (error) {
  if (!(error instanceof MCPToolError)) throw error;
  trouble = `${error.code} of ${error.toolName}: ${error.message}`;
}
return { zone: time.timezone, notes: found, trouble } satisfies Morning;
