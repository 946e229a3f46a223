// Defines tools as functions: `mcp.github.listCommits({ … })`, and `github.listCommits({ … })` if the global name is free.
//
// No code is generated. The native functions look up names; this module has the proxies, the promises and the error class.
function (native, own, stacks, format, sleep) {
  'use strict';
  // The calls in flight, by number, and the number of each promise.
  const pending = own.create(null);
  const numbers = new own.WeakMap();
  const define = (target, name, value) =>
    own.defineProperty(target, name, { __proto__: null, value, writable: true, configurable: true });

  const nothing = own.create(null);
  class MCPToolError extends own.Error {
    // Fields are defined, not assigned: a script may have put setters on the prototype.
    constructor(message, { server, tool, code, data, retryable = false, cause, sites } = nothing) {
      super(message);
      define(this, 'name', 'MCPToolError');
      const field = (name, value) =>
        own.defineProperty(this, name, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
      field('toolName', server === undefined ? undefined : server + ':' + tool);
      field('server', server);
      field('tool', tool);
      field('code', code);
      field('retryable', retryable);
      if (data !== undefined) field('data', data);
      if (cause !== undefined) define(this, 'cause', cause);
      if (sites !== undefined) define(this, 'stack', stacks.stackText(this, sites));
    }
  }
  own.freeze(MCPToolError);
  // The codes of the errors that come from the bridge. A script can create errors too, but not with a code of the bridge.
  const codes = new own.WeakMap();
  function newToolError(message, options) {
    const error = new MCPToolError(message, options);
    own.weakSet(codes, error, options.code);
    return error;
  }
  const reserved = own.create(null);
  for (const code of [
    'PROVIDER_INIT_FAILED', 'PROVIDER_TIMEOUT', 'PROVIDER_CRASHED', 'PROVIDER_UNAVAILABLE', 'PROVIDER_ERROR', 'TOOL_NOT_FOUND',
    'INVALID_INPUT', 'INVALID_OUTPUT', 'POLICY_DENIED', 'RATE_LIMITED', 'CANCELLED', 'OUTCOME_UNKNOWN', 'TOOL_ERROR',
    'INVALID_TOOL_NAME', 'SYNTAX_ERROR', 'TIME_LIMIT', 'MEMORY_LIMIT', 'OUTPUT_LIMIT', 'CALL_LIMIT', 'DEADLOCK',
    'SCRIPT_TOO_LONG', 'NESTED_TOO_DEEPLY', 'WORKER_LOST', 'SANDBOX_VIOLATION', 'USAGE', 'CONFIG_INVALID',
  ]) reserved[code] = true;
  define(globalThis, 'MCPToolError', MCPToolError);

  // The message comes from the engine, and the worker looks for it.
  const isOutOfMemory = (thrown) => thrown === null || thrown?.message === 'out of memory';

  function notFound(server, tool, message) {
    const sites = stacks.capture(notFound);
    return newToolError(message, { __proto__: null, server, tool, code: 'TOOL_NOT_FOUND', sites });
  }

  // Starts a call. `settleCall` settles its promise; calls may end in any order.
  function startCall(server, tool, names, args) {
    const sites = stacks.capture(startCall);
    const refuse = (message, cause) =>
      own.reject(newToolError(message, { __proto__: null, ...names, code: 'INVALID_INPUT', cause, sites }));
    let text;
    try {
      text = args === undefined ? '{}' : own.stringify(args);
    } catch (cause) {
      if (isOutOfMemory(cause)) throw cause;
      return refuse('the arguments of ' + quoted(names) + ' cannot be converted to JSON: ' + format(cause?.message), cause);
    }
    if (typeof text !== 'string' || text[0] !== '{') {
      return refuse('the arguments of ' + quoted(names) + ' must be one object, such as { path: "a" }');
    }
    let number;
    try {
      number = native.call(server, tool, text);
    } catch (cause) {
      return refuse(quoted(names) + ' was not called: ' + format(cause?.message), cause);
    }
    const promise = new own.Promise((resolve, reject) => {
      pending[number] = { __proto__: null, names, sites, resolve, reject, raw: undefined };
    });
    own.weakSet(numbers, promise, number);
    return promise;
  }

  // Settles a call with its result. `kind` is the kind of `payload`: error, failed, json or text.
  function settleCall(number, kind, payload, rawResult) {
    const call = pending[number];
    if (call === undefined) return;
    delete pending[number];
    const { raw } = call;
    try {
      if (kind === 'error') throw bridgeError(call, own.parse(payload));
      if (raw !== undefined) raw.resolve(own.parse(rawResult));
      if (kind === 'text') call.resolve(payload);
      else if (kind === 'json') call.resolve(own.parse(payload));
      else throw toolError(call, payload, own.parse(rawResult));
    } catch (thrown) {
      const error = thrown instanceof MCPToolError || isOutOfMemory(thrown) ? thrown : unreadable(call, thrown);
      call.reject(error);
      if (raw !== undefined) raw.reject(error);
    }
  }

  const quoted = (names) => '`' + names.server + ':' + names.tool + '`';

  function unreadable({ names, sites }, cause) {
    const message = 'the result of ' + quoted(names) + ' cannot be parsed: ' + format(cause?.message);
    return newToolError(message, { __proto__: null, ...names, code: 'INVALID_OUTPUT', cause, sites });
  }

  // Reads own fields only: a script may have added fields to the prototype of every object.
  const ownField = (data, name) =>
    typeof data === 'object' && data !== null && own.hasOwn(data, name) ? data[name] : undefined;

  function bridgeError({ names, sites }, error) {
    own.setPrototypeOf(error, null);
    const { code, message, retryable, ...rest } = error;
    const data = ownField(ownField(error, 'providerError'), 'data') ?? rest;
    return newToolError(message, { __proto__: null, ...names, code, retryable, data, cause: error, sites });
  }

  function toolError({ names, sites }, message, result) {
    const data = ownField(result, 'structuredContent') ?? ownField(result, 'content');
    return newToolError(message, { __proto__: null, ...names, code: 'TOOL_ERROR', data, cause: result, sites });
  }

  // Returns the whole result of a call in flight, or calls a tool (a function or an id) and returns its whole result.
  function rawResult(call, args) {
    const promise = typeof call === 'function' ? call(args) : typeof call === 'string' ? callById(call, args) : call;
    const number = typeof promise === 'object' && promise !== null ? own.weakGet(numbers, promise) : undefined;
    const entry = number === undefined ? undefined : pending[number];
    if (entry === undefined) {
      return own.reject(new own.TypeError('bascule.raw takes a call in flight, or a tool and its arguments'));
    }
    if (entry.raw !== undefined) return entry.raw.promise;
    native.requestRaw(number);
    // The raw promise reports a failure, so the other one needs no handler. `then` may call classes of the script that throw.
    try { own.then(promise, undefined, () => {}); } catch {}
    const raw = { __proto__: null };
    raw.promise = new own.Promise((resolve, reject) => { raw.resolve = resolve; raw.reject = reject; });
    entry.raw = raw;
    return raw.promise;
  }

  // Calls a tool by its id, which works for every name.
  function callById(id, args) {
    const colon = typeof id === 'string' ? own.indexOf(id, ':') : -1;
    if (colon < 0) throw new own.TypeError('bascule.call takes a tool id such as `server:tool`, not `' + format(id) + '`');
    return toolFunction(serverIndex(own.substring(id, 0, colon)), own.substring(id, colon + 1))(args);
  }

  // Properties that JavaScript and its libraries read from any object. Reading them gives undefined instead of an error.
  const probed = own.create(null);
  const probes = ['then', 'catch', 'finally', 'toJSON', 'toString', 'valueOf', 'constructor', 'prototype', '__proto__',
    'inspect', 'length', 'nodeType', 'asymmetricMatch', '$$typeof', '@@iterator', 'hasOwnProperty'];
  for (let n = 0; n < probes.length; n++) probed[probes[n]] = true;

  // Returns a read-only object whose properties are looked up when they are read.
  function lazyObject(title, find, names, isKnown) {
    const found = own.create(null);
    const lookUp = (key) => found[key] ?? (found[key] = find(key));
    // The names are read once: they do not change while a script runs.
    let listed;
    let keys;
    const list = () => {
      if (listed === undefined) {
        listed = names();
        keys = own.create(null);
        for (let n = 0; n < listed.length; n++) keys[listed[n]] = true;
      }
      return listed;
    };
    const has = (key) => list() && keys[key] === true;
    const refuse = () => { throw new own.TypeError(title + ' is read-only'); };
    return new own.Proxy(own.create(null), {
      __proto__: null,
      get(_, key) {
        if (typeof key === 'symbol') return undefined;
        return probed[key] && !(key !== 'then' && has(key)) ? undefined : lookUp(key);
      },
      has: (_, key) => typeof key === 'string' && isKnown(key),
      ownKeys: () => own.slice(list()),
      getOwnPropertyDescriptor: (_, key) =>
        typeof key === 'string' && has(key)
          ? { __proto__: null, value: lookUp(key), enumerable: true, configurable: true, writable: false }
          : undefined,
      set: refuse,
      defineProperty: refuse,
      deleteProperty: refuse,
      setPrototypeOf: refuse,
      preventExtensions: refuse,
    });
  }

  const servers = own.create(null);
  function serverObject(index) {
    if (servers[index] !== undefined) return servers[index];
    const title = 'server ' + native.serverName(index);
    return (servers[index] = lazyObject(title, (key) => toolFunction(index, key), () => native.toolNames(index),
      (key) => typeof native.findTool(index, key) === 'number'));
  }

  function toolFunction(index, key) {
    const server = native.serverName(index);
    const found = native.findTool(index, key);
    if (typeof found === 'string') throw notFound(server, key, found);
    const tool = found < 0 ? key : native.toolName(index, found);
    const names = { __proto__: null, server, tool };
    return own.freeze({ __proto__: null, [tool]: (args) => startCall(index, tool, names, args) }[tool]);
  }

  function serverIndex(key) {
    const found = native.findServer(key);
    if (typeof found === 'string') throw notFound(key, '*', found);
    return found;
  }

  // Defines the globals `mcp`, `context`, `bascule` and the servers by name.
  function defineGlobals(contextText) {
    const mcp = lazyObject('mcp', (key) => serverObject(serverIndex(key)), () => native.serverNames(),
      (key) => typeof native.findServer(key) === 'number');
    define(globalThis, 'mcp', mcp);
    const context = own.parse(contextText);
    const indices = native.serverIndices();
    for (let n = 0; n < indices.length; n += 2) {
      const name = indices[n];
      const proxy = serverObject(indices[n + 1]);
      if (!(name in globalThis)) define(globalThis, name, proxy);
      if (!own.hasOwn(context, name)) define(context, name, proxy);
    }
    define(globalThis, 'context', context);
    let ids;
    const helpers = { call: callById, raw: rawResult, sleep, get tools() { return (ids ??= own.freeze(native.toolIds())); } };
    own.defineProperty(globalThis, 'bascule', { __proto__: null, value: own.freeze(helpers), enumerable: false });
  }

  // Returns a thrown value as JSON text with clipped fields.
  const MAX_LENGTH = 65_536;
  function describeError(thrown) {
    try {
      if (own.classOf(thrown) !== '[object Error]' && !(thrown instanceof own.Error)) {
        const message = own.substring('the script threw ' + format(thrown), 0, MAX_LENGTH);
        return own.stringify({ __proto__: null, name: 'Error', message: own.toWellFormed(message) });
      }
      const { name, message, code, stack, toolName, retryable } = thrown;
      const text = (value) =>
        value === undefined || value === null ? undefined : own.toWellFormed(own.substring('' + value, 0, MAX_LENGTH));
      const isFromBridge = own.weakGet(codes, thrown) !== undefined;
      const ownCode = (code) =>
        (typeof code === 'string' && reserved[code] !== true) || typeof code === 'number' ? text(code) : undefined;
      return own.stringify({
        __proto__: null,
        name: text(name) ?? 'Error',
        message: text(message) ?? '',
        code: own.weakGet(codes, thrown) ?? ownCode(code),
        stack: typeof stack === 'string' ? text(stack) : undefined,
        toolName: isFromBridge ? text(toolName) : undefined,
        retryable: isFromBridge ? retryable === true : undefined,
      });
    } catch {
      return own.stringify({ __proto__: null, name: 'Error', message: 'the script threw a value that cannot be described' });
    }
  }

  // Returns the value of the script as JSON text.
  function valueToJson(value) {
    if (value === undefined) return 'null';
    let text;
    try {
      text = own.stringify(value);
    } catch (cause) {
      if (isOutOfMemory(cause)) throw cause;
      throw new own.TypeError('the returned value cannot be converted to JSON: ' + format(cause?.message ?? cause));
    }
    if (typeof text !== 'string') throw new own.TypeError('the returned value cannot be converted to JSON: ' + format(value));
    return text;
  }

  return own.freeze({ __proto__: null, defineGlobals, settleCall, describeError, valueToJson });
}
