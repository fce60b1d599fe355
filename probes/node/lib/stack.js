'use strict';
// Stack traces: columns of the text that the author wrote, and no frame of ours. Works on the call sites that every
// formatter gets, Node's own, one with source maps, or the program's; never formats anything.

/** `Error.prepareStackTrace` of a context hands on corrected call sites, whoever has set it. */
function install({ addon }, realm) {
  const { Error } = realm;
  const ours = new WeakMap();
  const theirs = new WeakMap();
  let current = Error.prepareStackTrace;
  const wrapped = (prepare) => {
    let wrapper = ours.get(prepare);
    if (wrapper === undefined) {
      wrapper = function prepareStackTrace(error, trace) {
        return prepare.call(this, error, corrected(addon, trace));
      };
      ours.set(prepare, wrapper);
      theirs.set(wrapper, prepare);
    }
    return wrapper;
  };
  Object.defineProperty(Error, 'prepareStackTrace', {
    configurable: true,
    enumerable: true,
    get: () => (typeof current === 'function' ? wrapped(current) : current),
    set(prepare) {
      current = theirs.get(prepare) ?? prepare;
    },
  });
}

/**
 * A frame of ours takes room in a trace that is cut at `Error.stackTraceLimit`: keeps one more, until what it answers is
 * called.
 */
function deeper() {
  const base = Error.stackTraceLimit;
  if (typeof base !== 'number' || !Reflect.set(Error, 'stackTraceLimit', base + 1)) return () => {};
  limits.push(base);
  deepest = Math.max(deepest, limits.length);
  return () => {
    limits.pop();
    // The program may have set its own meanwhile.
    if (Error.stackTraceLimit === base + 1) Reflect.set(Error, 'stackTraceLimit', base);
  };
}

/** What the limit was, around each `deeper` that is not taken back. */
const limits = [];
let deepest = 0;

/** The limit that the program knows of. */
function limit() {
  const now = Error.stackTraceLimit;
  const ours = limits.length > 0 && now === limits[0] + limits.length;
  return ours ? limits[0] : now;
}

function corrected(addon, trace) {
  if (!Array.isArray(trace)) return trace;
  try {
    const called = trace.map((site, at) => (isCompile(trace[at + 1]) ? new Named(site) : moved(addon, site)));
    const kept = called.filter((_, at) => !isOurs(trace[at]));
    // A trace that was taken under a limit of the program's own may be longer.
    const excess = kept.length - limit();
    return excess > 0 && excess <= deepest ? kept.slice(0, limit()) : kept;
  } catch {
    return trace;
  }
}

function isOurs(site) {
  const file = site.getFileName();
  return typeof file === 'string' && file.startsWith(__dirname);
}

/** Our `_compile`, which calls Node.js's own: V8 does not find that one as a method any more. */
function isCompile(site) {
  return site !== undefined && isOurs(site) && site.getFileName().endsWith('load.js');
}

function moved(addon, site) {
  const file = site.getFileName();
  if (typeof file !== 'string') return site;
  const line = site.getLineNumber();
  const column = site.getColumnNumber();
  const original = addon.column(file, line, column);
  return original === undefined ? site : new Moved(addon, site, original);
}

/** A call site with another column. */
class Moved {
  #addon;
  #site;
  #column;

  constructor(addon, site, column) {
    this.#addon = addon;
    this.#site = site;
    this.#column = column;
  }

  getColumnNumber() {
    return this.#column;
  }

  getEnclosingColumnNumber() {
    const line = this.#site.getEnclosingLineNumber();
    const column = this.#site.getEnclosingColumnNumber();
    return this.#addon.column(this.#site.getFileName(), line, column) ?? column;
  }

  getPosition() {
    return this.#addon.offset(this.#site.getFileName(), this.#site.getPosition());
  }

  toString() {
    const text = this.#site.toString();
    const place = `:${this.#site.getLineNumber()}:${this.#site.getColumnNumber()}`;
    const at = text.lastIndexOf(place);
    if (at < 0) return text;
    const moved = `:${this.#site.getLineNumber()}:${this.#column}`;
    return text.slice(0, at) + moved + text.slice(at + place.length);
  }

  static {
    delegate(Moved, (self) => self.#site);
  }
}

/** The call site of Node.js's own `_compile`. */
class Named {
  #site;

  constructor(site) {
    this.#site = site;
  }

  getMethodName() {
    return '_compile';
  }

  toString() {
    return this.#site.toString().replace(/^(\w+)\.<anonymous>/, '$1._compile');
  }

  static {
    delegate(Named, (self) => self.#site);
  }
}

/** All that V8's call sites have and `Class` does not correct; names of later versions too. */
function delegate(Class, site) {
  for (const name of siteMethods()) {
    if (Object.hasOwn(Class.prototype, name)) continue;
    const method = {
      [name](...args) {
        return site(this)[name](...args);
      },
    }[name];
    Object.defineProperty(Class.prototype, name, { value: method, configurable: true, writable: true });
  }
  Object.defineProperty(Class, 'name', { value: 'CallSite' });
}

function siteMethods() {
  const { prepareStackTrace } = Error;
  const holder = {};
  Error.prepareStackTrace = (_, trace) => trace;
  Error.captureStackTrace(holder);
  const [site] = holder.stack;
  if (prepareStackTrace === undefined) delete Error.prepareStackTrace;
  else Error.prepareStackTrace = prepareStackTrace;
  return Object.getOwnPropertyNames(Object.getPrototypeOf(site)).filter((name) => name !== 'constructor');
}

module.exports = { deeper, install };
