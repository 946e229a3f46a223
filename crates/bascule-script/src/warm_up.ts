// Uses the language features that many scripts use, and changes nothing.
interface Item { name: string; n?: number }
const items: Item[] = [{ name: 'a', n: 1 }, { name: `b${1 + 1}` }];
const found = items.filter((item) => item.n !== undefined).map(({ name, ...rest }) => ({ name, ...rest }));
for (const item of found) if (!item.name) throw new Error(item.name);
async function all(texts: string[]): Promise<string> { return (await Promise.all(texts)).join(', '); }
try {
  return { found, text: await all(['c', 'd']) };
} catch (error) {
  return (error as Error).message;
}
