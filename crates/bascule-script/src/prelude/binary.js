// Defines `Buffer`, `Blob`, `Headers`, `AbortController` and `AbortSignal`. Loaded when a script first uses one of them.
function (native, own) {
  'use strict';
  // A script may replace the global.
  const { setTimeout } = globalThis;
  const bytesOf = (data) => {
    if (own.isView(data)) return new own.Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (own.classOf(data) === '[object ArrayBuffer]' || own.classOf(data) === '[object SharedArrayBuffer]') return new own.Uint8Array(data);
    throw new own.TypeError('expected bytes: a string, an ArrayBuffer or a typed array');
  };
  const toLatin1 = (bytes) => {
    let text = '';
    for (let n = 0; n < bytes.length; n += 8192) text += own.apply(own.fromCharCode, undefined, own.subarray(bytes, n, n + 8192));
    return text;
  };
  const decode = (bytes, encoding) => native.decode(toLatin1(bytes), encoding, false, true, false)[0];

  // ---- Buffer ----------------------------------------------------------------------------------------------------
  const ENCODINGS = {
    __proto__: null, utf8: 'utf-8', 'utf-8': 'utf-8', hex: 'hex', base64: 'base64', base64url: 'base64url', latin1: 'latin1', binary: 'latin1',
    ascii: 'latin1', utf16le: 'utf-16le', 'utf-16le': 'utf-16le', ucs2: 'utf-16le', 'ucs-2': 'utf-16le',
  };
  const encodingOf = (name = 'utf8') => {
    const found = ENCODINGS[own.toLowerCase(own.String(name))];
    if (found === undefined) throw new own.TypeError('Unknown encoding: ' + name);
    return found;
  };
  function encodeText(text, encoding) {
    if (encoding === 'utf-8') return native.encode(own.toWellFormed(text));
    if (encoding === 'hex' || encoding === 'base64' || encoding === 'base64url') return native.decodeText(text, encoding);
    const isWide = encoding === 'utf-16le';
    const bytes = new own.Uint8Array(text.length * (isWide ? 2 : 1));
    for (let n = 0; n < text.length; n++) {
      const code = own.charCodeAt(text, n);
      if (isWide) { bytes[2 * n] = code; bytes[2 * n + 1] = code >> 8; } else bytes[n] = code;
    }
    return bytes;
  }

  // Returns the place at which a search begins, as Node counts it: from the end if negative; -1 if nothing can be found.
  function searchStart(length, offset, needed, isForward) {
    if (offset < 0) return offset + length >= 0 ? length + offset : isForward || needed === 0 ? 0 : -1;
    if (offset + needed <= length) return offset;
    return needed === 0 ? length : isForward ? -1 : length - 1;
  }

  function search(buffer, value, offset, encoding, isForward) {
    if (typeof offset === 'string') { encoding = offset; offset = undefined; }
    const all = bytesOf(buffer);
    let from = own.trunc(own.max(-0x8000_0000, own.min(+offset, 0x7fff_ffff)));
    if (from !== from) from = isForward ? 0 : all.length;
    const name = typeof value === 'string' || encoding === undefined || Buffer.isEncoding(encoding) ? encodingOf(encoding) : 'utf-8';
    let wanted;
    if (typeof value === 'number') wanted = new own.Uint8Array([value]);
    else if (typeof value === 'string') wanted = encodeText(value, name);
    else if (isBytes(value)) wanted = bytesOf(value);
    else throw new own.TypeError('a Buffer can be searched for a number, a string, a Buffer or a Uint8Array');
    // Wide characters begin at even places.
    const step = name === 'utf-16le' && typeof value !== 'number' ? 2 : 1;
    let at = searchStart(all.length, from, wanted.length, isForward);
    if (wanted.length === 0) return at;
    if (at < 0 || wanted.length > all.length || wanted.length < step) return -1;
    const last = all.length - wanted.length;
    at = own.min(at, isForward ? at : last);
    at -= at % step;
    for (; at >= 0 && at <= last; at += isForward ? step : -step) {
      let n = 0;
      while (n < wanted.length && all[at + n] === wanted[n]) n++;
      if (n === wanted.length) return at;
    }
    return -1;
  }
  const isBytes = (value) => own.isView(value) && own.isPrototypeOf(own.Uint8Array.prototype, value);

  const checkNumber = (value, name, max) => {
    if (typeof value !== 'number') throw new own.TypeError('the argument `' + name + '` must be a number');
    if (!(value >= 0 && value <= max)) throw new own.RangeError('the argument `' + name + '` is out of range: it is ' + value);
  };

  const checkInteger = (value, name, max) => {
    checkNumber(value, name, max);
    if (own.trunc(value) !== value) throw new own.RangeError('the argument `' + name + '` must be an integer: it is ' + value);
  };

  function fillBytes(buffer, value, offset, end, encoding) {
    if (typeof value === 'string') {
      if (offset === undefined || typeof offset === 'string') { encoding = offset; offset = 0; end = undefined; }
      else if (typeof end === 'string') { encoding = end; end = undefined; }
    }
    const name = typeof value === 'string' ? encodingOf(encoding) : undefined;
    if (offset === undefined) { offset = 0; end = undefined; }
    checkNumber(offset, 'offset', 9007199254740991);
    if (end === undefined) end = buffer.length;
    checkNumber(end, 'end', buffer.length);
    if (offset >= end) return buffer;
    let bytes;
    if (typeof value === 'string') bytes = value === '' ? new own.Uint8Array(1) : encodeText(value, name);
    else if (isBytes(value)) bytes = bytesOf(value);
    else bytes = new own.Uint8Array([typeof value === 'boolean' || typeof value === 'number' ? +value : value >>> 0]);
    if (bytes.length === 0) throw new own.TypeError('there are no bytes to fill the Buffer with');
    offset = own.trunc(offset);
    for (let n = offset; n < own.trunc(end); n++) buffer[n] = bytes[(n - offset) % bytes.length];
    return buffer;
  }

  // An integer as `copy` takes it: rounded down, zero for what is no number.
  const integerOf = (value) => { const number = +value; return own.isFinite(number) ? own.floor(number) : 0; };
  const placeOf = (value, name, fallback, max) => {
    const place = value === undefined ? fallback : integerOf(value);
    if (place < 0 || place > max) throw new own.RangeError('the argument `' + name + '` is out of range: it is ' + place);
    return place;
  };

  class Buffer extends own.Uint8Array {
    constructor(data, offset, length) {
      if (typeof data === 'string') throw new own.TypeError('new Buffer does not take text: use Buffer.from(text, encoding)');
      super(data, offset, length);
    }
    static from(data, encodingOrOffset, length) {
      if (typeof data === 'string') return wrap(encodeText(data, encodingOf(encodingOrOffset)));
      if (own.classOf(data) === '[object ArrayBuffer]') return new Buffer(data, encodingOrOffset, length);
      if (data?.type === 'Buffer' && own.isArray(data.data)) return Buffer.from(data.data);
      if (own.isView(data) || own.isArray(data)) {
        const copy = new Buffer(data.length ?? data.byteLength);
        for (let n = 0; n < copy.length; n++) copy[n] = data[n];
        return copy;
      }
      throw new own.TypeError('Buffer.from takes a string, an array, an ArrayBuffer or a typed array');
    }
    static alloc(size, fill, encoding) {
      const made = new Buffer(size);
      return fill === undefined || fill === 0 || made.length === 0 ? made : fillBytes(made, fill, 0, made.length, encoding);
    }
    static allocUnsafe(size) { return new Buffer(size); }
    static isBuffer(value) { return value instanceof Buffer; }
    static isEncoding(name) { return ENCODINGS[own.toLowerCase(own.String(name))] !== undefined; }
    static byteLength(data, encoding) { return typeof data === 'string' ? encodeText(data, encodingOf(encoding)).length : data.byteLength; }
    static concat(list, total) {
      let size = 0;
      for (let n = 0; n < list.length; n++) size += list[n].length;
      const all = new Buffer(total ?? size);
      let at = 0;
      for (let n = 0; n < list.length; n++) for (let k = 0; k < list[n].length && at < all.length; k++) all[at++] = list[n][k];
      return all;
    }
    static compare(a, b) {
      for (let n = 0; n < own.min(a.length, b.length); n++) if (a[n] !== b[n]) return a[n] < b[n] ? -1 : 1;
      return a.length === b.length ? 0 : a.length < b.length ? -1 : 1;
    }
    toString(encoding, start = 0, end = this.length) {
      const name = encodingOf(encoding);
      const bytes = own.subarray(bytesOf(this), start, end);
      return name === 'hex' || name === 'base64' || name === 'base64url' ? native.encodeBytes(toLatin1(bytes), name) : decode(bytes, name);
    }
    toJSON() { const data = []; for (let n = 0; n < this.length; n++) own.push(data, this[n]); return { type: 'Buffer', data }; }
    equals(other) { return Buffer.compare(this, other) === 0; }
    compare(other) { return Buffer.compare(this, other); }
    slice(start, end) { return wrap(own.subarray(bytesOf(this), start, end)); }
    subarray(start, end) { return wrap(own.subarray(bytesOf(this), start, end)); }
    indexOf(value, offset, encoding) { return search(this, value, offset, encoding, true); }
    lastIndexOf(value, offset, encoding) { return search(this, value, offset, encoding, false); }
    includes(value, offset, encoding) { return search(this, value, offset, encoding, true) !== -1; }
    fill(value, offset, end, encoding) { return fillBytes(this, value, offset, end, encoding); }
    copy(target, targetStart, sourceStart, sourceEnd) {
      if (!isBytes(target)) throw new own.TypeError('Buffer.copy takes a Buffer or a Uint8Array as its target');
      const at = placeOf(targetStart, 'targetStart', 0, 9007199254740991);
      const start = placeOf(sourceStart, 'sourceStart', 0, this.length);
      const end = own.min(placeOf(sourceEnd, 'sourceEnd', this.length, 9007199254740991), this.length);
      const count = own.min(end - start, target.length - at);
      if (count <= 0) return 0;
      own.putBytes(target, own.subarray(bytesOf(this), start, start + count), at);
      return count;
    }
    write(text, offset, length, encoding) {
      if (typeof text !== 'string') throw new own.TypeError('the argument `string` must be a string');
      if (offset === undefined) { offset = 0; length = this.length; encoding = undefined; }
      else if (typeof offset === 'string' && length === undefined) { encoding = offset; offset = 0; length = this.length; }
      checkInteger(offset, 'offset', this.length);
      if (typeof length === 'string') { encoding = length; length = undefined; }
      if (length === undefined) length = this.length - offset;
      checkInteger(length, 'length', this.length);
      const name = encodingOf(encoding || undefined);
      const bytes = encodeText(text, name);
      let count = own.min(bytes.length, length, this.length - offset);
      // A character is written whole, or not at all.
      if (name === 'utf-8' && count < bytes.length) while (count > 0 && (bytes[count] & 0xC0) === 0x80) count--;
      if (name === 'utf-16le') count -= count % 2;
      for (let n = 0; n < count; n++) this[offset + n] = bytes[n];
      return count;
    }
  }
  // `readUInt16LE(offset)`, `writeDoubleBE(value, offset)` and the like, as DataView has them.
  const NUMBERS = [
    ['UInt8', 'Uint8', 1], ['Int8', 'Int8', 1], ['UInt16', 'Uint16', 2], ['Int16', 'Int16', 2], ['UInt32', 'Uint32', 4],
    ['Int32', 'Int32', 4], ['Float', 'Float32', 4], ['Double', 'Float64', 8], ['BigInt64', 'BigInt64', 8], ['BigUInt64', 'BigUint64', 8],
  ];
  const view = (buffer) => new own.DataView(buffer.buffer, buffer.byteOffset, buffer.length);
  const method = (name, value) => own.defineProperty(Buffer.prototype, name, { __proto__: null, value, writable: true, configurable: true });
  for (const [name, kind, size] of NUMBERS) {
    const get = own.uncurry(own.DataView.prototype['get' + kind]);
    const set = own.uncurry(own.DataView.prototype['set' + kind]);
    for (const order of size === 1 ? [''] : ['LE', 'BE']) {
      const read = function (offset = 0) { return get(view(this), offset, order === 'LE'); };
      const write = function (value, offset = 0) { set(view(this), offset, value, order === 'LE'); return offset + size; };
      for (const alias of [name, own.replaceAll(name, 'UInt', 'Uint')]) {
        method('read' + alias + order, read);
        method('write' + alias + order, write);
      }
    }
  }
  const wrap = (bytes) => new Buffer(bytes.buffer, bytes.byteOffset, bytes.length);
  own.defineProperty(Buffer, own.species, { __proto__: null, value: own.Uint8Array, configurable: true });

  // ---- Blob ------------------------------------------------------------------------------------------------------
  class Blob {
    #bytes;
    #type;
    constructor(parts = [], { type = '' } = {}) {
      const all = [];
      for (const part of parts) own.push(all, part instanceof Blob ? part.#bytes : typeof part === 'object' ? bytesOf(part) : encodeText(own.String(part), 'utf-8'));
      this.#bytes = bytesOf(Buffer.concat(all));
      this.#type = own.toLowerCase(own.String(type));
    }
    get size() { return this.#bytes.length; }
    get type() { return this.#type; }
    async text() { return decode(this.#bytes, 'utf-8'); }
    async arrayBuffer() { return own.sliceBuffer(this.#bytes.buffer, this.#bytes.byteOffset, this.#bytes.byteOffset + this.#bytes.length); }
    async bytes() { return new own.Uint8Array(await this.arrayBuffer()); }
    slice(start = 0, end = this.size, type = '') {
      const at = (index) => (index < 0 ? own.max(this.size + index, 0) : own.min(index, this.size));
      return new Blob([own.subarray(this.#bytes, at(start), at(end))], { type });
    }
    stream() { throw new own.TypeError('Blob.stream is not available: use await blob.bytes()'); }
    get [Symbol.toStringTag]() { return 'Blob'; }
  }

  // ---- Headers ---------------------------------------------------------------------------------------------------
  class Headers {
    #map = new own.Map();
    constructor(init) {
      if (init === undefined || init === null) return;
      if (typeof init[Symbol.iterator] === 'function') for (const [name, value] of init) this.append(name, value);
      else { const names = own.keysOf(init); for (let n = 0; n < names.length; n++) this.append(names[n], init[names[n]]); }
    }
    #key(name) {
      const text = own.String(name);
      if (!own.test(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, text)) throw new own.TypeError('Header name must be a valid HTTP token ["' + text + '"]');
      return own.toLowerCase(text);
    }
    append(name, value) {
      const key = this.#key(name);
      const old = own.mapGet(this.#map, key);
      own.mapSet(this.#map, key, old === undefined ? own.trim(own.String(value)) : old + ', ' + own.trim(own.String(value)));
    }
    set(name, value) { own.mapSet(this.#map, this.#key(name), own.trim(own.String(value))); }
    get(name) { return own.mapGet(this.#map, this.#key(name)) ?? null; }
    has(name) { return own.mapHas(this.#map, this.#key(name)); }
    delete(name) { own.mapDelete(this.#map, this.#key(name)); }
    #sorted() {
      const all = [];
      own.mapEach(this.#map, (value, key) => { own.push(all, [key, value]); });
      return own.sort(all, (a, b) => (a[0] < b[0] ? -1 : 1));
    }
    forEach(callback, self) { const all = this.#sorted(); for (let n = 0; n < all.length; n++) own.apply(callback, self, [all[n][1], all[n][0], this]); }
    *entries() { const all = this.#sorted(); for (let n = 0; n < all.length; n++) yield all[n]; }
    *keys() { const all = this.#sorted(); for (let n = 0; n < all.length; n++) yield all[n][0]; }
    *values() { const all = this.#sorted(); for (let n = 0; n < all.length; n++) yield all[n][1]; }
    [Symbol.iterator]() { return this.entries(); }
    toJSON() { const all = {}; this.forEach((value, key) => { all[key] = value; }); return all; }
    get [Symbol.toStringTag]() { return 'Headers'; }
  }

  // ---- AbortController -------------------------------------------------------------------------------------------
  const secret = {};
  class AbortSignal {
    #aborted = false;
    #reason;
    #listeners = [];
    #onabort = null;
    constructor(key) { if (key !== secret) throw new own.TypeError('Illegal constructor'); }
    get aborted() { return this.#aborted; }
    get reason() { return this.#reason; }
    get onabort() { return this.#onabort; }
    set onabort(listener) { this.#onabort = typeof listener === 'function' ? listener : null; }
    throwIfAborted() { if (this.#aborted) throw this.#reason; }
    addEventListener(type, listener, options) { if (type === 'abort') own.push(this.#listeners, { __proto__: null, listener, once: options?.once === true }); }
    removeEventListener(type, listener) {
      const kept = [];
      for (let n = 0; n < this.#listeners.length; n++) if (type !== 'abort' || this.#listeners[n].listener !== listener) own.push(kept, this.#listeners[n]);
      this.#listeners = kept;
    }
    static fire(signal, reason) {
      if (signal.#aborted) return;
      signal.#aborted = true;
      signal.#reason = reason === undefined ? new own.DOMException('This operation was aborted', 'AbortError') : reason;
      const event = { type: 'abort', target: signal };
      const listeners = signal.#listeners;
      signal.#listeners = [];
      for (let n = 0; n < listeners.length; n++) {
        const { listener } = listeners[n];
        if (typeof listener === 'function') own.apply(listener, signal, [event]);
        else listener?.handleEvent?.(event);
      }
      if (signal.#onabort !== null) own.apply(signal.#onabort, signal, [event]);
    }
    static abort(reason) { const signal = new AbortSignal(secret); fire(signal, reason); return signal; }
    static timeout(ms) {
      const signal = new AbortSignal(secret);
      const timer = setTimeout(() => fire(signal, new own.DOMException('The operation was aborted due to timeout', 'TimeoutError')), ms);
      timer?.unref?.();
      return signal;
    }
    static any(signals) {
      const made = new AbortSignal(secret);
      for (const signal of signals) {
        if (signal.aborted) { fire(made, signal.reason); break; }
        signal.addEventListener('abort', () => fire(made, signal.reason));
      }
      return made;
    }
    get [Symbol.toStringTag]() { return 'AbortSignal'; }
  }
  const fire = AbortSignal.fire;
  delete AbortSignal.fire;
  class AbortController {
    #signal = new AbortSignal(secret);
    get signal() { return this.#signal; }
    abort(reason) { fire(this.#signal, reason); }
    get [Symbol.toStringTag]() { return 'AbortController'; }
  }

  return own.freeze({ __proto__: null, Buffer, Blob, Headers, AbortController, AbortSignal });
}
