// Stacks as authors know them: their own lines and columns, and none of the harness.
function (native, own) {
  'use strict';
  const site = {};
  // The engine calls this whenever an error is made. While `bare` is set it hands out what it got: a trail that is
  // put into words only if a call fails.
  let bare = false;
  Error.prepareStackTrace = (error, sites) => {
    if (site.getFileName === undefined && sites.length > 0) learn(sites[0]);
    const asTheyAre = bare;
    bare = false;
    return asTheyAre ? sites : heading(error) + worded(sites);
  };

  function learn(first) {
    const proto = own.getPrototypeOf(first);
    site.getFunctionName = own.uncurry(proto.getFunctionName);
    site.getLineNumber = own.uncurry(proto.getLineNumber);
    site.getColumnNumber = own.uncurry(proto.getColumnNumber);
    site.isNative = own.uncurry(proto.isNative);
    site.getFileName = own.uncurry(proto.getFileName);
    // They would hand out the functions of the harness.
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

  function worded(sites) {
    let text = '';
    for (let n = 0; n < sites.length; n++) {
      const file = site.getFileName(sites[n]);
      if (typeof file === 'string' && own.startsWith(file, 'bascule:')) continue;
      const name = site.getFunctionName(sites[n]);
      // What called the script is not the author's.
      if (name === '<eval>') break;
      const place = site.isNative(sites[n])
        ? 'native'
        : ('' + file + ':' + native.origin(site.getLineNumber(sites[n]) ?? 0, site.getColumnNumber(sites[n]) ?? 0));
      text += name ? ('\n    at ' + name + ' (' + place + ')') : ('\n    at ' + place);
    }
    return text;
  }

  // Learn before a script can touch anything, and leave nothing for it to replace.
  void new Error().stack;
  delete Error.prepareStackTrace;

  // Who called `callee`, as sites.
  function trail(callee) {
    const made = { __proto__: null };
    bare = true;
    try {
      own.captureStack(made, callee);
    } finally {
      bare = false;
    }
    return made.stack;
  }

  return own.freeze({
    __proto__: null,
    trail,
    at: (error, sites) => heading(error) + (own.isArray(sites) ? worded(sites) : ''),
  });
}
