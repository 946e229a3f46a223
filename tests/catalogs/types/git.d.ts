declare namespace Git {
  interface GitStatusArgs {
    repo_path: string;
  }
  interface GitDiffUnstagedArgs {
    repo_path: string;
    /** (default: 3) */
    context_lines?: number;
  }
  interface GitDiffStagedArgs {
    repo_path: string;
    /** (default: 3) */
    context_lines?: number;
  }
  interface GitDiffArgs {
    repo_path: string;
    target: string;
    /** (default: 3) */
    context_lines?: number;
  }
  interface GitCommitArgs {
    repo_path: string;
    message: string;
  }
  interface GitAddArgs {
    repo_path: string;
    files: string[];
  }
  interface GitResetArgs {
    repo_path: string;
  }
  interface GitLogArgs {
    repo_path: string;
    /** (default: 10) */
    max_count?: number;
    /** Start timestamp for filtering commits. Accepts: ISO 8601 format (e.g., '2024-01-15T14:30:25'), relative dates (e.g., '2 weeks ago', 'yesterday'), or absolute dates (e.g., '2024-01-15', 'Jan 15 2024') (default: null) */
    start_timestamp?: string | null;
    /** End timestamp for filtering commits. Accepts: ISO 8601 format (e.g., '2024-01-15T14:30:25'), relative dates (e.g., '2 weeks ago', 'yesterday'), or absolute dates (e.g., '2024-01-15', 'Jan 15 2024') (default: null) */
    end_timestamp?: string | null;
  }
  interface GitCreateBranchArgs {
    repo_path: string;
    branch_name: string;
    /** (default: null) */
    base_branch?: string | null;
  }
  interface GitCheckoutArgs {
    repo_path: string;
    branch_name: string;
  }
  interface GitShowArgs {
    repo_path: string;
    revision: string;
  }
  interface GitBranchArgs {
    /** The path to the Git repository. */
    repo_path: string;
    /** Whether to list local branches ('local'), remote branches ('remote') or all branches('all'). */
    branch_type: string;
    /** The commit sha that branch should contain. Do not pass anything to this param if no commit sha is specified (default: null) */
    contains?: string | null;
    /** The commit sha that branch should NOT contain. Do not pass anything to this param if no commit sha is specified (default: null) */
    not_contains?: string | null;
  }
}

declare const mcp: {
  readonly git: {
    /** Shows the working tree status */
    git_status(args: Git.GitStatusArgs): Promise<unknown>;
    /** Shows changes in the working directory that are not yet staged */
    git_diff_unstaged(args: Git.GitDiffUnstagedArgs): Promise<unknown>;
    /** Shows changes that are staged for commit */
    git_diff_staged(args: Git.GitDiffStagedArgs): Promise<unknown>;
    /** Shows differences between branches or commits */
    git_diff(args: Git.GitDiffArgs): Promise<unknown>;
    /** Records changes to the repository */
    git_commit(args: Git.GitCommitArgs): Promise<unknown>;
    /** Adds file contents to the staging area */
    git_add(args: Git.GitAddArgs): Promise<unknown>;
    /** Unstages all staged changes */
    git_reset(args: Git.GitResetArgs): Promise<unknown>;
    /** Shows the commit logs */
    git_log(args: Git.GitLogArgs): Promise<unknown>;
    /** Creates a new branch from an optional base branch */
    git_create_branch(args: Git.GitCreateBranchArgs): Promise<unknown>;
    /** Switches branches */
    git_checkout(args: Git.GitCheckoutArgs): Promise<unknown>;
    /** Shows the contents of a commit, or of a file or directory given as <revision>:<path> */
    git_show(args: Git.GitShowArgs): Promise<unknown>;
    /** List Git branches */
    git_branch(args: Git.GitBranchArgs): Promise<unknown>;
  };
};
declare const git: typeof mcp.git;
