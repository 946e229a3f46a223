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
    if (kind === '[object Error]') return inspectError(value, depth, seen);
    if (kind === '[object Date]') return own.isFinite(own.getTime(value)) ? own.toISOString(value) : 'Invalid Date';
    if (kind === '[object RegExp]') return own.regexText(value);
    if (depth === 0) return own.isArray(value) ? '[Array]' : '[Object]';
    own.setAdd(seen, value);
    const text = inspectParts(value, kind, depth - 1, seen);
    own.setDelete(seen, value);
    return text;
  }

  // Writes the stack of an error, its cause if that is an error, and the errors that it collects.
  function inspectError(error, depth, seen) {
    const text = typeof error.stack === 'string' ? error.stack : ('[' + error + ']');
    const { cause, errors } = error;
    const hasCause = own.classOf(cause) === '[object Error]';
    if (depth === 0 || !(hasCause || own.isArray(errors))) return text;
    own.setAdd(seen, error);
    const parts = [];
    if (hasCause) own.push(parts, '[cause]: ' + inspect(cause, depth - 1, seen));
    if (own.isArray(errors)) own.push(parts, '[errors]: ' + inspect(errors, depth - 1, seen));
    own.setDelete(seen, error);
    return text + ' { ' + own.join(parts, ', ') + ' }';
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

  // Replaces `%s`, `%d` and the like in the first value by the next values, as in Node. Returns the text and the values left.
  function formatted(values) {
    const pattern = values[0];
    if (typeof pattern !== 'string' || values.length < 2 || own.indexOf(pattern, '%') < 0) return ['', 0];
    let text = '';
    let next = 1;
    for (let n = 0; n < pattern.length; n++) {
      const letter = pattern[n] === '%' ? pattern[n + 1] : undefined;
      const isKnown = letter !== undefined && own.indexOf('sdifjoOc%', letter) >= 0;
      if (!isKnown || (letter !== '%' && next === values.length)) {
        text += pattern[n];
        continue;
      }
      n++;
      if (letter === '%') text += '%';
      else if (letter === 'c') next++;
      else if (letter === 'd' || letter === 'f') text += own.Number(values[next++]);
      else if (letter === 'i') text += own.trunc(own.Number(values[next++]));
      else text += letter === 'j' ? own.stringify(values[next++]) : show(values[next++]);
    }
    return [text, next];
  }

  // Spaces before each line, two for each open group.
  let indent = '';
  function write(level, values) {
    const start = formatted(values);
    let text = start[0];
    for (let n = start[1]; n < values.length && text.length < LENGTH; n++) text += (n > 0 ? ' ' : '') + show(values[n]);
    const clipped = text.length > LENGTH ? ('' + own.substring(text, 0, LENGTH) + ' …') : text;
    native.log(level, own.toWellFormed(indent === '' ? clipped : indent + own.replaceAll(clipped, '\n', '\n' + indent)));
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
  console.timeLog = (label = 'default', ...values) => {
    const since = own.mapGet(startTimes, label);
    if (since !== undefined) write('log', [('' + label + ': ' + (native.now() - since) + 'ms'), ...values]);
  };
  console.group = (...values) => {
    if (values.length > 0) write('log', values);
    if (indent.length < 40) indent += '  ';
  };
  console.groupCollapsed = console.group;
  console.groupEnd = () => { indent = own.substring(indent, 2, indent.length); };
  const counts = new own.Map();
  console.count = (label = 'default') => {
    const count = (own.mapGet(counts, '' + label) ?? 0) + 1;
    own.mapSet(counts, '' + label, count);
    write('log', ['' + label + ': ' + count]);
  };
  console.countReset = (label = 'default') => { own.mapSet(counts, '' + label, 0); };
  console.clear = () => {};
  own.defineProperty(globalThis, 'console', { __proto__: null, value: console, writable: true, configurable: true });
  return own.freeze({ __proto__: null, show });
}
