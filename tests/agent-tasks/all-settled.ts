// Read files of which one is missing.
// expect: [17,"TOOL_ERROR"]
const results = await Promise.allSettled(['a.txt', 'missing.txt'].map((n) => files.readTextFile({ path: `${context.place}/${n}` })));
return results.map((r) => (r.status === 'fulfilled' ? r.value.content.length : r.reason.code));
