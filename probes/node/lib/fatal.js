'use strict';
// The excerpt that Node.js prints above an exception that ends the program: lines that hold inserted code are kept from being
// printed, and shown here as their author wrote them. The native message, which alone knows where an exception was thrown
// last, is out of reach: where that may be another line than the one the error was made in, nothing is printed.

const fs = require('fs');
const { isNativeError } = require('util').types;

function install({ addon, isMainThread }) {
  const fatal = process._fatalException;
  if (!isMainThread || typeof fatal !== 'function') return;
  process._fatalException = function (error, fromPromise) {
    const handled = fatal.call(this, error, fromPromise);
    if (!handled) {
      try {
        const text = excerpt(addon, error, fromPromise);
        if (text !== undefined) fs.writeSync(2, text);
      } catch {
        // The error itself is printed in any case.
      }
    }
    return handled;
  };
}

function excerpt(addon, error, fromPromise) {
  if (!isNativeError(error)) return undefined;
  const place = firstPlace(error.stack);
  if (place === undefined || !addon.touched(place.file, place.line)) return undefined;
  const path = place.file.startsWith('file://') ? require('url').fileURLToPath(place.file) : place.file;
  const text = fs.readFileSync(path, 'utf8');
  // Node.js prints what the map says.
  if (process.execArgv.includes('--enable-source-maps') && text.includes('//# sourceMappingURL=')) return undefined;
  const line = text.split(/\r\n|[\n\r\u2028\u2029]/)[place.line - 1];
  const at = fromPromise ? place.column - 1 : thrownAt(line, place.column - 1);
  if (at === undefined) return undefined;
  const before = line.slice(0, at).replace(/[^\t]/g, ' ');
  return `${place.file}:${place.line}\n${line}\n${before}^\n\n`;
}

function firstPlace(stack) {
  const found = /^ {4}at (?:.*\()?(.+):(\d+):(\d+)\)?$/m.exec(stack);
  return found ? { file: found[1], line: Number(found[2]), column: Number(found[3]) } : undefined;
}

/** Where in its line the exception was thrown, if it was thrown where its error was made. */
function thrownAt(line, made) {
  const statement = /\bthrow\s+$/.exec(line.slice(0, made));
  if (statement) return statement.index;
  const isMade = /^(?:new\b|[\w$.]*Error\b)/.test(line.slice(made));
  return isMade ? undefined : made;
}

module.exports = { install };
