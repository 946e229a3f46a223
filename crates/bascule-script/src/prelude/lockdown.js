// Replaces functions that make code from text, and explains the absence of network and module functions.
function (native, own) {
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

  const names = ['fetch', 'require', 'XMLHttpRequest', 'WebSocket', 'EventSource', 'Request', 'Response', 'FormData', 'Worker', 'importScripts', 'alert', 'prompt', 'confirm'];
  for (let n = 0; n < names.length; n++) {
    const refusing = function () { throw new own.Error(native.absence(names[n], undefined)); };
    own.defineProperty(refusing, 'name', { __proto__: null, value: names[n] });
    own.defineProperty(globalThis, names[n], { __proto__: null, value: refusing, writable: true, configurable: true });
  }
}
