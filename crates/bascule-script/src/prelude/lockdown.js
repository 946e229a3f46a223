// What scripts do without: making code of text, and the ways out that other runtimes have.
function (own) {
  'use strict';
  const kinds = [
    [function () {}, 'Function'],
    [async function () {}, 'AsyncFunction'],
    [function* () {}, 'GeneratorFunction'],
    [async function* () {}, 'AsyncGeneratorFunction'],
  ];
  const no = (what) => function () { throw new own.TypeError('' + what + ' is not available: scripts make no code of text'); };
  for (let n = 0; n < kinds.length; n++) {
    const proto = own.getPrototypeOf(kinds[n][0]);
    const name = kinds[n][1];
    const refusing = no('the ' + name + ' constructor');
    own.defineProperty(refusing, 'name', { __proto__: null, value: name });
    own.defineProperty(refusing, 'prototype', { __proto__: null, value: proto, writable: false });
    own.defineProperty(proto, 'constructor', { __proto__: null, value: refusing, writable: false, configurable: false });
    if (name === 'Function') own.defineProperty(globalThis, 'Function', { __proto__: null, value: refusing, writable: false, configurable: false });
  }
  own.defineProperty(globalThis, 'eval', { __proto__: null, value: no('eval'), writable: false, configurable: false });

  const absent = {
    fetch: 'fetch is not available: scripts reach the world through tools alone, such as mcp.SERVER.TOOL({ … })',
    require: 'require is not available: tools are on mcp, helpers on bascule, and nothing else is there',
    XMLHttpRequest: 'XMLHttpRequest is not available: scripts reach the world through tools alone',
    WebSocket: 'WebSocket is not available: scripts reach the world through tools alone',
  };
  const names = own.keysOf(absent);
  for (let n = 0; n < names.length; n++) {
    const refusing = function () { throw new own.Error(absent[names[n]]); };
    own.defineProperty(refusing, 'name', { __proto__: null, value: names[n] });
    own.defineProperty(globalThis, names[n], { __proto__: null, value: refusing, writable: true, configurable: true });
  }
}
