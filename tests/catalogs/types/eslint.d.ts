declare namespace Eslint {
  interface LintFilesArgs {
    filePaths: string[];
  }
}

declare const mcp: {
  readonly eslint: {
    /** Lint files using ESLint. You must provide a list of absolute file paths to the files you want to lint. The absolute file paths should be in the correct format for your operating system (e.g., forward slashes on Unix-like systems, backslashes on Windows). */
    "lint-files"(args: Eslint.LintFilesArgs): Promise<unknown>;
  };
};
declare const eslint: typeof mcp.eslint;
