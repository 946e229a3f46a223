// Formats stack traces with the positions of the script's source and without functions of the prelude.
function (native, own) {
  'use strict';
  const site = {};
  // The engine calls `prepareStackTrace` whenever an error is created. While `isCapturing` is set it returns the call sites
  // unchanged: they are formatted only if the call fails.
  let isCapturing = false;
  Error.prepareStackTrace = (error, sites) => {
    if (site.getFileName === undefined && sites.length > 0) captureMethods(sites[0]);
    const returnsSites = isCapturing;
    isCapturing = false;
    return returnsSites ? sites : heading(error) + format(sites);
  };

  function captureMethods(first) {
    const proto = own.getPrototypeOf(first);
    site.getFunctionName = own.uncurry(proto.getFunctionName);
    site.getLineNumber = own.uncurry(proto.getLineNumber);
    site.getColumnNumber = own.uncurry(proto.getColumnNumber);
    site.isNative = own.uncurry(proto.isNative);
    site.getFileName = own.uncurry(proto.getFileName);
    // These would expose functions of the prelude to scripts.
    delete proto.getFunction;
    delete proto.getThis;
  }

  function heading(error) {
    try {
      const { name, message } = error;
      return message === '' || message === undefined ? ('' + name) : ('' + name + ': ' + message);
    } catch {
      return 'Error';
    }
  }

  function format(sites) {
    let text = '';
    for (let n = 0; n < sites.length; n++) {
      const file = site.getFileName(sites[n]);
      if (typeof file === 'string' && own.startsWith(file, 'bascule:')) continue;
      const name = site.getFunctionName(sites[n]);
      // Callers of the script are not part of its stack.
      if (name === '<eval>') break;
      const origin = site.isNative(sites[n]) ? '' : native.origin(site.getLineNumber(sites[n]) ?? 0, site.getColumnNumber(sites[n]) ?? 0);
      const position = site.isNative(sites[n]) ? 'native' : origin === '' ? '' + file : '' + file + ':' + origin;
      text += name ? ('\n    at ' + name + ' (' + position + ')') : ('\n    at ' + position);
    }
    return text;
  }

  // Captures the methods before a script can replace them, and removes the hook.
  void new Error().stack;
  delete Error.prepareStackTrace;

  // Returns the call sites above `callee`.
  function capture(callee) {
    const target = { __proto__: null };
    isCapturing = true;
    try {
      own.captureStack(target, callee);
    } finally {
      isCapturing = false;
    }
    return target.stack;
  }

  // Returns the line of the script in the first call site that is one of the script, or null.
  function firstLine(sites) {
    for (let n = 0; own.isArray(sites) && n < sites.length; n++) {
      const file = site.getFileName(sites[n]);
      if (site.isNative(sites[n]) || typeof file !== 'string' || own.startsWith(file, 'bascule:')) continue;
      const origin = native.origin(site.getLineNumber(sites[n]) ?? 0, site.getColumnNumber(sites[n]) ?? 0);
      return origin === '' ? null : +own.substring(origin, 0, own.indexOf(origin, ':'));
    }
    return null;
  }

  return own.freeze({
    __proto__: null,
    capture,
    firstLine,
    stackText: (error, sites) => heading(error) + (own.isArray(sites) ? format(sites) : ''),
  });
}
