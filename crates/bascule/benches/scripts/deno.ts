// Measures scripts in Deno workers without permissions: the time to the value, of one call and of a hundred concurrent
// calls. Prints microseconds as JSON.

const rounds = Number(Deno.args[0]);
type Listener = (event: MessageEvent) => void;

function start(code: string, listener: (worker: Worker) => Listener): Worker {
  const url = "data:application/typescript," + encodeURIComponent(code);
  // deno-lint-ignore no-explicit-any
  const worker = new Worker(url, { type: "module", deno: { permissions: "none" } } as any);
  worker.onmessage = listener(worker);
  return worker;
}

function median(each: number[]): number {
  each.sort((a, b) => a - b);
  return each[Math.floor(each.length / 2)] * 1000;
}

const script = "const one: number = 1; export default one satisfies number;";

// Measures the time from the source to the value in a ready worker, which is used once.
async function value(): Promise<number> {
  const waits = `self.onmessage = async ({ data }) => self.postMessage((await import(data)).default);
    self.postMessage("ready");`;
  return await new Promise((resolve) => {
    let begin = 0;
    start(waits, (worker) => ({ data }) => {
      if (data === "ready") {
        begin = performance.now();
        return worker.postMessage("data:application/typescript," + encodeURIComponent(script));
      }
      const took = performance.now() - begin;
      worker.terminate();
      resolve(took);
    });
  });
}

// Calls a tool by messages.
const calling = `
  let last = 0; const open = new Map<number, (value: unknown) => void>();
  self.onmessage = ({ data }) => { open.get(data.id)!(JSON.parse(data.result)); open.delete(data.id); };
  const call = (args: unknown) => new Promise((resolve) => {
    open.set(++last, resolve); self.postMessage({ id: last, args: JSON.stringify(args) });
  });`;

// Answers every call at once. Returns the median time between the starts of rounds of `atOnce` calls.
async function between(loop: string, atOnce: number): Promise<number> {
  const began: number[] = [];
  let calls = 0;
  await new Promise<void>((resolve) => {
    start(`${calling}\n${loop}\nself.postMessage({ id: 0 });`, (worker) => ({ data }) => {
      if (data.id === 0) return worker.terminate(), resolve();
      if (calls++ % atOnce === 0) began.push(performance.now());
      worker.postMessage({ id: data.id, result: data.args });
    });
  });
  return median(began.slice(1).map((at, n) => at - began[n]));
}

const values: number[] = [];
for (let n = 0; n < rounds; n++) values.push(await value());
const call = await between(`for (let n = 0; n < 1000; n++) await call({ message: "hello" });`, 1);
const hundred = await between(
  `for (let n = 0; n < 40; n++) await Promise.all(Array.from({ length: 100 }, () => call({ message: "hello" })));`,
  100,
);
console.log(JSON.stringify({ warm: median(values), call, hundred }));
