// Tools as functions: `mcp.github.listCommits({ … })`, and `github.listCommits({ … })` where that name is free.
//
// Everything is made of data. Names are looked up by the worker, which knows every spelling; here is only what must be
// JavaScript: the proxies, the promises, and the error that a failed call throws.
function (native, own, stacks, shown, sleep) {
  'use strict';
  const open = own.create(null);
  const numbers = new own.WeakMap();
  const define = (target, name, value) =>
    own.defineProperty(target, name, { __proto__: null, value, writable: true, configurable: true });

  const nothing = own.create(null);
  class MCPToolError extends own.Error {
    // Fields are defined, not assigned: a script may have put setters where assignments look for them.
    constructor(message, { server, tool, code, data, retryable = false, cause, trail } = nothing) {
      super(message);
      define(this, 'name', 'MCPToolError');
      const show = (name, value) =>
        own.defineProperty(this, name, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
      show('toolName', server === undefined ? undefined : server + ':' + tool);
      show('server', server);
      show('tool', tool);
      show('code', code);
      show('retryable', retryable);
      if (data !== undefined) show('data', data);
      if (cause !== undefined) define(this, 'cause', cause);
      if (trail !== undefined) define(this, 'stack', stacks.at(this, trail));
    }
  }
  own.freeze(MCPToolError);
  define(globalThis, 'MCPToolError', MCPToolError);

  // The engine's own words. They are not ours to reword: the worker looks for them.
  const isOutOfMemory = (thrown) => thrown === null || thrown?.message === 'out of memory';

  function miss(server, tool, message) {
    return new MCPToolError(message, { __proto__: null, server, tool, code: 'TOOL_NOT_FOUND', trail: stacks.trail(miss) });
  }

  // One call. Its promise is settled by `settle`, later, in any order.
  function begin(server, tool, names, args) {
    const trail = stacks.trail(begin);
    const refuse = (message, cause) =>
      own.reject(new MCPToolError(message, { __proto__: null, ...names, code: 'INVALID_INPUT', cause, trail }));
    let text;
    try {
      text = args === undefined ? '{}' : own.stringify(args);
    } catch (cause) {
      if (isOutOfMemory(cause)) throw cause;
      return refuse('the arguments of `' + names.server + ':' + names.tool + '` are no JSON: ' + shown(cause?.message), cause);
    }
    if (typeof text !== 'string' || text[0] !== '{') {
      return refuse('the arguments of `' + names.server + ':' + names.tool + '` must be one object, such as { path: "a" }');
    }
    let number;
    try {
      number = native.call(server, tool, text);
    } catch (cause) {
      return refuse('`' + names.server + ':' + names.tool + '` was not called: ' + shown(cause?.message), cause);
    }
    const promise = new own.Promise((resolve, reject) => {
      open[number] = { __proto__: null, names, trail, resolve, reject, wholes: undefined };
    });
    own.weakSet(numbers, promise, number);
    return promise;
  }

  // The worker has the answer: `kind` says what `payload` is.
  function settle(number, kind, payload, whole) {
    const call = open[number];
    if (call === undefined) return;
    delete open[number];
    const { wholes } = call;
    try {
      if (kind === 'error') throw bridgeError(call, own.parse(payload));
      if (wholes !== undefined) wholes.resolve(own.parse(whole));
      if (kind === 'text') call.resolve(payload);
      else if (kind === 'json') call.resolve(own.parse(payload));
      else throw toolError(call, payload, own.parse(whole));
    } catch (thrown) {
      const error = thrown instanceof MCPToolError || isOutOfMemory(thrown) ? thrown : unreadable(call, thrown);
      call.reject(error);
      if (wholes !== undefined) wholes.reject(error);
    }
  }

  function unreadable({ names, trail }, cause) {
    const said = 'the result of `' + names.server + ':' + names.tool + '` cannot be read: ' + shown(cause?.message);
    return new MCPToolError(said, { __proto__: null, ...names, code: 'INVALID_OUTPUT', cause, trail });
  }

  // Of data only what it has itself: a script may have given every object more.
  const field = (data, name) =>
    typeof data === 'object' && data !== null && own.hasOwn(data, name) ? data[name] : undefined;

  function bridgeError({ names, trail }, said) {
    own.setPrototypeOf(said, null);
    const { code, message, retryable, ...rest } = said;
    const data = field(field(said, 'providerError'), 'data') ?? rest;
    return new MCPToolError(message, { __proto__: null, ...names, code, retryable, data, cause: said, trail });
  }

  function toolError({ names, trail }, complaint, result) {
    const data = field(result, 'structuredContent') ?? field(result, 'content');
    return new MCPToolError(complaint, { __proto__: null, ...names, code: 'TOOL_ERROR', data, cause: result, trail });
  }

  // The whole result of a call: of one that has just been made, of a tool, or of a tool's id.
  function raw(what, args) {
    const promise = typeof what === 'function' ? what(args) : typeof what === 'string' ? callById(what, args) : what;
    const number = typeof promise === 'object' && promise !== null ? own.weakGet(numbers, promise) : undefined;
    const call = number === undefined ? undefined : open[number];
    if (call === undefined) {
      return own.reject(new own.TypeError('bascule.raw takes a tool and its arguments, or a call that is under way'));
    }
    if (call.wholes !== undefined) return call.wholes.promise;
    native.wantWhole(number);
    // Whoever wants the whole hears of a failure by that. `then` asks the script's own classes, which may refuse.
    try { own.then(promise, undefined, () => {}); } catch {}
    const wholes = { __proto__: null };
    wholes.promise = new own.Promise((resolve, reject) => { wholes.resolve = resolve; wholes.reject = reject; });
    call.wholes = wholes;
    return wholes.promise;
  }

  // By its id every tool can be called, whatever it is called.
  function callById(id, args) {
    const colon = typeof id === 'string' ? own.indexOf(id, ':') : -1;
    if (colon < 0) throw new own.TypeError('a tool\'s id is written `server:tool`, not `' + shown(id) + '`');
    return toolOf(placeOf(own.substring(id, 0, colon)), own.substring(id, colon + 1))(args);
  }

  // What JavaScript and its libraries look for on any object. None of them is ever a miss.
  const quiet = own.create(null);
  const probes = ['then', 'catch', 'finally', 'toJSON', 'toString', 'valueOf', 'constructor', 'prototype', '__proto__',
    'inspect', 'length', 'nodeType', 'asymmetricMatch', '$$typeof', '@@iterator', 'hasOwnProperty'];
  for (let n = 0; n < probes.length; n++) quiet[probes[n]] = true;

  // An object whose properties are found when they are asked for, and cannot be changed.
  function catalogue(title, find, names, isKnown) {
    const known = own.create(null);
    const lookUp = (key) => known[key] ?? (known[key] = find(key));
    // What there is does not change while a script runs.
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
    const refuse = () => { throw new own.TypeError(title + ' cannot be changed'); };
    return new own.Proxy(own.create(null), {
      __proto__: null,
      get(_, key) {
        if (typeof key === 'symbol') return undefined;
        return quiet[key] && !(key !== 'then' && has(key)) ? undefined : lookUp(key);
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
  function server(place) {
    if (servers[place] !== undefined) return servers[place];
    const title = 'server ' + native.serverName(place);
    return (servers[place] = catalogue(title, (key) => toolOf(place, key), () => native.toolNames(place),
      (key) => typeof native.findTool(place, key) === 'number'));
  }

  function toolOf(place, key) {
    const server = native.serverName(place);
    const found = native.findTool(place, key);
    if (typeof found === 'string') throw miss(server, key, found);
    const tool = found < 0 ? key : native.toolName(place, found);
    const names = { __proto__: null, server, tool };
    return own.freeze({ __proto__: null, [tool]: (args) => begin(place, tool, names, args) }[tool]);
  }

  function placeOf(key) {
    const found = native.findServer(key);
    if (typeof found === 'string') throw miss(key, '*', found);
    return found;
  }

  // The script's world: `mcp`, the servers by their names, `context`, and our helpers.
  function furnish(contextText) {
    const mcp = catalogue('mcp', (key) => server(placeOf(key)), () => native.serverNames(),
      (key) => typeof native.findServer(key) === 'number');
    define(globalThis, 'mcp', mcp);
    const context = own.parse(contextText);
    const places = native.serverPlaces();
    for (let n = 0; n < places.length; n += 2) {
      const name = places[n];
      const proxy = server(places[n + 1]);
      if (!(name in globalThis)) define(globalThis, name, proxy);
      if (!own.hasOwn(context, name)) define(context, name, proxy);
    }
    define(globalThis, 'context', context);
    let ids;
    const helpers = { call: callById, raw, sleep, get tools() { return (ids ??= own.freeze(native.toolIds())); } };
    own.defineProperty(globalThis, 'bascule', { __proto__: null, value: own.freeze(helpers), enumerable: false });
  }

  // What a script threw, as data, cut where nobody reads on.
  const LONGEST = 65_536;
  function describe(thrown) {
    try {
      if (own.classOf(thrown) !== '[object Error]' && !(thrown instanceof own.Error)) {
        const message = own.substring('the script threw ' + shown(thrown), 0, LONGEST);
        return own.stringify({ __proto__: null, name: 'Error', message: own.toWellFormed(message) });
      }
      const { name, message, code, stack, toolName, retryable } = thrown;
      const text = (value) =>
        value === undefined || value === null ? undefined : own.toWellFormed(own.substring('' + value, 0, LONGEST));
      return own.stringify({
        __proto__: null,
        name: text(name) ?? 'Error',
        message: text(message) ?? '',
        code: typeof code === 'string' || typeof code === 'number' ? text(code) : undefined,
        stack: typeof stack === 'string' ? text(stack) : undefined,
        toolName: thrown instanceof MCPToolError ? text(toolName) : undefined,
        retryable: thrown instanceof MCPToolError ? retryable === true : undefined,
      });
    } catch {
      return own.stringify({ __proto__: null, name: 'Error', message: 'the script threw something that cannot be described' });
    }
  }

  // What a script returned, as JSON text.
  function valueText(value) {
    if (value === undefined) return 'null';
    let text;
    try {
      text = own.stringify(value);
    } catch (cause) {
      if (isOutOfMemory(cause)) throw cause;
      throw new own.TypeError('the script\'s value is no JSON: ' + shown(cause?.message ?? cause));
    }
    if (typeof text !== 'string') throw new own.TypeError('the script\'s value is no JSON: it is ' + shown(value));
    return text;
  }

  return own.freeze({ __proto__: null, furnish, settle, describe, valueText });
}
