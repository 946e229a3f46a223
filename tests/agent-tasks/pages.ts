// Read pages until there are no more.
// expect: [1,2,3,4,5]
const seen: number[] = [];
let page = 0;
while (true) {
  const { content } = await files.readTextFile({ path: `${context.place}/logs/page-${page}.json` });
  const { items, next } = JSON.parse(content);
  seen.push(...items);
  if (next === null) break;
  page = next;
}
return seen;
