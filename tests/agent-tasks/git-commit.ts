// Commit a new file.
// expect: [true,true]
await files.writeFile({ path: `${context.repo}/new.txt`, content: 'new' });
await git.gitAdd({ repo_path: context.repo, files: ['new.txt'] });
const done = await git.gitCommit({ repo_path: context.repo, message: 'add new.txt' });
const status = await git.gitStatus({ repo_path: context.repo });
return [String(done).includes('committed'), String(status).includes('nothing to commit')];
