declare namespace Clickhouse {
  interface ListDatabasesArgs {
    [key: string]: never;
  }
  interface ListDatabasesResult {
    result: string;
  }
  interface ListTablesArgs {
    /** The database to list tables from */
    database: string;
    /** Optional LIKE pattern to filter table names (default: null) */
    like?: string | null;
    /** Optional NOT LIKE pattern to exclude table names (default: null) */
    not_like?: string | null;
    /** Single-use token from a previous call, retained for up to one hour (default: null) */
    page_token?: string | null;
    /** Number of tables to return per page (default: 50, must be greater than 0) (default: 50) */
    page_size?: number;
    /**
     * Whether to include detailed column metadata (default: True).
     * When False, the columns array will be empty but create_table_query still contains
     * all column information. This reduces payload size for large schemas. (default: true)
     */
    include_detailed_columns?: boolean;
  }
  interface ListTablesResult {
    result: string;
  }
  interface RunQueryArgs {
    query: string;
    /** (default: null) */
    params?: {
      [key: string]: unknown;
    } | null;
  }
  interface RunQueryResult {
    result: string;
  }
}

declare const mcp: {
  readonly clickhouse: {
    /** List available ClickHouse databases */
    list_databases(args?: Clickhouse.ListDatabasesArgs): Promise<Clickhouse.ListDatabasesResult>;
    /**
     * List available ClickHouse tables in a database, including schema, comment,
     * row count, and column count.
     *
     * Integers outside [-9007199254740991, 9007199254740991] in table metadata are
     * returned as decimal strings.
     * Pagination tokens are single-use and retained for up to one hour.
     */
    list_tables(args: Clickhouse.ListTablesArgs): Promise<Clickhouse.ListTablesResult>;
    /** Execute SQL queries in ClickHouse. Queries run in read-only mode by default. Bind optional params by name with {name:Type} placeholders, such as {name:String} or {vector:Array(Float32)}. Values may be JSON scalars, nulls, or arrays. Pass exact large integers as decimal strings. JSON lists and objects cannot bind to Tuple and Map types. Python percent formatting and $name$ raw binary parameters are not supported. Parameter values stay out of the MCP server's normal SQL log lines, but may appear in errors and backend logs. Set CLICKHOUSE_ALLOW_WRITE_ACCESS=true to allow DDL and DML operations. Set CLICKHOUSE_ALLOW_DROP=true to additionally allow destructive operations (DROP, TRUNCATE, DELETE, UPDATE, REPLACE TABLE/PARTITION, CREATE OR REPLACE, CLEAR COLUMN/INDEX/PROJECTION, DETACH PERMANENTLY). That gate is a best-effort accident guard, not a security boundary. Integers outside [-9007199254740991, 9007199254740991] are returned as decimal strings. Two optional checks also run through this tool. Use DESCRIBE (<query>) when you need a query's output columns and types; it inspects the result schema and surfaces analysis errors such as an unknown column, but a query that describes cleanly can still fail at runtime. Consider EXPLAIN ESTIMATE <query> before a SELECT that could be expensive; it returns the estimated parts, rows and marks read from MergeTree family tables, which is not run time and not result size. Neither runs the query body, though analysis can execute scalar subqueries. */
    run_query(args: Clickhouse.RunQueryArgs): Promise<Clickhouse.RunQueryResult>;
  };
};
declare const clickhouse: typeof mcp.clickhouse;
