// List the messages of commits.
// expect: ["third","second","first"]
const log = await git.gitLog({ repo_path: context.repo, max_count: 10 });
const text = Array.isArray(log) ? log.join('\n') : String(log);
return [...text.matchAll(/Message: (.*)/g)].map((m) => m[1].replace(/['"]/g, '').trim()).slice(-3);
