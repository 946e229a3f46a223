declare namespace Everything {
  interface EchoArgs {
    /** Message to echo */
    message: string;
  }
  interface GetAnnotatedMessageArgs {
    /** Type of message to demonstrate different annotation patterns */
    messageType: "error" | "success" | "debug";
    /** Whether to include an example image (default: false) */
    includeImage?: boolean;
  }
  interface GetEnvArgs {
    [key: string]: unknown;
  }
  interface GetResourceLinksArgs {
    /** Number of resource links to return (1-10) (default: 3) */
    count?: number;
  }
  interface GetResourceReferenceArgs {
    /** (default: "Text") */
    resourceType?: "Text" | "Blob";
    /** ID of the text resource to fetch (default: 1) */
    resourceId?: number;
  }
  interface GetStructuredContentArgs {
    /** Choose city */
    location: "New York" | "Chicago" | "Los Angeles";
  }
  interface GetStructuredContentResult {
    /** Temperature in celsius */
    temperature: number;
    /** Weather conditions description */
    conditions: string;
    /** Humidity percentage */
    humidity: number;
  }
  interface GetSumArgs {
    /** First number */
    a: number;
    /** Second number */
    b: number;
  }
  interface GetTinyImageArgs {
    [key: string]: unknown;
  }
  interface GzipFileAsResourceArgs {
    /** Name of the output file (default: "README.md.gz") */
    name?: string;
    /** URL or data URI of the file content to compress (format: uri) */
    data?: string;
    /** How the resulting gzipped file should be returned. 'resourceLink' returns a link to a resource that can be read later, 'resource' returns a full resource object. (default: "resourceLink") */
    outputType?: "resourceLink" | "resource";
  }
  interface ToggleSimulatedLoggingArgs {
    [key: string]: unknown;
  }
  interface ToggleSubscriberUpdatesArgs {
    [key: string]: unknown;
  }
  interface TriggerLongRunningOperationArgs {
    /** Duration of the operation in seconds (default: 10) */
    duration?: number;
    /** Number of steps in the operation (default: 5) */
    steps?: number;
  }
  interface GetRootsListArgs {
    [key: string]: unknown;
  }
  interface TriggerElicitationRequestArgs {
    [key: string]: unknown;
  }
  interface TriggerSamplingRequestArgs {
    /** The prompt to send to the LLM */
    prompt: string;
    /** Maximum number of tokens to generate (default: 100) */
    maxTokens?: number;
  }
  interface SimulateResearchQueryArgs {
    /** The research topic to investigate */
    topic: string;
    /** Simulate an ambiguous query that requires clarification (triggers input_required status) (default: false) */
    ambiguous?: boolean;
  }
}

declare const mcp: {
  readonly everything: {
    /** Echoes back the input string */
    echo(args: Everything.EchoArgs): Promise<unknown>;
    /** Demonstrates how annotations can be used to provide metadata about content. */
    "get-annotated-message"(args: Everything.GetAnnotatedMessageArgs): Promise<unknown>;
    /** Returns all environment variables, helpful for debugging MCP server configuration */
    "get-env"(args?: Everything.GetEnvArgs): Promise<unknown>;
    /** Returns up to ten resource links that reference different types of resources */
    "get-resource-links"(args?: Everything.GetResourceLinksArgs): Promise<unknown>;
    /** Returns a resource reference that can be used by MCP clients */
    "get-resource-reference"(args?: Everything.GetResourceReferenceArgs): Promise<unknown>;
    /** Returns structured content along with an output schema for client data validation */
    "get-structured-content"(args: Everything.GetStructuredContentArgs): Promise<Everything.GetStructuredContentResult>;
    /** Returns the sum of two numbers */
    "get-sum"(args: Everything.GetSumArgs): Promise<unknown>;
    /** Returns a tiny MCP logo image. */
    "get-tiny-image"(args?: Everything.GetTinyImageArgs): Promise<unknown>;
    /** Compresses a single file using gzip compression. Depending upon the selected output type, returns either the compressed data as a gzipped resource or a resource link, allowing it to be downloaded in a subsequent request during the current session. */
    "gzip-file-as-resource"(args?: Everything.GzipFileAsResourceArgs): Promise<unknown>;
    /** Toggles simulated, random-leveled logging on or off. */
    "toggle-simulated-logging"(args?: Everything.ToggleSimulatedLoggingArgs): Promise<unknown>;
    /** Toggles simulated resource subscription updates on or off. */
    "toggle-subscriber-updates"(args?: Everything.ToggleSubscriberUpdatesArgs): Promise<unknown>;
    /** Demonstrates a long running operation with progress updates. */
    "trigger-long-running-operation"(args?: Everything.TriggerLongRunningOperationArgs): Promise<unknown>;
    /** Lists the current MCP roots provided by the client. Demonstrates the roots protocol capability even though this server doesn't access files. */
    "get-roots-list"(args?: Everything.GetRootsListArgs): Promise<unknown>;
    /** Trigger a Request from the Server for User Elicitation */
    "trigger-elicitation-request"(args?: Everything.TriggerElicitationRequestArgs): Promise<unknown>;
    /** Trigger a Request from the Server for LLM Sampling */
    "trigger-sampling-request"(args: Everything.TriggerSamplingRequestArgs): Promise<unknown>;
    /** Simulates a deep research operation that gathers, analyzes, and synthesizes information. Demonstrates MCP task-based operations with progress through multiple stages. If 'ambiguous' is true and client supports elicitation, sends an elicitation request for clarification. */
    "simulate-research-query"(args: Everything.SimulateResearchQueryArgs): Promise<unknown>;
  };
};
declare const everything: typeof mcp.everything;
