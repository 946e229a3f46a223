// What agents expect of a runtime beyond the language: clones, text, addresses, chance.
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
    throw new own.TypeError('bytes are an ArrayBuffer or a view of one');
  };

  // Each byte as a letter.
  const letters = (bytes) => {
    let text = '';
    for (let n = 0; n < bytes.length; n += 8192) text += own.apply(own.fromCharCode, undefined, own.cut(bytes, n, n + 8192));
    return text;
  };

  define('TextEncoder', class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(text = '') { return native.encode(own.toWellFormed('' + text)); }
    encodeInto(text, target) {
      let read = 0;
      let written = 0;
      for (const letter of own.toWellFormed('' + text)) {
        const bytes = native.encode(letter);
        if (written + bytes.length > target.length) break;
        own.putBytes(target, bytes, written);
        read += letter.length;
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
    #encoding; #fatal; #keepMark; #rest = new own.Uint8Array(0);
    constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
      this.#encoding = encodings[own.toLowerCase('' + label)];
      if (this.#encoding === undefined) throw new own.RangeError('the encoding `' + label + '` is not known here');
      this.#fatal = !!fatal;
      this.#keepMark = !!ignoreBOM;
    }
    get encoding() { return this.#encoding; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#keepMark; }
    decode(data, { stream = false } = {}) {
      const more = bytesOf(data);
      const all = new own.Uint8Array(this.#rest.length + more.length);
      own.putBytes(all, this.#rest, 0);
      own.putBytes(all, more, this.#rest.length);
      const decoded = native.decode(letters(all), this.#encoding, this.#fatal, this.#keepMark, !!stream);
      if (decoded[0] === undefined) throw new own.TypeError('the bytes are no text in this encoding');
      this.#rest = new own.Uint8Array(all.buffer, decoded[1]);
      return decoded[0];
    }
  });

  // ---- addresses -------------------------------------------------------------------------------------------------
  const PARTS = ['href', 'origin', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname',
    'search', 'hash'];

  class URLSearchParams {
    #pairs = [];
    // What to tell the address that this belongs to.
    #changed;
    constructor(init = '') {
      if (typeof init === 'object' && init !== null) {
        if (typeof init[Symbol.iterator] === 'function') for (const [name, value] of init) this.append(name, value);
        else for (const name of own.keysOf(init)) this.append(name, init[name]);
      } else {
        this.#pairs = native.parseQuery(own.toWellFormed('' + init));
      }
    }
    static of(query, changed) {
      const made = new URLSearchParams(query);
      made.#changed = changed;
      return made;
    }
    #write() { if (this.#changed !== undefined) this.#changed(this.toString()); }
    #named(name, value) {
      return (pair) => pair[0] === ('' + name) && (value === undefined || pair[1] === ('' + value));
    }
    get size() { return this.#pairs.length; }
    append(name, value) {
      own.push(this.#pairs, [own.toWellFormed('' + name), own.toWellFormed('' + value)]);
      this.#write();
    }
    delete(name, value) {
      const gone = this.#named(name, value);
      const kept = [];
      for (let n = 0; n < this.#pairs.length; n++) if (!gone(this.#pairs[n])) own.push(kept, this.#pairs[n]);
      this.#pairs = kept;
      this.#write();
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
      const wanted = this.#named(name, value);
      for (let n = 0; n < this.#pairs.length; n++) if (wanted(this.#pairs[n])) return true;
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
      this.#write();
    }
    sort() {
      own.sort(this.#pairs, (a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
      this.#write();
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
    toString() { return native.writeQuery(this.#pairs); }
    get [Symbol.toStringTag]() { return 'URLSearchParams'; }
  }
  const tied = URLSearchParams.of;
  delete URLSearchParams.of;
  define('URLSearchParams', URLSearchParams);

  class URL {
    #parts;
    #query;
    constructor(address, base) {
      const given = own.toWellFormed(own.String(address));
      this.#parts = native.parseUrl(given, base === undefined ? undefined : own.toWellFormed('' + base));
      if (this.#parts === undefined) throw new own.TypeError('Invalid URL: ' + given);
    }
    static canParse(address, base) {
      return native.parseUrl(own.String(address), base === undefined ? undefined : ('' + base)) !== undefined;
    }
    static parse(address, base) { return URL.canParse(address, base) ? new URL(address, base) : null; }
    get searchParams() {
      this.#query ??= tied(this.#parts[9], (text) => this.#change('search', text));
      return this.#query;
    }
    #change(part, value) { this.#parts = native.changeUrl(this.#parts[0], part, own.toWellFormed('' + value)) ?? this.#parts; }
    toString() { return this.#parts[0]; }
    toJSON() { return this.#parts[0]; }
    get [Symbol.toStringTag]() { return 'URL'; }
    static part(place, name) {
      own.defineProperty(URL.prototype, name, {
        enumerable: true,
        configurable: true,
        get() { return this.#parts[place]; },
        set: name === 'origin' ? undefined : function (value) {
          this.#change(name, value);
          if (name === 'search' || name === 'href') this.#query = undefined;
        },
      });
    }
  }
  for (let n = 0; n < PARTS.length; n++) URL.part(n, PARTS[n]);
  delete URL.part;
  define('URL', URL);

  // ---- chance ----------------------------------------------------------------------------------------------------
  const crypto = {
    randomUUID() { return native.uuid(); },
    getRandomValues(target) {
      if (!own.isView(target)) throw new own.TypeError('getRandomValues fills a typed array');
      own.putBytes(bytesOf(target), native.random(target.byteLength), 0);
      return target;
    },
  };
  define('crypto', own.freeze(crypto));
}
