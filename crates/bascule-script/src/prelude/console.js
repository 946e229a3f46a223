// Defines `console`. Values are formatted as in Node, on one line and with limits.
function (native, own) {
  'use strict';
  const DEPTH = 5;
  const ITEMS = 100;
  const LENGTH = 65_536;
  // Maximum number of values to format for one line.
  const VALUES = 20_000;
  let valuesLeft = 0;

  const quoted = (text) => ('\'' + own.replaceAll(own.replaceAll(text, '\\', '\\\\'), "'", "\\'") + '\'');

  function inspect(value, depth, seen) {
    if (--valuesLeft < 0) return '…';
    switch (typeof value) {
      case 'string': return quoted(value);
      case 'bigint': return ('' + value + 'n');
      case 'symbol': return own.symbolText(value);
      case 'function': return ('[Function' + (value.name ? (': ' + value.name) : '') + ']');
      case 'object': return value === null ? 'null' : inspectObject(value, depth, seen);
      default: return own.is(value, -0) ? '-0' : own.String(value);
    }
  }

  function inspectObject(value, depth, seen) {
    if (own.setHas(seen, value)) return '[Circular]';
    const kind = own.classOf(value);
    if (kind === '[object Error]') return typeof value.stack === 'string' ? value.stack : ('[' + value + ']');
    if (kind === '[object Date]') return own.isFinite(own.getTime(value)) ? own.toISOString(value) : 'Invalid Date';
    if (kind === '[object RegExp]') return own.regexText(value);
    if (depth === 0) return own.isArray(value) ? '[Array]' : '[Object]';
    own.setAdd(seen, value);
    const text = inspectParts(value, kind, depth - 1, seen);
    own.setDelete(seen, value);
    return text;
  }

  function inspectParts(value, kind, depth, seen) {
    const parts = [];
    if (own.isArray(value) || own.isView(value)) {
      const count = value.length ?? 0;
      for (let n = 0; n < own.min(count, ITEMS); n++) own.push(parts, inspect(value[n], depth, seen));
      if (count > ITEMS) own.push(parts, ('… ' + (count - ITEMS) + ' more items'));
      return parts.length === 0 ? '[]' : ('[ ' + own.join(parts, ', ') + ' ]');
    }
    if (kind === '[object Map]') {
      own.mapEach(value, (item, key) => {
        own.push(parts, ('' + inspect(key, depth, seen) + ' => ' + inspect(item, depth, seen)));
      });
      return ('Map(' + parts.length + ') {' + own.join(parts, ', ') + '}');
    }
    if (kind === '[object Set]') {
      own.setEach(value, (item) => own.push(parts, inspect(item, depth, seen)));
      return ('Set(' + parts.length + ') {' + own.join(parts, ', ') + '}');
    }
    if (kind === '[object Promise]') return 'Promise {}';
    const keys = own.keysOf(value);
    for (let n = 0; n < own.min(keys.length, ITEMS); n++) {
      own.push(parts, ('' + keys[n] + ': ' + inspect(value[keys[n]], depth, seen)));
    }
    if (keys.length > ITEMS) own.push(parts, ('… ' + (keys.length - ITEMS) + ' more'));
    return parts.length === 0 ? '{}' : ('{ ' + own.join(parts, ', ') + ' }');
  }

  function show(value) {
    if (typeof value === 'string') return value;
    valuesLeft = VALUES;
    try {
      return inspect(value, DEPTH, new own.Set());
    } catch {
      return '[value that cannot be formatted]';
    }
  }

  function write(level, values) {
    let text = '';
    for (let n = 0; n < values.length && text.length < LENGTH; n++) text += (n > 0 ? ' ' : '') + show(values[n]);
    const clipped = text.length > LENGTH ? ('' + own.substring(text, 0, LENGTH) + ' …') : text;
    native.log(level, own.toWellFormed(clipped));
  }

  const console = {};
  const levels = ['log', 'info', 'warn', 'error', 'debug'];
  for (let n = 0; n < levels.length; n++) {
    console[levels[n]] = { [levels[n]]: (...values) => write(levels[n], values) }[levels[n]];
  }
  console.trace = (...values) => write('debug', values);
  console.dir = (value) => write('log', [value]);
  console.table = (value) => write('log', [value]);
  console.assert = (condition, ...values) => { if (!condition) write('error', ['Assertion failed', ...values]); };
  const startTimes = new own.Map();
  console.time = (label = 'default') => { own.mapSet(startTimes, label, native.now()); };
  console.timeEnd = (label = 'default') => {
    const since = own.mapGet(startTimes, label);
    if (since !== undefined) write('log', [('' + label + ': ' + (native.now() - since) + 'ms')]);
  };
  console.group = (...values) => { if (values.length > 0) write('log', values); };
  console.groupEnd = () => {};
  own.defineProperty(globalThis, 'console', { __proto__: null, value: console, writable: true, configurable: true });
  return own.freeze({ __proto__: null, show });
}
