declare namespace Playwright {
  interface BrowserCloseArgs {
    [key: string]: never;
  }
  interface BrowserResizeArgs {
    /** Width of the browser window */
    width: number;
    /** Height of the browser window */
    height: number;
  }
  interface BrowserConsoleMessagesArgs {
    /** Level of the console messages to return. Each level includes the messages of more severe levels. Defaults to "info". (default: "info") */
    level: "error" | "warning" | "info" | "debug";
    /** Return all console messages since the beginning of the session, not just since the last navigation. Defaults to false. */
    all?: boolean;
    /** File name to save the console messages to. Relative file names are resolved against the workspace root. If not provided, messages are returned as text. */
    filename?: string;
  }
  interface BrowserHandleDialogArgs {
    /** Whether to accept the dialog. */
    accept: boolean;
    /** The text of the prompt in case of a prompt dialog. */
    promptText?: string;
  }
  interface BrowserEmulateMediaArgs {
    /** Emulates the prefers-color-scheme media feature */
    colorScheme?: "light" | "dark" | null;
    /** Emulates the prefers-reduced-motion media feature */
    reducedMotion?: "reduce" | "no-preference" | null;
    /** Emulates the forced-colors media feature */
    forcedColors?: "active" | "none" | null;
    /** Emulates the prefers-contrast media feature */
    contrast?: "more" | "no-preference" | null;
    /** Changes the CSS media type of the page */
    media?: "screen" | "print" | null;
  }
  interface BrowserEvaluateArgs {
    /** Human-readable element description used to obtain permission to interact with the element */
    element?: string;
    /** Exact target element reference from the page snapshot, or a unique element selector */
    target?: string;
    /** () => { /* code *\/ } or (element) => { /* code *\/ } when element is provided */
    function: string;
    /** File name to save the result to. Relative file names are resolved against the workspace root. If not provided, result is returned as text. */
    filename?: string;
  }
  interface BrowserFileUploadArgs {
    /** The absolute paths to the files to upload. Can be single file or multiple files. If omitted, file chooser is cancelled. */
    paths?: string[];
  }
  interface BrowserDropArgs {
    /** Human-readable element description used to obtain permission to interact with the element */
    element?: string;
    /** Exact target element reference from the page snapshot, or a unique element selector */
    target: string;
    /** Absolute paths to files to drop onto the element. */
    paths?: string[];
    /** Data to drop, as a map of MIME type to string value (e.g. {"text/plain": "hello", "text/uri-list": "https://example.com"}). */
    data?: {
      [key: string]: string;
    };
  }
  interface BrowserFindArgs {
    /** Plain text to search for in the page snapshot (case-insensitive substring match). Provide either text or regex, not both. */
    text?: string;
    /** Regular expression to search for in the page snapshot. Matching is case-sensitive by default; wrap the pattern in slashes to add flags, e.g. "/error/i" for case-insensitive. Provide either text or regex, not both. */
    regex?: string;
    /** Save results to a file instead of returning them in the response. Relative file names are resolved against the workspace root. */
    filename?: string;
  }
  interface BrowserFillFormArgs {
    /** Fields to fill in */
    fields: {
      /** Human-readable element description used to obtain permission to interact with the element */
      element?: string;
      /** Exact target element reference from the page snapshot, or a unique element selector */
      target: string;
      /** Human-readable field name */
      name: string;
      /** Type of the field */
      type: "textbox" | "checkbox" | "radio" | "combobox" | "slider";
      /** Value to fill in the field. If the field is a checkbox, the value should be `true` or `false`. If the field is a combobox, the value should be the text of the option. */
      value: string;
    }[];
  }
  interface BrowserPressKeyArgs {
    /** Name of the key to press or a character to generate, such as `ArrowLeft` or `a` */
    key: string;
  }
  interface BrowserTypeArgs {
    /** Human-readable element description used to obtain permission to interact with the element */
    element?: string;
    /** Exact target element reference from the page snapshot, or a unique element selector */
    target: string;
    /** Text to type into the element */
    text: string;
    /** Whether to submit entered text (press Enter after) */
    submit?: boolean;
    /** Whether to type one character at a time. Useful for triggering key handlers in the page. By default entire text is filled in at once. */
    slowly?: boolean;
  }
  interface BrowserNavigateArgs {
    /** The URL to navigate to */
    url: string;
  }
  interface BrowserNavigateBackArgs {
    [key: string]: never;
  }
  interface BrowserNetworkRequestsArgs {
    /** Whether to include successful static resources like images, fonts, scripts, etc. Defaults to false. (default: false) */
    static: boolean;
    /** Only return requests whose URL matches this regexp (e.g. "/api/.*user"). */
    filter?: string;
    /** File name to save the network requests to. Relative file names are resolved against the workspace root. If not provided, requests are returned as text. */
    filename?: string;
  }
  interface BrowserNetworkRequestArgs {
    /** 1-based index of the request, as printed by browser_network_requests. */
    index: number;
    /** Return only this part of the request. Omit to return full details. */
    part?: "request-headers" | "request-body" | "response-headers" | "response-body";
    /** File name to save the result to. Relative file names are resolved against the workspace root. If not provided, output is returned as text. */
    filename?: string;
  }
  interface BrowserRunCodeUnsafeArgs {
    /** A JavaScript function containing Playwright code to execute. It will be invoked with a single argument, page, which you can use for any page interaction. For example: `async (page) => { await page.getByRole('button', { name: 'Submit' }).click(); return await page.title(); }` */
    code?: string;
    /** Load code from the specified file. Relative file names are resolved against the workspace root. If both code and filename are provided, code will be ignored. */
    filename?: string;
  }
  interface BrowserTakeScreenshotArgs {
    /** Human-readable element description used to obtain permission to interact with the element */
    element?: string;
    /** Exact target element reference from the page snapshot, or a unique element selector */
    target?: string;
    /** Image format for the screenshot. If unset, inferred from the filename extension, otherwise png. */
    type?: "png" | "jpeg" | "webp";
    /** File name to save the screenshot to. Relative file names are resolved against the workspace root. If not specified, the screenshot is saved into the output directory as `page-{timestamp}.{png|jpeg|webp}`. */
    filename?: string;
    /** When true, takes a screenshot of the full scrollable page, instead of the currently visible viewport. Cannot be used with element screenshots. */
    fullPage?: boolean;
    /** Image resolution scale. "css" produces a screenshot sized in CSS pixels (smaller, consistent across devices). "device" produces a high-resolution screenshot using device pixels (larger, accounts for the device pixel ratio). Default is css. (default: "css") */
    scale: "css" | "device";
  }
  interface BrowserSnapshotArgs {
    /** Exact target element reference from the page snapshot, or a unique element selector */
    target?: string;
    /** Save snapshot to a file instead of returning it in the response. Relative file names are resolved against the workspace root. */
    filename?: string;
    /** Limit the depth of the snapshot tree */
    depth?: number;
    /** Include each element's bounding box as [box=x,y,width,height] in the snapshot. Coordinates are viewport-relative, in CSS pixels (Element.getBoundingClientRect) */
    boxes?: boolean;
  }
  interface BrowserClickArgs {
    /** Human-readable element description used to obtain permission to interact with the element */
    element?: string;
    /** Exact target element reference from the page snapshot, or a unique element selector */
    target: string;
    /** Whether to perform a double click instead of a single click */
    doubleClick?: boolean;
    /** Button to click, defaults to left */
    button?: "left" | "right" | "middle";
    /** Modifier keys to press */
    modifiers?: ("Alt" | "Control" | "ControlOrMeta" | "Meta" | "Shift")[];
  }
  interface BrowserDragArgs {
    /** Human-readable source element description used to obtain the permission to interact with the element */
    startElement?: string;
    /** Exact target element reference from the page snapshot, or a unique element selector */
    startTarget: string;
    /** Human-readable target element description used to obtain the permission to interact with the element */
    endElement?: string;
    /** Exact target element reference from the page snapshot, or a unique element selector */
    endTarget: string;
  }
  interface BrowserHoverArgs {
    /** Human-readable element description used to obtain permission to interact with the element */
    element?: string;
    /** Exact target element reference from the page snapshot, or a unique element selector */
    target: string;
  }
  interface BrowserSelectOptionArgs {
    /** Human-readable element description used to obtain permission to interact with the element */
    element?: string;
    /** Exact target element reference from the page snapshot, or a unique element selector */
    target: string;
    /** Array of values to select in the dropdown. This can be a single value or multiple values. */
    values: string[];
  }
  interface BrowserTabsArgs {
    /** Operation to perform */
    action: "list" | "new" | "close" | "select";
    /** Tab index, used for close/select. If omitted for close, current tab is closed. */
    index?: number;
    /** URL to navigate to in the new tab, used for new. */
    url?: string;
  }
  interface BrowserWaitForArgs {
    /** The time to wait in seconds, at most 30 */
    time?: number;
    /** The text to wait for */
    text?: string;
    /** The text to wait for to disappear */
    textGone?: string;
  }
}

