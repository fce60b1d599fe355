"use strict";
// The place in the source that called into this package: full path, line, column.
const path = require("node:path");
const { fileURLToPath } = require("node:url");

/** The caller of `below`, which is a function of this package. */
function siteOf(below) {
  const { prepareStackTrace, stackTraceLimit } = Error;
  const holder = {};
  try {
    Error.stackTraceLimit = 1;
    Error.prepareStackTrace = (_error, frames) => frames;
    Error.captureStackTrace(holder, below);
    const [frame] = holder.stack;
    return {
      file: pathOf(frame?.getFileName()),
      line: frame?.getLineNumber() ?? 0,
      column: frame?.getColumnNumber() ?? 0,
    };
  } finally {
    Error.prepareStackTrace = prepareStackTrace;
    Error.stackTraceLimit = stackTraceLimit;
  }
}

function pathOf(name) {
  if (!name) return "(unknown)";
  if (name.startsWith("file:")) return fileURLToPath(name);
  return name.startsWith("node:") || name.startsWith("[")
    ? name
    : path.resolve(name);
}

module.exports = { siteOf };
