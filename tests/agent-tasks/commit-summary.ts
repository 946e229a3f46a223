// Write the log of a repository as JSON, and read it back.
// expect: {"commits":3,"last":"first"}
const text = await git.gitLog({ repo_path: context.repo, maxcount: 10 });
const commits = text.split(/\n(?=Commit: )/).map((block) => ({
  hash: block.match(/Commit: '?([0-9a-f]{7,40})/)?.[1],
  date: new Date(block.match(/Date: (.+)/)?.[1] ?? NaN),
  message: block.match(/Message: '?(\w+)/)?.[1],
})).filter((commit) => commit.hash);
await files.writeFile({ path: `${context.place}/commits.json`, content: JSON.stringify(commits, null, 2) });
const back = JSON.parse((await files.readTextFile({ path: `${context.place}/commits.json` })).content);
const main = back.filter((commit: any) => ['first', 'second', 'third'].includes(commit.message));
return { commits: main.length, last: main.at(-1).message };
