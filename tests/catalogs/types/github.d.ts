declare namespace Github {
  interface CreateOrUpdateFileArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Path where to create/update the file */
    path: string;
    /** Content of the file */
    content: string;
    /** Commit message */
    message: string;
    /** Branch to create/update the file in */
    branch: string;
    /** SHA of the file being replaced (required when updating existing files) */
    sha?: string;
  }
  interface SearchRepositoriesArgs {
    /** Search query (see GitHub search syntax) */
    query: string;
    /** Page number for pagination (default: 1) */
    page?: number;
    /** Number of results per page (default: 30, max: 100) */
    perPage?: number;
  }
  interface CreateRepositoryArgs {
    /** Repository name */
    name: string;
    /** Repository description */
    description?: string;
    /** Whether the repository should be private */
    private?: boolean;
    /** Initialize with README.md */
    autoInit?: boolean;
  }
  interface GetFileContentsArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Path to the file or directory */
    path: string;
    /** Branch to get contents from */
    branch?: string;
  }
  interface PushFilesArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Branch to push to (e.g., 'main' or 'master') */
    branch: string;
    /** Array of files to push */
    files: {
      path: string;
      content: string;
    }[];
    /** Commit message */
    message: string;
  }
  interface CreateIssueArgs {
    owner: string;
    repo: string;
    title: string;
    body?: string;
    assignees?: string[];
    milestone?: number;
    labels?: string[];
  }
  interface CreatePullRequestArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Pull request title */
    title: string;
    /** Pull request body/description */
    body?: string;
    /** The name of the branch where your changes are implemented */
    head: string;
    /** The name of the branch you want the changes pulled into */
    base: string;
    /** Whether to create the pull request as a draft */
    draft?: boolean;
    /** Whether maintainers can modify the pull request */
    maintainer_can_modify?: boolean;
  }
  interface ForkRepositoryArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Optional: organization to fork to (defaults to your personal account) */
    organization?: string;
  }
  interface CreateBranchArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Name for the new branch */
    branch: string;
    /** Optional: source branch to create from (defaults to the repository's default branch) */
    from_branch?: string;
  }
  interface ListCommitsArgs {
    owner: string;
    repo: string;
    sha?: string;
    page?: number;
    perPage?: number;
  }
  interface ListIssuesArgs {
    owner: string;
    repo: string;
    direction?: "asc" | "desc";
    labels?: string[];
    page?: number;
    per_page?: number;
    since?: string;
    sort?: "created" | "updated" | "comments";
    state?: "open" | "closed" | "all";
  }
  interface UpdateIssueArgs {
    owner: string;
    repo: string;
    issue_number: number;
    title?: string;
    body?: string;
    assignees?: string[];
    milestone?: number;
    labels?: string[];
    state?: "open" | "closed";
  }
  interface AddIssueCommentArgs {
    owner: string;
    repo: string;
    issue_number: number;
    body: string;
  }
  interface SearchCodeArgs {
    q: string;
    order?: "asc" | "desc";
    page?: number;
    per_page?: number;
  }
  interface SearchIssuesArgs {
    q: string;
    order?: "asc" | "desc";
    page?: number;
    per_page?: number;
    sort?: "comments" | "reactions" | "reactions-+1" | "reactions--1" | "reactions-smile" | "reactions-thinking_face" | "reactions-heart" | "reactions-tada" | "interactions" | "created" | "updated";
  }
  interface SearchUsersArgs {
    q: string;
    order?: "asc" | "desc";
    page?: number;
    per_page?: number;
    sort?: "followers" | "repositories" | "joined";
  }
  interface GetIssueArgs {
    owner: string;
    repo: string;
    issue_number: number;
  }
  interface GetPullRequestArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Pull request number */
    pull_number: number;
  }
  interface ListPullRequestsArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** State of the pull requests to return */
    state?: "open" | "closed" | "all";
    /** Filter by head user or head organization and branch name */
    head?: string;
    /** Filter by base branch name */
    base?: string;
    /** What to sort results by */
    sort?: "created" | "updated" | "popularity" | "long-running";
    /** The direction of the sort */
    direction?: "asc" | "desc";
    /** Results per page (max 100) */
    per_page?: number;
    /** Page number of the results */
    page?: number;
  }
  interface CreatePullRequestReviewArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Pull request number */
    pull_number: number;
    /** The SHA of the commit that needs a review */
    commit_id?: string;
    /** The body text of the review */
    body: string;
    /** The review action to perform */
    event: "APPROVE" | "REQUEST_CHANGES" | "COMMENT";
    /** Comments to post as part of the review (specify either position or line, not both) */
    comments?: ({
      /** The relative path to the file being commented on */
      path: string;
      /** The position in the diff where you want to add a review comment */
      position: number;
      /** Text of the review comment */
      body: string;
    } | {
      /** The relative path to the file being commented on */
      path: string;
      /** The line number in the file where you want to add a review comment */
      line: number;
      /** Text of the review comment */
      body: string;
    })[];
  }
  interface MergePullRequestArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Pull request number */
    pull_number: number;
    /** Title for the automatic commit message */
    commit_title?: string;
    /** Extra detail to append to automatic commit message */
    commit_message?: string;
    /** Merge method to use */
    merge_method?: "merge" | "squash" | "rebase";
  }
  interface GetPullRequestFilesArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Pull request number */
    pull_number: number;
  }
  interface GetPullRequestStatusArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Pull request number */
    pull_number: number;
  }
  interface UpdatePullRequestBranchArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Pull request number */
    pull_number: number;
    /** The expected SHA of the pull request's HEAD ref */
    expected_head_sha?: string;
  }
  interface GetPullRequestCommentsArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Pull request number */
    pull_number: number;
  }
  interface GetPullRequestReviewsArgs {
    /** Repository owner (username or organization) */
    owner: string;
    /** Repository name */
    repo: string;
    /** Pull request number */
    pull_number: number;
  }
}

