// Timers. When one is due is the worker's business; here is what to do then.
function (native, own) {
  'use strict';
  const waiting = own.create(null);

  function start(callback, delay, values, repeats) {
    if (typeof callback !== 'function') {
      throw new own.TypeError('a timer takes a function: text is not made code here');
    }
    const every = own.max(1, own.min(+delay || 0, 0x7fff_ffff));
    const id = native.startTimer(every);
    waiting[id] = { callback, values, every, repeats };
    return id;
  }

  function stop(id) {
    if (typeof id !== 'number' || waiting[id] === undefined) return;
    delete waiting[id];
    native.stopTimer(id);
  }

  function fire(id) {
    const timer = waiting[id];
    if (timer === undefined) return;
    if (timer.repeats) native.restartTimer(id, timer.every);
    else delete waiting[id];
    own.apply(timer.callback, undefined, timer.values);
  }

  const define = (name, value) =>
    own.defineProperty(globalThis, name, { __proto__: null, value, writable: true, configurable: true });
  define('setTimeout', function setTimeout(callback, delay, ...values) { return start(callback, delay, values, false); });
  define('setInterval', function setInterval(callback, delay, ...values) { return start(callback, delay, values, true); });
  define('clearTimeout', function clearTimeout(id) { stop(id); });
  define('clearInterval', function clearInterval(id) { stop(id); });
  define('setImmediate', function setImmediate(callback, ...values) { return start(callback, 0, values, false); });
  define('clearImmediate', function clearImmediate(id) { stop(id); });

  const sleep = (ms) => new own.Promise((resolve) => start(() => resolve(), ms, [], false));
  return own.freeze({ __proto__: null, fire, sleep });
}
