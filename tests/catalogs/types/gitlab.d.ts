declare namespace Gitlab {
  interface CreateOrUpdateFileArgs {
    [key: string]: unknown;
  }
  interface SearchRepositoriesArgs {
    [key: string]: unknown;
  }
  interface CreateRepositoryArgs {
    [key: string]: unknown;
  }
  interface GetFileContentsArgs {
    [key: string]: unknown;
  }
  interface PushFilesArgs {
    [key: string]: unknown;
  }
  interface CreateIssueArgs {
    [key: string]: unknown;
  }
  interface CreateMergeRequestArgs {
    [key: string]: unknown;
  }
  interface ForkRepositoryArgs {
    [key: string]: unknown;
  }
  interface CreateBranchArgs {
    [key: string]: unknown;
  }
}

declare const mcp: {
  readonly gitlab: {
    /** Create or update a single file in a GitLab project */
    create_or_update_file(args?: Gitlab.CreateOrUpdateFileArgs): Promise<unknown>;
    /** Search for GitLab projects */
    search_repositories(args?: Gitlab.SearchRepositoriesArgs): Promise<unknown>;
    /** Create a new GitLab project */
    create_repository(args?: Gitlab.CreateRepositoryArgs): Promise<unknown>;
    /** Get the contents of a file or directory from a GitLab project */
    get_file_contents(args?: Gitlab.GetFileContentsArgs): Promise<unknown>;
    /** Push multiple files to a GitLab project in a single commit */
    push_files(args?: Gitlab.PushFilesArgs): Promise<unknown>;
    /** Create a new issue in a GitLab project */
    create_issue(args?: Gitlab.CreateIssueArgs): Promise<unknown>;
    /** Create a new merge request in a GitLab project */
    create_merge_request(args?: Gitlab.CreateMergeRequestArgs): Promise<unknown>;
    /** Fork a GitLab project to your account or specified namespace */
    fork_repository(args?: Gitlab.ForkRepositoryArgs): Promise<unknown>;
    /** Create a new branch in a GitLab project */
    create_branch(args?: Gitlab.CreateBranchArgs): Promise<unknown>;
  };
};
declare const gitlab: typeof mcp.gitlab;
