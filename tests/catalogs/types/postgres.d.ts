declare namespace Postgres {
  interface QueryArgs {
    sql?: string;
  }
}

declare const mcp: {
  readonly postgres: {
    /** Run a read-only SQL query */
    query(args?: Postgres.QueryArgs): Promise<unknown>;
  };
};
declare const postgres: typeof mcp.postgres;
