// Retry a call that fails, then go on.
// expect: "gave up"
// log: attempt 3: TOOL_ERROR
async function withRetry<T>(call: () => Promise<T>, attempts = 3): Promise<T | string> {
  for (let n = 1; n <= attempts; n++) {
    try {
      return await call();
    } catch (error: any) {
      console.log(`attempt ${n}: ${error.code}`);
      await new Promise((resolve) => setTimeout(resolve, 10 * n));
    }
  }
  return 'gave up';
}
return await withRetry(() => trouble.fail({}));
