// Replaces functions that make code from text, and explains the absence of network and module functions.
function (own) {
  'use strict';
  const kinds = [
    [function () {}, 'Function'],
    [async function () {}, 'AsyncFunction'],
    [function* () {}, 'GeneratorFunction'],
    [async function* () {}, 'AsyncGeneratorFunction'],
  ];
  const disabled = (what) => function () { throw new own.TypeError('' + what + ' is not available: scripts cannot create code from text'); };
  for (let n = 0; n < kinds.length; n++) {
    const proto = own.getPrototypeOf(kinds[n][0]);
    const name = kinds[n][1];
    const refusing = disabled('the ' + name + ' constructor');
    own.defineProperty(refusing, 'name', { __proto__: null, value: name });
    own.defineProperty(refusing, 'prototype', { __proto__: null, value: proto, writable: false });
    own.defineProperty(proto, 'constructor', { __proto__: null, value: refusing, writable: false, configurable: false });
    if (name === 'Function') own.defineProperty(globalThis, 'Function', { __proto__: null, value: refusing, writable: false, configurable: false });
  }
  own.defineProperty(globalThis, 'eval', { __proto__: null, value: disabled('eval'), writable: false, configurable: false });

  const absent = {
    fetch: 'fetch is not available: scripts have no network; call a tool instead, such as mcp.SERVER.TOOL({ … })',
    require: 'require is not available: scripts cannot import modules; call tools through mcp and use the helpers on bascule',
    XMLHttpRequest: 'XMLHttpRequest is not available: scripts have no network; call a tool instead',
    WebSocket: 'WebSocket is not available: scripts have no network; call a tool instead',
    EventSource: 'EventSource is not available: scripts have no network; call a tool instead',
    Request: 'Request is not available: scripts have no network; call a tool instead',
    Response: 'Response is not available: scripts have no network; call a tool instead',
    FormData: 'FormData is not available: scripts have no network; pass an object to a tool',
    Worker: 'Worker is not available: a script has one thread; run calls at once with Promise.all',
    importScripts: 'importScripts is not available: scripts cannot import modules',
    alert: 'alert is not available: use console.log',
    prompt: 'prompt is not available: pass input as `context`',
    confirm: 'confirm is not available: pass input as `context`',
  };
  const names = own.keysOf(absent);
  for (let n = 0; n < names.length; n++) {
    const refusing = function () { throw new own.Error(absent[names[n]]); };
    own.defineProperty(refusing, 'name', { __proto__: null, value: names[n] });
    own.defineProperty(globalThis, names[n], { __proto__: null, value: refusing, writable: true, configurable: true });
  }
}
