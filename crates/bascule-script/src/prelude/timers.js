// Defines the timer functions and `queueMicrotask`. The worker keeps the due times; this module keeps the callbacks.
function (native, own) {
  'use strict';
  const timers = own.create(null);

  function start(callback, delay, values, repeats) {
    if (typeof callback !== 'function') {
      throw new own.TypeError('a timer takes a function: scripts cannot create code from text');
    }
    const interval = own.max(1, own.min(+delay || 0, 0x7fff_ffff));
    const id = native.startTimer(interval);
    timers[id] = { __proto__: null, callback, values, interval, repeats, isHeld: true };
    return id;
  }

  // Sets if a script that has returned waits for the timer.
  function hold(id, isHeld) {
    const timer = timers[id];
    if (timer === undefined) return;
    timer.isHeld = isHeld;
    native.holdTimer(id, isHeld);
  }

  // The value that the functions return, as in Node. In calculations it is a number.
  class Timeout {
    #id;
    constructor(id) { this.#id = id; }
    static idOf(value) { return typeof value === 'object' && value !== null && #id in value ? value.#id : value; }
    ref() { hold(this.#id, true); return this; }
    unref() { hold(this.#id, false); return this; }
    hasRef() { return timers[this.#id] !== undefined && timers[this.#id].isHeld; }
    close() { stop(this.#id); return this; }
    [Symbol.toPrimitive]() { return this.#id; }
  }
  const { idOf } = Timeout;
  delete Timeout.idOf;
  delete Timeout.prototype.constructor;
  own.freeze(Timeout.prototype);

  function stop(handle) {
    const id = idOf(handle);
    if (typeof id !== 'number' || timers[id] === undefined) return;
    delete timers[id];
    native.stopTimer(id);
  }

  function fireTimer(id) {
    const timer = timers[id];
    if (timer === undefined) return;
    if (timer.repeats) native.restartTimer(id, timer.interval, timer.isHeld);
    else delete timers[id];
    own.apply(timer.callback, undefined, timer.values);
  }

  const define = (name, value) =>
    own.defineProperty(globalThis, name, { __proto__: null, value, writable: true, configurable: true });
  define('setTimeout', function setTimeout(callback, delay, ...values) { return new Timeout(start(callback, delay, values, false)); });
  define('setInterval', function setInterval(callback, delay, ...values) { return new Timeout(start(callback, delay, values, true)); });
  define('clearTimeout', function clearTimeout(id) { stop(id); });
  define('clearInterval', function clearInterval(id) { stop(id); });
  define('setImmediate', function setImmediate(callback, ...values) { return new Timeout(start(callback, 0, values, false)); });
  define('clearImmediate', function clearImmediate(id) { stop(id); });

  // The engine's own function drops what the callback throws. Here it becomes a rejection that nothing handles, which fails the
  // script. Without a constructor of its own, the promise makes others of the original class, not of one of the script.
  const resolved = new own.Promise((resolve) => resolve());
  own.defineProperty(resolved, 'constructor', { __proto__: null, value: undefined });
  define('queueMicrotask', function queueMicrotask(callback) {
    if (typeof callback !== 'function') throw new own.TypeError('queueMicrotask takes a function');
    own.then(resolved, () => { own.apply(callback, undefined, []); });
  });

  const sleep = (ms) => new own.Promise((resolve) => start(() => resolve(), ms, [], false));
  return own.freeze({ __proto__: null, fireTimer, sleep });
}
