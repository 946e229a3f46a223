// The result of `git_log` is text.
const commits = await git.gitLog({ repo_path: context.repo, max_count: 5 });
return commits.map((commit) => commit.message.subject);
