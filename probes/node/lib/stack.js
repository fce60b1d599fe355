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

function corrected(addon, trace) {
  if (!Array.isArray(trace)) return trace;
  try {
    const kept = trace.filter((site) => !isOurs(site));
    return kept.map((site) => moved(addon, site));
  } catch {
    return trace;
  }
}

function isOurs(site) {
  const file = site.getFileName();
  return typeof file === 'string' && file.startsWith(__dirname);
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
    // What V8's own has and needs no correction; names of later versions too.
    const own = siteMethods();
    for (const name of own) {
      if (Object.hasOwn(Moved.prototype, name)) continue;
      const method = {
        [name](...args) {
          return this.#site[name](...args);
        },
      }[name];
      Object.defineProperty(Moved.prototype, name, { value: method, configurable: true, writable: true });
    }
    Object.defineProperty(Moved, 'name', { value: 'CallSite' });
  }
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

module.exports = { install };
