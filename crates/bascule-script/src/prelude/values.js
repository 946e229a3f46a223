// Converts values of the script to JSON text: its result, and the arguments of calls. What JSON cannot hold is converted
// where there is a usual form (a Map becomes an object), and reported where something is lost.
function (native, own, format) {
  'use strict';
  const SHOWN = 10;
  const MAX_DRAINED = 100_000;
  const MAX_SAFE = 9007199254740991n;
  // The promises in the result that have settled, each with `{ value }` or `{ error }`.
  const settled = new own.WeakMap();
  // The iterators in the result that have been drained, each with its items: the result may be converted more than once.
  const drained = new own.WeakMap();
  const views = own.getPrototypeOf(own.Uint8Array.prototype);
  const iterators = own.create(null);
  for (const kind of ['Array Iterator', 'Map Iterator', 'Set Iterator', 'String Iterator', 'RegExp String Iterator',
    'Iterator Helper', 'Iterator Wrap', 'Generator']) iterators['[object ' + kind + ']'] = true;

  // The state of one conversion. Conversions do not nest: a `toJSON` that makes a call would start another, so the state is
  // saved and restored.
  let root = 'result';
  let keys = [];
  let depth = 0;
  let ancestors = new own.Set();
  let losses;
  let waiting = 0;
  let onPromise;

  function run(name, value, promiseHandler) {
    const saved = [root, keys, depth, ancestors, losses, waiting, onPromise];
    root = name; keys = []; depth = 0; ancestors = new own.Set(); losses = undefined; waiting = 0; onPromise = promiseHandler;
    try {
      const converted = convert(value);
      return { __proto__: null, converted, losses, waiting };
    } finally {
      root = saved[0]; keys = saved[1]; depth = saved[2]; ancestors = saved[3]; losses = saved[4]; waiting = saved[5];
      onPromise = saved[6];
    }
  }

  const isName = (key) => own.test(/^[A-Za-z_$][\w$]*$/, key);
  // Returns the path of the current value. With `isGeneral`, the path of all values in its place of each array.
  function path(isGeneral) {
    let text = root;
    for (let n = 0; n < depth; n++) {
      const key = keys[n];
      if (typeof key === 'number') text += isGeneral ? '[]' : '[' + key + ']';
      else text += isName(key) ? (text === '' ? '' : '.') + key : '[' + own.stringify(key) + ']';
    }
    return text;
  }

  function lose(text) {
    losses ??= new own.Map();
    const id = path(true) + ' ' + text;
    const known = own.mapGet(losses, id);
    if (known !== undefined) known.count++;
    else own.mapSet(losses, id, { __proto__: null, text: '`' + path(false) + '` ' + text, count: 1 });
  }

  function convert(value) {
    switch (typeof value) {
      case 'string': return convertText(value);
      case 'boolean': case 'undefined': return value;
      case 'number':
        if (own.isFinite(value)) return value;
        lose('is ' + value + ', which JSON has not: it became null');
        return null;
      case 'bigint':
        return value <= MAX_SAFE && value >= -MAX_SAFE ? own.Number(value) : own.String(value);
      case 'function': lose('is a function and was left out'); return undefined;
      case 'symbol': lose('is a symbol and was left out'); return undefined;
      default: return value === null ? null : convertObject(value);
    }
  }

  // Text with half of a character is no JSON for most parsers: a client would refuse the whole message.
  function convertText(text) {
    checkText(text);
    if (own.isWellFormed(text)) return text;
    lose('contains half of a character (a cut emoji?), which became U+FFFD; cut text with [...text].slice(0, n).join("")');
    return own.toWellFormed(text);
  }

  // Reports text that was made from an object or a promise by mistake.
  function checkText(text) {
    if (own.indexOf(text, '[object ') < 0) return;
    if (own.indexOf(text, '[object Promise]') >= 0) lose('contains "[object Promise]": a promise was put into text; write `await` before it');
    else if (own.indexOf(text, '[object Object]') >= 0) lose('contains "[object Object]": an object was put into text; use JSON.stringify, or one of its fields');
  }

  function convertObject(value) {
    if (own.setHas(ancestors, value)) throw new own.TypeError('`' + path(false) + '` refers to an object that contains it (circular)');
    own.setAdd(ancestors, value);
    const kind = own.classOf(value);
    if (kind === '[object Promise]' && value instanceof own.Promise) return leave(value, onPromise(value));
    const toJSON = value.toJSON;
    if (typeof toJSON !== 'function') return leave(value, convertParts(value, kind));
    if (kind === '[object Date]' && !own.isFinite(own.getTime(value))) lose('is an invalid date: it became null');
    const json = own.apply(toJSON, value, [depth > 0 ? own.String(keys[depth - 1]) : '']);
    const isOther = typeof json !== 'object' || json === null || json === value;
    return leave(value, json === value ? convertParts(value, kind) : isOther ? convert(json) : convertParts(json, own.classOf(json)));
  }

  function leave(value, converted) {
    own.setDelete(ancestors, value);
    return converted;
  }

  function convertParts(value, kind) {
    if (own.isArray(value)) return convertItems(value);
    if (own.isView(value)) {
      return convertItems(listOf(own.isPrototypeOf(views, value) ? value : new own.Uint8Array(value.buffer, value.byteOffset, value.byteLength)));
    }
    switch (kind) {
      case '[object Map]': if (value instanceof own.Map) return convertMap(value); break;
      case '[object Set]': if (value instanceof own.Set) { const all = []; own.setEach(value, (item) => { own.push(all, item); }); return convertItems(all); } break;
      case '[object Error]': return convertError(value);
      case '[object DOMException]': if (value instanceof own.DOMException) return convertError(value); break;
      case '[object URLSearchParams]': return convert(own.String(value));
      case '[object RegExp]': return own.regexText(value);
      case '[object ArrayBuffer]': return convertItems(listOf(new own.Uint8Array(value)));
      case '[object Number]': return convert(own.Number(value));
      case '[object String]': return own.String(value);
      case '[object Boolean]': return own.booleanOf(value);
      case '[object BigInt]': return convert(own.bigintOf(value));
      case '[object WeakMap]': case '[object WeakSet]': case '[object WeakRef]': case '[object AsyncGenerator]':
        lose('is ' + own.substring(kind, 8, kind.length - 1) + ', whose content JSON cannot hold: it became {}');
        return {};
      case '[object Blob]':
        lose('is a Blob, whose content JSON cannot hold: it became {}; use await blob.text()');
        return {};
    }
    if (iterators[kind] === true) return convertIterator(value);
    return convertFields(value, kind);
  }

  // Reports an object that keeps its content where JSON does not look: in private or inherited fields.
  function checkEmpty(value, kind) {
    const prototype = own.getPrototypeOf(value);
    if (prototype === null || prototype === own.objectPrototype) return;
    const tag = own.substring(kind, 8, kind.length - 1);
    const name = tag === 'Object' ? value.constructor?.name : tag;
    lose('is an instance of ' + (typeof name === 'string' && name !== '' ? name : 'a class') + ' without fields that JSON can hold: it became {}');
  }

  function listOf(view) {
    const items = [];
    for (let n = 0; n < view.length; n++) own.push(items, view[n]);
    return items;
  }

  function convertItems(items) {
    let copy;
    for (let n = 0; n < items.length; n++) {
      const item = items[n];
      keys[depth++] = n;
      const converted = convert(item);
      if (item === undefined) lose('is undefined and became null');
      depth--;
      if (copy === undefined && converted !== item) copy = own.slice(items, 0, n);
      if (copy !== undefined) own.push(copy, converted);
    }
    return copy ?? items;
  }

  function convertFields(value, kind) {
    const names = own.keysOf(value);
    if (names.length === 0 && kind !== undefined) checkEmpty(value, kind);
    let copy;
    for (let n = 0; n < names.length; n++) {
      const field = value[names[n]];
      keys[depth++] = names[n];
      const converted = convert(field);
      if (!own.isWellFormed(names[n])) lose('has half of a character in its name, which became U+FFFD');
      depth--;
      if (copy === undefined && converted !== field) {
        copy = {};
        for (let k = 0; k < n; k++) put(copy, names[k], value[names[k]]);
      }
      if (copy !== undefined) put(copy, names[n], converted);
    }
    return copy ?? value;
  }

  const put = (object, name, value) =>
    own.defineProperty(object, name, { __proto__: null, value, writable: true, enumerable: true, configurable: true });

  // A Map whose keys are different texts or numbers becomes an object; any other becomes a list of pairs.
  function convertMap(map) {
    const names = new own.Set();
    const pairs = [];
    let isObject = true;
    own.mapEach(map, (item, key) => {
      own.push(pairs, [key, item]);
      if ((typeof key !== 'string' && typeof key !== 'number') || own.setHas(names, own.String(key))) isObject = false;
      else own.setAdd(names, own.String(key));
    });
    if (!isObject) return convertItems(pairs);
    const object = {};
    for (let n = 0; n < pairs.length; n++) put(object, own.String(pairs[n][0]), pairs[n][1]);
    return convertFields(object);
  }

  function convertError(error) {
    const { name, message, cause, errors } = error;
    const fields = {};
    put(fields, 'name', own.String(name));
    put(fields, 'message', own.String(message));
    const names = own.keysOf(error);
    for (let n = 0; n < names.length; n++) put(fields, names[n], error[names[n]]);
    if (cause !== undefined) put(fields, 'cause', cause);
    if (own.isArray(errors)) put(fields, 'errors', errors);
    return convertFields(fields);
  }

  function convertIterator(iterator) {
    const isResult = onPromise !== refusePromise;
    const state = isResult ? own.weakGet(drained, iterator) ?? drain(iterator) : drain(iterator);
    if (isResult) own.weakSet(drained, iterator, state);
    if (state.isCut) lose('is an iterator with more than ' + MAX_DRAINED + ' items: the others were left out');
    return convertItems(state.items);
  }

  function drain(iterator) {
    const items = [];
    for (let next = iterator.next(); !next.done; next = iterator.next()) {
      if (items.length === MAX_DRAINED) return { __proto__: null, items, isCut: true };
      own.push(items, next.value);
    }
    return { __proto__: null, items, isCut: false };
  }

  // ---- the result of the script ----------------------------------------------------------------------------------
  const cannotConvert = (reason) => new own.TypeError('the returned value cannot be converted to JSON: ' + reason);
  // The message comes from the engine, and the worker looks for it.
  const isOutOfMemory = (thrown) => thrown === null || thrown?.message === 'out of memory';

  function awaitPromise(isLast) {
    return (promise) => {
      const state = own.weakGet(settled, promise);
      if (state?.isSettled === true) {
        if (state.isRejected) throw state;
        return convert(state.value);
      }
      if (isLast) { lose('is a promise that never settles: it became null'); return null; }
      waiting++;
      if (state === undefined) watch(promise);
      return null;
    };
  }

  function watch(promise) {
    const state = { __proto__: null, isSettled: false, isRejected: false, value: undefined };
    own.weakSet(settled, promise, state);
    own.then(promise, (value) => { state.isSettled = true; state.value = value; },
      (error) => { state.isSettled = state.isRejected = true; state.value = error; });
  }

  // Returns the value of the script as JSON text, or undefined if promises in it have not settled. With `isLast` nothing is
  // left that could settle them.
  function valueToJson(value, isLast) {
    let done;
    try {
      done = run('result', value, awaitPromise(isLast));
      if (done.waiting > 0) return undefined;
    } catch (thrown) {
      if (isOutOfMemory(thrown)) throw thrown;
      if (thrown?.isRejected === true && thrown.isSettled === true) throw thrown.value;
      throw cannotConvert(format(thrown?.message ?? thrown));
    }
    if (typeof value === 'function') throw cannotConvert('it is a function' + (value.name ? ' (`' + value.name + '`)' : '') + '; call it');
    if (typeof value === 'symbol') throw cannotConvert(format(value));
    let text;
    try {
      text = own.stringify(done.converted) ?? 'null';
    } catch (cause) {
      if (isOutOfMemory(cause)) throw cause;
      throw cannotConvert(format(cause?.message ?? cause));
    }
    lastLosses = done.losses;
    return text;
  }

  // Logs the values that the last conversion of the result could not keep.
  let lastLosses;
  const reportLosses = () => report(lastLosses, '');

  function report(losses, suffix) {
    if (losses === undefined) return;
    let shown = 0;
    own.mapEach(losses, ({ text, count }) => {
      if (++shown > SHOWN) return;
      native.log('warn', own.toWellFormed(text + suffix + (count > 1 ? ' (so did ' + (count - 1) + ' more beside it)' : '')));
    });
    if (shown > SHOWN) native.log('warn', (shown - SHOWN) + ' more kinds of values could not be kept' + suffix);
  }

  // ---- the arguments of a call -----------------------------------------------------------------------------------
  const refusePromise = () => {
    throw new own.TypeError('`' + path(false) + '` is a promise; write `await` before the expression that makes it');
  };

  // Returns the arguments as JSON text, or undefined if they are no object. `title` names the tool in warnings.
  function argumentsToJson(args, title) {
    if (typeof args === 'object' && args !== null && own.classOf(args) === '[object Promise]') {
      throw new own.TypeError('they are a promise; write `await` before the expression that makes it');
    }
    const done = run('', args, refusePromise);
    if (done.losses !== undefined) report(done.losses, ' (in the arguments of ' + title + ')');
    return own.stringify(done.converted);
  }

  return own.freeze({ __proto__: null, valueToJson, argumentsToJson, reportLosses });
}
