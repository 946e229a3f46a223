declare namespace Sqlite {
  interface ReadQueryArgs {
    /** SELECT SQL query to execute */
    query: string;
  }
  interface WriteQueryArgs {
    /** SQL query to execute */
    query: string;
  }
  interface CreateTableArgs {
    /** CREATE TABLE SQL statement */
    query: string;
  }
  interface ListTablesArgs {
    [key: string]: unknown;
  }
  interface DescribeTableArgs {
    /** Name of the table to describe */
    table_name: string;
  }
  interface AppendInsightArgs {
    /** Business insight discovered from data analysis */
    insight: string;
  }
}

declare const mcp: {
  readonly sqlite: {
    /** Execute a SELECT query on the SQLite database */
    read_query(args: Sqlite.ReadQueryArgs): Promise<unknown>;
    /** Execute an INSERT, UPDATE, or DELETE query on the SQLite database */
    write_query(args: Sqlite.WriteQueryArgs): Promise<unknown>;
    /** Create a new table in the SQLite database */
    create_table(args: Sqlite.CreateTableArgs): Promise<unknown>;
    /** List all tables in the SQLite database */
    list_tables(args?: Sqlite.ListTablesArgs): Promise<unknown>;
    /** Get the schema information for a specific table */
    describe_table(args: Sqlite.DescribeTableArgs): Promise<unknown>;
    /** Add a business insight to the memo */
    append_insight(args: Sqlite.AppendInsightArgs): Promise<unknown>;
  };
};
declare const sqlite: typeof mcp.sqlite;
