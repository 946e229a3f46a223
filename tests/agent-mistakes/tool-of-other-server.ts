// `git_log` is a tool of `git`.
const log = await files.gitLog({ repo_path: context.repo });
return log;
