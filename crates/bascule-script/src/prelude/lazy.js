// Defines globals that are loaded when a script first uses them: most scripts do not.
function (native, own) {
  'use strict';
  const loaded = own.create(null);
  const load = (name) => (loaded[name] ??= native.load(name)(native, own));
  const set = (target, name, value) => own.defineProperty(target, name, { __proto__: null, value, writable: true, configurable: true });

  function lazy(name, module) {
    own.defineProperty(globalThis, name, {
      __proto__: null,
      configurable: true,
      get: () => { const value = load(module)[name]; set(globalThis, name, value); return value; },
      set: (value) => set(globalThis, name, value),
    });
  }
  const binary = ['Buffer', 'Blob', 'Headers', 'AbortController', 'AbortSignal'];
  for (let n = 0; n < binary.length; n++) lazy(binary[n], 'binary');
  lazy('Intl', 'intl');

  // ---- functions of the language that depend on a locale ---------------------------------------------------------
  const formatDate = (date, locales, options, needed, defaults) => load('intl').formatDate(own.getTime(date), locales, options, needed, defaults);
  const methods = {
    __proto__: null,
    date: {
      toLocaleString(locales, options) { return formatDate(this, locales, options, 'any', 'all'); },
      toLocaleDateString(locales, options) { return formatDate(this, locales, options, 'date', 'date'); },
      toLocaleTimeString(locales, options) { return formatDate(this, locales, options, 'time', 'time'); },
    },
    number: { toLocaleString(locales, options) { return load('intl').formatNumber(own.numberOf(this), locales, options); } },
    bigint: { toLocaleString(locales, options) { return load('intl').formatNumber(own.bigintOf(this), locales, options); } },
    string: {
      localeCompare(other, locales, options) {
        if (this === undefined || this === null) throw new own.TypeError('String.prototype.localeCompare called on null or undefined');
        return load('intl').compare(own.String(this), own.String(other), locales, options);
      },
      toLocaleLowerCase() { return own.toLowerCase(own.String(this)); },
      toLocaleUpperCase() { return own.toUpperCase(own.String(this)); },
    },
  };
  const prototypes = { __proto__: null, date: own.Date.prototype, number: own.Number.prototype, bigint: own.BigInt.prototype, string: own.String.prototype };
  for (const kind in methods) {
    const names = own.keysOf(methods[kind]);
    for (let n = 0; n < names.length; n++) set(prototypes[kind], names[n], methods[kind][names[n]]);
  }
}
