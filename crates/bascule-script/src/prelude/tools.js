// Defines tools as functions: `mcp.github.listCommits({ … })`, and `github.listCommits({ … })` if the global name is free.
//
// No code is generated. The native functions look up names; this module has the proxies, the promises and the error class.
function (native, own, stacks, format, sleep, values) {
  'use strict';
  // The calls in flight, by number, and the number of each promise.
  const pending = own.create(null);
  const numbers = new own.WeakMap();
  // The promises of calls that were refused here.
  const refusals = new own.WeakMap();
  const define = (target, name, value) =>
    own.defineProperty(target, name, { __proto__: null, value, writable: true, configurable: true });

  const nothing = own.create(null);
  const RESULTS = 'bascule://results/';
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
    const code = native.refusalCode(server, tool);
    native.refuseCall(server, tool, code, message);
    return newToolError(message, { __proto__: null, server, tool, code, sites });
  }

  // Starts a call. `settleCall` settles its promise; calls may end in any order.
  function startCall(server, tool, names, args, options, third) {
    const sites = stacks.capture(startCall);
    const refuse = (message, cause) => {
      const code = 'INVALID_INPUT';
      native.refuseCall(names.server, names.tool, code, message);
      const signature = native.signature(server, tool);
      const text = signature === undefined ? message : message + '\n  ' + signature;
      const refused = own.reject(newToolError(text, { __proto__: null, ...names, code, cause, sites }));
      own.weakSet(refusals, refused, true);
      return refused;
    };
    // Callbacks of arrays get an index too, those of a Set the value again, and those of a Map the key: all get a third argument.
    if (typeof options === 'object' && options !== null && options !== args && third === undefined) {
      return refuse(quoted(names) + ' takes one argument, the object for the tool, and was not called: there are no options and no signal ' +
        'for a call; the time limit is `timeoutMs` of the script');
    }
    let text;
    try {
      text = args === undefined ? '{}' : values.argumentsToJson(args, quoted(names));
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
    return promiseOf(number, names, sites);
  }

  function promiseOf(number, names, sites, adapt = (value) => value) {
    const promise = new own.Promise((resolve, reject) => {
      pending[number] = { __proto__: null, names, sites, resolve, reject, adapt, raw: undefined };
    });
    own.weakSet(numbers, promise, number);
    return promise;
  }

  // Returns a result that was too long for an earlier answer to this client, by its id or by the URI of its resource.
  function keptResult(id) {
    if (typeof id === 'string' && own.startsWith(id, RESULTS)) id = own.split(own.substring(id, RESULTS.length), '?')[0];
    const names = { __proto__: null, server: 'bascule', tool: 'result' };
    const number = native.callHost('result', own.stringify({ __proto__: null, id: own.toWellFormed(own.String(id)) }));
    return promiseOf(number, names, stacks.capture(keptResult));
  }

  // Asks the bridge about tools: `mcp.search(intent, { k, detail })` and `mcp.describe(tools, { format })`. Both also take one
  // object. The answer is a list, which is also its own field `tools`, as in the answers of the bridge's MCP tools.
  function askBridge(name, key, subject, options) {
    const sites = stacks.capture(askBridge);
    const names = { __proto__: null, server: 'mcp', tool: name };
    const isWhole = typeof subject === 'object' && subject !== null && !own.isArray(subject) && !own.hasOwn(subject, 'id');
    const query = isWhole ? subject : { __proto__: null, [key]: subject, ...options };
    let number;
    try {
      number = native.callHost(name, values.argumentsToJson(query, 'mcp.' + name));
    } catch (cause) {
      if (isOutOfMemory(cause)) throw cause;
    }
    if (number === undefined) {
      const message = 'the arguments of `mcp.' + name + '` cannot be converted to JSON';
      return own.reject(newToolError(message, { __proto__: null, ...names, code: 'INVALID_INPUT', sites }));
    }
    return promiseOf(number, names, sites, (list) => own.defineProperty(list, 'tools', { __proto__: null, value: list }));
  }
  const queries = own.create(null);
  queries.search = (intent, options) => askBridge('search', 'intent', intent, options);
  queries.describe = (tools, options) => askBridge('describe', 'tools', tools, options);

  // Returns the calls in flight, each with its tool and the line of the script that made it.
  function pendingCalls() {
    const all = [];
    for (const number in pending) {
      const { names, sites } = pending[number];
      own.push(all, [names.server + ':' + names.tool, stacks.firstLine(sites)]);
    }
    return own.stringify(all);
  }

  // Scripts may parse a result that is data already because its text was JSON: `JSON.parse` returns it as it is.
  const fromText = new own.WeakMap();
  const asData = (value) => {
    if (typeof value === 'object' && value !== null) own.weakSet(fromText, value, true);
    return value;
  };
  const MAX_SHOWN = 40;
  const keysText = (value) => (own.isArray(value) ? 'an array' : 'an object with `' + own.join(own.slice(own.keysOf(value), 0, 10), '`, `') + '`');
  function whyNotJson(text, reason) {
    if (typeof text === 'object' && text !== null) return 'JSON.parse takes text, and was given ' + keysText(text);
    if (text === undefined) return 'JSON.parse takes text, and was given undefined';
    const start = own.String(text);
    const shown = own.stringify(own.toWellFormed(own.substring(start, 0, MAX_SHOWN)));
    return reason + ' (the text is ' + (start.length > MAX_SHOWN ? own.substring(shown, 0, shown.length - 1) + '…"' : shown) + ')';
  }
  function parse(text, reviver) {
    const isData = typeof text === 'object' && text !== null && own.weakGet(fromText, text) === true;
    if (isData && typeof reviver !== 'function') return text;
    try {
      return own.parse(isData ? own.stringify(text) : text, reviver);
    } catch (error) {
      if (!(error instanceof own.SyntaxError)) throw error;
      throw new own.SyntaxError(whyNotJson(text, error.message));
    }
  }
  define(JSON, 'parse', parse);

  // Settles a call with its result. `kind` is the kind of `payload`: error, failed, json, data (text that was JSON) or text.
  function settleCall(number, kind, payload, rawResult, advice) {
    const call = pending[number];
    if (call === undefined) return;
    delete pending[number];
    const { raw } = call;
    try {
      if (kind === 'error') throw bridgeError(call, own.parse(payload), advice);
      if (raw !== undefined) raw.resolve(own.parse(rawResult));
      if (kind === 'text') call.resolve(payload);
      else if (kind === 'json') call.resolve(call.adapt(own.parse(payload)));
      else if (kind === 'data') call.resolve(asData(own.parse(payload)));
      else throw toolError(call, payload, own.parse(rawResult), advice);
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

  // Returns the message with the tool that it is about, and advice.
  const about = ({ server, tool }, message, advice) =>
    (own.indexOf(message, server + ':' + tool) >= 0 ? message : server + ':' + tool + ': ' + message) + (advice ?? '');

  function bridgeError({ names, sites }, error, advice) {
    own.setPrototypeOf(error, null);
    const { code, message, retryable, ...rest } = error;
    const data = ownField(ownField(error, 'providerError'), 'data') ?? rest;
    return newToolError(about(names, message, advice), { __proto__: null, ...names, code, retryable, data, cause: error, sites });
  }

  function toolError({ names, sites }, message, result, advice) {
    const data = ownField(result, 'structuredContent') ?? ownField(result, 'content');
    return newToolError(about(names, message, advice), { __proto__: null, ...names, code: 'TOOL_ERROR', data, cause: result, sites });
  }

  const PASS_THE_CALL = 'the call itself, and was given its value: pass the call itself, without `await`: `bascule.raw(server.tool({ … }))`';
  const isObject = (value) => typeof value === 'object' && value !== null;
  const isPromise = (value) => isObject(value) && own.classOf(value) === '[object Promise]';
  // Unknown servers and tools are refused with their own reason.
  const isLikeId = (text) => native.splitId(text) !== undefined && !own.test(/\s/, text);

  // Returns the whole result of a call in flight, or calls a tool (a function or an id) and returns its whole result.
  function rawResult(call, args, options) {
    // The value of a call may be text.
    if (typeof call === 'string' && args === undefined && !isLikeId(call)) {
      return own.reject(new own.TypeError('bascule.raw takes ' + PASS_THE_CALL));
    }
    const promise = typeof call === 'function' ? call(args, options) : typeof call === 'string' ? callById(call, args, options) : call;
    const number = isObject(promise) ? own.weakGet(numbers, promise) : undefined;
    const entry = number === undefined ? undefined : pending[number];
    if (entry === undefined) {
      if (isObject(promise) && own.weakGet(refusals, promise) === true) return promise;
      const advice = isPromise(promise) ? 'a call in flight, or a tool and its arguments' : PASS_THE_CALL;
      return own.reject(new own.TypeError('bascule.raw takes ' + advice));
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

  // Calls a tool by its id, which works for every name, or by another of its spellings.
  function callById(id, args, options) {
    const parts = typeof id === 'string' ? native.splitId(id) : undefined;
    if (parts === undefined) throw new own.TypeError('bascule.call takes a tool id such as `server:tool`, not `' + format(id) + '`');
    return toolFunction(serverIndex(parts[0], parts[1]), parts[1])(args, options);
  }

  // Properties that JavaScript and its libraries read from any object. Reading them gives undefined instead of an error.
  const probed = own.create(null);
  const probes = native.probes();
  for (let n = 0; n < probes.length; n++) probed[probes[n]] = true;

  // Returns a read-only object whose properties are looked up when they are read. It can be called if `target` is a function.
  function lazyObject(title, find, names, isKnown, target = own.create(null)) {
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
    return new own.Proxy(target, {
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
    return servers[index] ?? (servers[index] = newServerObject(index));
  }

  function newServerObject(index, target) {
    const title = 'server ' + native.serverName(index);
    return lazyObject(title, (key) => toolFunction(index, key), () => native.toolNames(index),
      (key) => typeof native.findTool(index, key) === 'number', target);
  }

  // Returns a member of `mcp`. A server that is named like a query has its tools as members of the query's function.
  function serverOrQuery(key) {
    const query = queries[key];
    if (query === undefined) return serverObject(serverIndex(key));
    const index = native.findServer(key);
    return typeof index === 'number' ? newServerObject(index, query) : own.freeze(query);
  }

  function toolFunction(index, key) {
    const server = native.serverName(index);
    const found = native.findTool(index, key);
    if (typeof found === 'string') throw notFound(server, key, found);
    const tool = found < 0 ? key : native.toolName(index, found);
    const names = { __proto__: null, server, tool };
    return own.freeze({ __proto__: null, [tool]: (args, options, third) => startCall(index, tool, names, args, options, third) }[tool]);
  }

  // `tool` is the tool that the script wants, as far as that is known.
  function serverIndex(key, tool = '*') {
    const found = native.findServer(key);
    if (typeof found === 'string') throw notFound(key, tool, found);
    return found;
  }

  // Defines the globals `mcp`, `context`, `bascule` and the servers by name.
  function defineGlobals(contextText) {
    const mcp = lazyObject('mcp', serverOrQuery, () => native.serverNames(),
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
    const { search, describe } = queries;
    const helpers = { call: callById, raw: rawResult, result: keptResult, search, describe, sleep, get tools() { return (ids ??= own.freeze(native.toolIds())); } };
    own.defineProperty(globalThis, 'bascule', { __proto__: null, value: own.freeze(helpers), enumerable: false });
  }

  const isError = (value) => own.classOf(value) === '[object Error]' || value instanceof own.Error;
  const oneLine = (value) => own.substring(isError(value) ? value.name + ': ' + value.message : format(value), 0, 1000);

  // Returns the cause of an error and the errors that it collects, as text to append to its message.
  function reasons(error, depth) {
    // The message of a failed call tells its cause.
    if (depth === 0 || own.weakGet(codes, error) !== undefined) return '';
    let text = '';
    if (own.isArray(error.errors)) {
      const count = error.errors.length;
      for (let n = 0; n < own.min(count, 10); n++) text += '; [' + (n + 1) + '] ' + oneLine(error.errors[n]);
      if (count > 10) text += '; and ' + (count - 10) + ' more errors';
    }
    const { cause } = error;
    if (cause !== undefined) text += '; caused by ' + oneLine(cause) + (isError(cause) ? reasons(cause, depth - 1) : '');
    return text;
  }

  // Returns the name of an error, or of its class if the class has given it none.
  function nameOf({ name, constructor }) {
    const given = name === 'Error' && typeof constructor === 'function' ? constructor.name : name;
    return typeof given === 'string' && given !== '' ? given : name;
  }

  // Returns a thrown value as JSON text with clipped fields.
  const MAX_LENGTH = 65_536;
  function describeError(thrown) {
    try {
      if (!isError(thrown)) {
        const value = typeof thrown === 'string' ? own.stringify(own.toWellFormed(thrown)) : format(thrown);
        const message = own.substring('the script threw ' + value, 0, MAX_LENGTH);
        return own.stringify({ __proto__: null, name: 'Error', message: own.toWellFormed(message) });
      }
      const { message, code, stack, toolName, retryable } = thrown;
      const name = nameOf(thrown);
      const text = (value) =>
        value === undefined || value === null ? undefined : own.toWellFormed(own.substring('' + value, 0, MAX_LENGTH));
      const isFromBridge = own.weakGet(codes, thrown) !== undefined;
      const details = reasons(thrown, 3);
      const heading = text(name) + (text(message) ? ': ' + text(message) : '');
      // The stack has the name and message that the error had when it was made.
      const withDetails = (stack) => {
        const first = own.startsWith(stack, heading) ? heading.length : own.indexOf(stack, '\n    at ');
        const isHeading = first >= 0 && (own.startsWith(stack, heading) || own.startsWith(stack, 'Error'));
        return isHeading ? heading + details + own.substring(stack, first, stack.length) : stack;
      };
      const ownCode = (code) =>
        (typeof code === 'string' && reserved[code] !== true) || typeof code === 'number' ? text(code) : undefined;
      return own.stringify({
        __proto__: null,
        name: text(name) ?? 'Error',
        message: text((message ?? '') + details),
        code: own.weakGet(codes, thrown) ?? ownCode(code),
        stack: typeof stack === 'string' ? text(withDetails(stack)) : undefined,
        toolName: isFromBridge ? text(toolName) : undefined,
        retryable: isFromBridge ? retryable === true : undefined,
      });
    } catch {
      return own.stringify({ __proto__: null, name: 'Error', message: 'the script threw a value that cannot be described' });
    }
  }

  return own.freeze({ __proto__: null, defineGlobals, settleCall, describeError, pendingCalls });
}
