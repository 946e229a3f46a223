// The argument is `repo_path`.
const status = await git.gitStatus({ path: context.repo });
return status;