declare const mcp: {
  readonly github: {
    /** Create or update a single file in a GitHub repository */
    create_or_update_file(args: Github.CreateOrUpdateFileArgs): Promise<unknown>;
    /** Search for GitHub repositories */
    search_repositories(args: Github.SearchRepositoriesArgs): Promise<unknown>;
    /** Create a new GitHub repository in your account */
    create_repository(args: Github.CreateRepositoryArgs): Promise<unknown>;
    /** Get the contents of a file or directory from a GitHub repository */
    get_file_contents(args: Github.GetFileContentsArgs): Promise<unknown>;
    /** Push multiple files to a GitHub repository in a single commit */
    push_files(args: Github.PushFilesArgs): Promise<unknown>;
    /** Create a new issue in a GitHub repository */
    create_issue(args: Github.CreateIssueArgs): Promise<unknown>;
    /** Create a new pull request in a GitHub repository */
    create_pull_request(args: Github.CreatePullRequestArgs): Promise<unknown>;
    /** Fork a GitHub repository to your account or specified organization */
    fork_repository(args: Github.ForkRepositoryArgs): Promise<unknown>;
    /** Create a new branch in a GitHub repository */
    create_branch(args: Github.CreateBranchArgs): Promise<unknown>;
    /** Get list of commits of a branch in a GitHub repository */
    list_commits(args: Github.ListCommitsArgs): Promise<unknown>;
    /** List issues in a GitHub repository with filtering options */
    list_issues(args: Github.ListIssuesArgs): Promise<unknown>;
    /** Update an existing issue in a GitHub repository */
    update_issue(args: Github.UpdateIssueArgs): Promise<unknown>;
    /** Add a comment to an existing issue */
    add_issue_comment(args: Github.AddIssueCommentArgs): Promise<unknown>;
    /** Search for code across GitHub repositories */
    search_code(args: Github.SearchCodeArgs): Promise<unknown>;
    /** Search for issues and pull requests across GitHub repositories */
    search_issues(args: Github.SearchIssuesArgs): Promise<unknown>;
    /** Search for users on GitHub */
    search_users(args: Github.SearchUsersArgs): Promise<unknown>;
    /** Get details of a specific issue in a GitHub repository. */
    get_issue(args: Github.GetIssueArgs): Promise<unknown>;
    /** Get details of a specific pull request */
    get_pull_request(args: Github.GetPullRequestArgs): Promise<unknown>;
    /** List and filter repository pull requests */
    list_pull_requests(args: Github.ListPullRequestsArgs): Promise<unknown>;
    /** Create a review on a pull request */
    create_pull_request_review(args: Github.CreatePullRequestReviewArgs): Promise<unknown>;
    /** Merge a pull request */
    merge_pull_request(args: Github.MergePullRequestArgs): Promise<unknown>;
    /** Get the list of files changed in a pull request */
    get_pull_request_files(args: Github.GetPullRequestFilesArgs): Promise<unknown>;
    /** Get the combined status of all status checks for a pull request */
    get_pull_request_status(args: Github.GetPullRequestStatusArgs): Promise<unknown>;
    /** Update a pull request branch with the latest changes from the base branch */
    update_pull_request_branch(args: Github.UpdatePullRequestBranchArgs): Promise<unknown>;
    /** Get the review comments on a pull request */
    get_pull_request_comments(args: Github.GetPullRequestCommentsArgs): Promise<unknown>;
    /** Get the reviews on a pull request */
    get_pull_request_reviews(args: Github.GetPullRequestReviewsArgs): Promise<unknown>;
  };
};
declare const github: typeof mcp.github;
