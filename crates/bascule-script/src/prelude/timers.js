// Defines the timer functions. The worker keeps the due times; this module keeps the callbacks.
function (native, own) {
  'use strict';
  const timers = own.create(null);

  function start(callback, delay, values, repeats) {
    if (typeof callback !== 'function') {
      throw new own.TypeError('a timer takes a function: scripts cannot create code from text');
    }
    const interval = own.max(1, own.min(+delay || 0, 0x7fff_ffff));
    const id = native.startTimer(interval);
    timers[id] = { callback, values, interval, repeats };
    return id;
  }

  function stop(id) {
    if (typeof id !== 'number' || timers[id] === undefined) return;
    delete timers[id];
    native.stopTimer(id);
  }

  function fireTimer(id) {
    const timer = timers[id];
    if (timer === undefined) return;
    if (timer.repeats) native.restartTimer(id, timer.interval);
    else delete timers[id];
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
  return own.freeze({ __proto__: null, fireTimer, sleep });
}
