// Create a branch and check that it is there.
// expect: true
await git.gitCreateBranch({ repoPath: context.repo, branchName: 'feature' });
const branches = await git.gitBranch({ repo_path: context.repo, branch_type: 'local' });
return String(branches).includes('feature');
