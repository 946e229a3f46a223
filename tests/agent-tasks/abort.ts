// Stop waiting with an AbortController.
// expect: "aborted"
const controller = new AbortController();
const aborted = new Promise((resolve) => controller.signal.addEventListener('abort', () => resolve('aborted')));
setTimeout(() => controller.abort(), 20);
return await Promise.race([aborted, bascule.sleep(2000)]);
