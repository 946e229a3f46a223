declare namespace Markitdown {
  interface ConvertToMarkdownArgs {
    uri: string;
  }
  interface ConvertToMarkdownResult {
    result: string;
  }
}

declare const mcp: {
  readonly markitdown: {
    /** Convert a resource described by an http:, https:, file: or data: URI to markdown */
    convert_to_markdown(args: Markitdown.ConvertToMarkdownArgs): Promise<Markitdown.ConvertToMarkdownResult>;
  };
};
declare const markitdown: typeof mcp.markitdown;