declare const mcp: {
  readonly playwright: {
    /** Close the page */
    browser_close(args?: Playwright.BrowserCloseArgs): Promise<unknown>;
    /** Resize the browser window */
    browser_resize(args: Playwright.BrowserResizeArgs): Promise<unknown>;
    /** Returns all console messages */
    browser_console_messages(args: Playwright.BrowserConsoleMessagesArgs): Promise<unknown>;
    /** Handle a dialog */
    browser_handle_dialog(args: Playwright.BrowserHandleDialogArgs): Promise<unknown>;
    /** Emulate CSS media features for the page, for example switch between the light and dark color scheme. Omitted parameters are left unchanged; null clears an override. */
    browser_emulate_media(args?: Playwright.BrowserEmulateMediaArgs): Promise<unknown>;
    /** Evaluate JavaScript expression on page or element */
    browser_evaluate(args: Playwright.BrowserEvaluateArgs): Promise<unknown>;
    /** Upload one or multiple files */
    browser_file_upload(args?: Playwright.BrowserFileUploadArgs): Promise<unknown>;
    /** Drop files or MIME-typed data onto an element, as if dragged from outside the page. At least one of "paths" or "data" must be provided. */
    browser_drop(args: Playwright.BrowserDropArgs): Promise<unknown>;
    /** Search the accessibility snapshot of the current page for text or a regular expression. Returns matching snapshot nodes with a few lines of surrounding context (like search snippets), each shown under its path from the root of the tree, which is cheaper than capturing the whole snapshot when you only need to locate an element and its ref. */
    browser_find(args?: Playwright.BrowserFindArgs): Promise<unknown>;
    /** Fill multiple form fields */
    browser_fill_form(args: Playwright.BrowserFillFormArgs): Promise<unknown>;
    /** Press a key on the keyboard */
    browser_press_key(args: Playwright.BrowserPressKeyArgs): Promise<unknown>;
    /** Type text into editable element */
    browser_type(args: Playwright.BrowserTypeArgs): Promise<unknown>;
    /** Navigate to a URL */
    browser_navigate(args: Playwright.BrowserNavigateArgs): Promise<unknown>;
    /** Go back to the previous page in the history */
    browser_navigate_back(args?: Playwright.BrowserNavigateBackArgs): Promise<unknown>;
    /** Returns a numbered list of network requests since loading the page. Use browser_network_request with the number to get full details. */
    browser_network_requests(args: Playwright.BrowserNetworkRequestsArgs): Promise<unknown>;
    /** Returns full details (headers and body) of a single network request, or a single part if `part` is set. Use the number from browser_network_requests. */
    browser_network_request(args: Playwright.BrowserNetworkRequestArgs): Promise<unknown>;
    /** Run a Playwright code snippet. Unsafe: executes arbitrary JavaScript in the Playwright server process and is RCE-equivalent. */
    browser_run_code_unsafe(args?: Playwright.BrowserRunCodeUnsafeArgs): Promise<unknown>;
    /** Take a screenshot of the current page. You can't perform actions based on the screenshot, use browser_snapshot for actions. */
    browser_take_screenshot(args: Playwright.BrowserTakeScreenshotArgs): Promise<unknown>;
    /** Capture accessibility snapshot of the current page, this is better than screenshot */
    browser_snapshot(args?: Playwright.BrowserSnapshotArgs): Promise<unknown>;
    /** Perform click on a web page */
    browser_click(args: Playwright.BrowserClickArgs): Promise<unknown>;
    /** Perform drag and drop between two elements */
    browser_drag(args: Playwright.BrowserDragArgs): Promise<unknown>;
    /** Hover over element on page */
    browser_hover(args: Playwright.BrowserHoverArgs): Promise<unknown>;
    /** Select an option in a dropdown */
    browser_select_option(args: Playwright.BrowserSelectOptionArgs): Promise<unknown>;
    /** List, create, close, or select a browser tab. */
    browser_tabs(args: Playwright.BrowserTabsArgs): Promise<unknown>;
    /** Wait for text to appear or disappear or a specified time to pass */
    browser_wait_for(args?: Playwright.BrowserWaitForArgs): Promise<unknown>;
  };
};
declare const playwright: typeof mcp.playwright;
