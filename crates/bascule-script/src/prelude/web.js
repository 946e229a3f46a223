// Defines the web APIs that scripts expect: structuredClone, TextEncoder, TextDecoder, URL, URLSearchParams, crypto.
function (native, own) {
  'use strict';
  const define = (name, value) =>
    own.defineProperty(globalThis, name, { __proto__: null, value, writable: true, configurable: true });

  // ---- structuredClone -------------------------------------------------------------------------------------------
  const cannotClone = (what) => new own.DOMException(what + ' could not be cloned', 'DataCloneError');
  const errorKinds = { __proto__: null, Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

  function clone(value, seen) {
    if (typeof value === 'function' || typeof value === 'symbol') throw cannotClone('a ' + (typeof value));
    if (typeof value !== 'object' || value === null) return value;
    if (own.mapHas(seen, value)) return own.mapGet(seen, value);
    const keep = (copy) => { own.mapSet(seen, value, copy); return copy; };
    switch (own.classOf(value)) {
      case '[object Date]': return keep(new own.Date(own.getTime(value)));
      case '[object RegExp]': return keep(new own.RegExp(value.source, value.flags));
      case '[object ArrayBuffer]': return keep(own.sliceBuffer(value, 0));
      case '[object Map]': return cloneMap(value, keep(new own.Map()), seen);
      case '[object Set]': return cloneSet(value, keep(new own.Set()), seen);
      case '[object Error]': return cloneError(value, keep, seen);
      case '[object Boolean]': case '[object Number]': case '[object String]': return keep(Object(value.valueOf()));
      case '[object Promise]': case '[object WeakMap]': case '[object WeakSet]': case '[object WeakRef]':
        throw cannotClone(own.classOf(value));
    }
    if (own.isView(value)) {
      const buffer = clone(value.buffer, seen);
      return keep(new value.constructor(buffer, value.byteOffset, value.length ?? value.byteLength));
    }
    return cloneProperties(value, keep(own.isArray(value) ? new own.Array(value.length) : {}), seen);
  }

  function cloneProperties(from, to, seen) {
    const keys = own.keysOf(from);
    for (let n = 0; n < keys.length; n++) {
      const value = clone(from[keys[n]], seen);
      own.defineProperty(to, keys[n], { __proto__: null, value, writable: true, enumerable: true, configurable: true });
    }
    return to;
  }

  function cloneMap(from, to, seen) {
    own.mapEach(from, (value, key) => { own.mapSet(to, clone(key, seen), clone(value, seen)); });
    return to;
  }

  function cloneSet(from, to, seen) {
    own.setEach(from, (value) => { own.setAdd(to, clone(value, seen)); });
    return to;
  }

  function cloneError(from, keep, seen) {
    const Kind = errorKinds[from.name] ?? errorKinds.Error;
    const copy = keep(new Kind(from.message));
    own.defineProperty(copy, 'stack', { __proto__: null, value: from.stack, writable: true, configurable: true });
    if (own.hasOwn(from, 'cause')) {
      own.defineProperty(copy, 'cause', { __proto__: null, value: clone(from.cause, seen), writable: true, configurable: true });
    }
    return copy;
  }

  define('structuredClone', function structuredClone(value) { return clone(value, new own.Map()); });

  // ---- text ------------------------------------------------------------------------------------------------------
  const bytesOf = (data) => {
    if (data === undefined) return new own.Uint8Array(0);
    if (own.isView(data)) return new own.Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (own.classOf(data) === '[object ArrayBuffer]') return new own.Uint8Array(data);
    throw new own.TypeError('expected an ArrayBuffer or a view of one');
  };

  // Returns a string with one character for each byte.
  const bytesToString = (bytes) => {
    let text = '';
    for (let n = 0; n < bytes.length; n += 8192) text += own.apply(own.fromCharCode, undefined, own.subarray(bytes, n, n + 8192));
    return text;
  };

  define('TextEncoder', class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(text = '') { return native.encode(own.toWellFormed('' + text)); }
    encodeInto(text, target) {
      let read = 0;
      let written = 0;
      for (const character of own.toWellFormed('' + text)) {
        const bytes = native.encode(character);
        if (written + bytes.length > target.length) break;
        own.putBytes(target, bytes, written);
        read += character.length;
        written += bytes.length;
      }
      return { read, written };
    }
  });

  const encodings = {
    __proto__: null, 'utf-8': 'utf-8', utf8: 'utf-8', 'utf-16le': 'utf-16le', 'utf-16': 'utf-16le',
    latin1: 'latin1', 'iso-8859-1': 'latin1', ascii: 'latin1', 'us-ascii': 'latin1',
  };
  define('TextDecoder', class TextDecoder {
    #encoding; #fatal; #keepBom; #rest = new own.Uint8Array(0);
    constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
      this.#encoding = encodings[own.toLowerCase('' + label)];
      if (this.#encoding === undefined) throw new own.RangeError('unsupported encoding `' + label + '`: use utf-8, utf-16le or latin1');
      this.#fatal = !!fatal;
      this.#keepBom = !!ignoreBOM;
    }
    get encoding() { return this.#encoding; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#keepBom; }
    decode(data, { stream = false } = {}) {
      const more = bytesOf(data);
      const all = new own.Uint8Array(this.#rest.length + more.length);
      own.putBytes(all, this.#rest, 0);
      own.putBytes(all, more, this.#rest.length);
      const decoded = native.decode(bytesToString(all), this.#encoding, this.#fatal, this.#keepBom, !!stream);
      if (decoded[0] === undefined) throw new own.TypeError('the bytes are not valid ' + this.#encoding);
      this.#rest = new own.Uint8Array(all.buffer, decoded[1]);
      return decoded[0];
    }
  });

  // ---- URL -------------------------------------------------------------------------------------------------------
  const PARTS = ['href', 'origin', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname',
    'search', 'hash'];

  class URLSearchParams {
    #pairs = [];
    // Called with the new query after each change, if this belongs to a URL.
    #onChange;
    constructor(init = '') {
      if (typeof init === 'object' && init !== null) {
        if (typeof init[Symbol.iterator] === 'function') for (const [name, value] of init) this.append(name, value);
        else for (const name of own.keysOf(init)) this.append(name, init[name]);
      } else {
        this.#pairs = native.parseQuery(own.toWellFormed('' + init));
      }
    }
    static of(query, onChange) {
      const params = new URLSearchParams(query);
      params.#onChange = onChange;
      return params;
    }
    #notify() { if (this.#onChange !== undefined) this.#onChange(this.toString()); }
    #matches(name, value) {
      return (pair) => pair[0] === ('' + name) && (value === undefined || pair[1] === ('' + value));
    }
    get size() { return this.#pairs.length; }
    append(name, value) {
      own.push(this.#pairs, [own.toWellFormed('' + name), own.toWellFormed('' + value)]);
      this.#notify();
    }
    delete(name, value) {
      const isRemoved = this.#matches(name, value);
      const kept = [];
      for (let n = 0; n < this.#pairs.length; n++) if (!isRemoved(this.#pairs[n])) own.push(kept, this.#pairs[n]);
      this.#pairs = kept;
      this.#notify();
    }
    get(name) { return this.getAll(name)[0] ?? null; }
    getAll(name) {
      const found = [];
      for (let n = 0; n < this.#pairs.length; n++) {
        if (this.#pairs[n][0] === ('' + name)) own.push(found, this.#pairs[n][1]);
      }
      return found;
    }
    has(name, value) {
      const isWanted = this.#matches(name, value);
      for (let n = 0; n < this.#pairs.length; n++) if (isWanted(this.#pairs[n])) return true;
      return false;
    }
    set(name, value) {
      const kept = [];
      let placed = false;
      for (let n = 0; n < this.#pairs.length; n++) {
        const pair = this.#pairs[n];
        if (pair[0] !== ('' + name)) own.push(kept, pair);
        else if (!placed) { own.push(kept, [pair[0], own.toWellFormed('' + value)]); placed = true; }
      }
      if (!placed) own.push(kept, [own.toWellFormed('' + name), own.toWellFormed('' + value)]);
      this.#pairs = kept;
      this.#notify();
    }
    sort() {
      own.sort(this.#pairs, (a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
      this.#notify();
    }
    forEach(callback, self) {
      for (let n = 0; n < this.#pairs.length; n++) {
        own.apply(callback, self, [this.#pairs[n][1], this.#pairs[n][0], this]);
      }
    }
    *entries() { for (let n = 0; n < this.#pairs.length; n++) yield [this.#pairs[n][0], this.#pairs[n][1]]; }
    *keys() { for (let n = 0; n < this.#pairs.length; n++) yield this.#pairs[n][0]; }
    *values() { for (let n = 0; n < this.#pairs.length; n++) yield this.#pairs[n][1]; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return native.formatQuery(this.#pairs); }
    get [Symbol.toStringTag]() { return 'URLSearchParams'; }
  }
  const paramsOf = URLSearchParams.of;
  delete URLSearchParams.of;
  define('URLSearchParams', URLSearchParams);

  class URL {
    #parts;
    #query;
    constructor(url, base) {
      const text = own.toWellFormed(own.String(url));
      this.#parts = native.parseUrl(text, base === undefined ? undefined : own.toWellFormed('' + base));
      if (this.#parts === undefined) throw new own.TypeError('Invalid URL: ' + text);
    }
    static canParse(url, base) {
      return native.parseUrl(own.String(url), base === undefined ? undefined : ('' + base)) !== undefined;
    }
    static parse(url, base) { return URL.canParse(url, base) ? new URL(url, base) : null; }
    get searchParams() {
      this.#query ??= paramsOf(this.#parts[9], (text) => this.#setPart('search', text));
      return this.#query;
    }
    #setPart(part, value) { this.#parts = native.setUrlPart(this.#parts[0], part, own.toWellFormed('' + value)) ?? this.#parts; }
    toString() { return this.#parts[0]; }
    toJSON() { return this.#parts[0]; }
    get [Symbol.toStringTag]() { return 'URL'; }
    static definePart(index, name) {
      own.defineProperty(URL.prototype, name, {
        enumerable: true,
        configurable: true,
        get() { return this.#parts[index]; },
        set: name === 'origin' ? undefined : function (value) {
          this.#setPart(name, value);
          if (name === 'search' || name === 'href') this.#query = undefined;
        },
      });
    }
  }
  for (let n = 0; n < PARTS.length; n++) URL.definePart(n, PARTS[n]);
  delete URL.definePart;
  define('URL', URL);

  // ---- crypto ----------------------------------------------------------------------------------------------------
  const crypto = {
    randomUUID() { return native.randomUuid(); },
    getRandomValues(target) {
      if (!own.isView(target)) throw new own.TypeError('crypto.getRandomValues takes a typed array');
      own.putBytes(bytesOf(target), native.randomBytes(target.byteLength), 0);
      return target;
    },
  };
  const unavailable = (name) => (first) => { throw new own.TypeError(native.absence(name, typeof first === 'string' ? own.toWellFormed(first) : undefined)); };
  crypto.subtle = own.freeze({
    async digest(algorithm, data) {
      const name = own.toUpperCase(own.String(algorithm?.name ?? algorithm));
      const bytes = native.digest(name, bytesToString(bytesOf(data)));
      if (bytes === undefined) throw new own.DOMException('the digest `' + name + '` is not available: use SHA-1, SHA-256, SHA-384 or SHA-512', 'NotSupportedError');
      return bytes.buffer;
    },
    encrypt: unavailable('crypto.subtle.encrypt'),
    decrypt: unavailable('crypto.subtle.decrypt'),
    sign: unavailable('crypto.subtle.sign'),
    verify: unavailable('crypto.subtle.verify'),
    importKey: unavailable('crypto.subtle.importKey'),
    generateKey: unavailable('crypto.subtle.generateKey'),
  });
  crypto.createHash = unavailable('crypto.createHash');
  crypto.createHmac = unavailable('crypto.createHmac');
  crypto.randomBytes = unavailable('crypto.randomBytes');
  define('crypto', own.freeze(crypto));
}
