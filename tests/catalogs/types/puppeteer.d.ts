declare namespace Puppeteer {
  interface PuppeteerNavigateArgs {
    /** URL to navigate to */
    url: string;
    /** PuppeteerJS LaunchOptions. Default null. If changed and not null, browser restarts. Example: { headless: true, args: ['--no-sandbox'] } */
    launchOptions?: {
      [key: string]: unknown;
    };
    /** Allow dangerous LaunchOptions that reduce security. When false, dangerous args like --no-sandbox will throw errors. Default false. */
    allowDangerous?: boolean;
  }
  interface PuppeteerScreenshotArgs {
    /** Name for the screenshot */
    name: string;
    /** CSS selector for element to screenshot */
    selector?: string;
    /** Width in pixels (default: 800) */
    width?: number;
    /** Height in pixels (default: 600) */
    height?: number;
    /** If true, capture the screenshot as a base64-encoded data URI (as text) instead of binary image content. Default false. */
    encoded?: boolean;
  }
  interface PuppeteerClickArgs {
    /** CSS selector for element to click */
    selector: string;
  }
  interface PuppeteerFillArgs {
    /** CSS selector for input field */
    selector: string;
    /** Value to fill */
    value: string;
  }
  interface PuppeteerSelectArgs {
    /** CSS selector for element to select */
    selector: string;
    /** Value to select */
    value: string;
  }
  interface PuppeteerHoverArgs {
    /** CSS selector for element to hover */
    selector: string;
  }
  interface PuppeteerEvaluateArgs {
    /** JavaScript code to execute */
    script: string;
  }
}

declare const mcp: {
  readonly puppeteer: {
    /** Navigate to a URL */
    puppeteer_navigate(args: Puppeteer.PuppeteerNavigateArgs): Promise<unknown>;
    /** Take a screenshot of the current page or a specific element */
    puppeteer_screenshot(args: Puppeteer.PuppeteerScreenshotArgs): Promise<unknown>;
    /** Click an element on the page */
    puppeteer_click(args: Puppeteer.PuppeteerClickArgs): Promise<unknown>;
    /** Fill out an input field */
    puppeteer_fill(args: Puppeteer.PuppeteerFillArgs): Promise<unknown>;
    /** Select an element on the page with Select tag */
    puppeteer_select(args: Puppeteer.PuppeteerSelectArgs): Promise<unknown>;
    /** Hover an element on the page */
    puppeteer_hover(args: Puppeteer.PuppeteerHoverArgs): Promise<unknown>;
    /** Execute JavaScript in the browser console */
    puppeteer_evaluate(args: Puppeteer.PuppeteerEvaluateArgs): Promise<unknown>;
  };
};
declare const puppeteer: typeof mcp.puppeteer;
