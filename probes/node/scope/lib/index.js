"use strict";
// Scopes for Node.js: the exact instructions of one region of a running thread.
const fs = require("node:fs");
const native = require("../scalpel_scope.node");
const { siteOf } = require("./site.js");

/** How instructions are seen. One that is asked for by name is used or skipped, never replaced. */
const HwBackend = Object.freeze({
  Auto: "auto",
  SingleStep: "single-step",
  IntelPt: "intel-pt",
  AmdLbr: "amd-lbr",
});

/** A scope that cannot be closed; `code` tells why. */
class ScopeError extends Error {
  constructor(code) {
    super(MESSAGES[code] ?? code);
    this.name = "ScopeError";
    this.code = code;
  }
}

const MESSAGES = {
  AlreadyClosed: "the scope is closed already: keep its first trace",
  WrongOrder:
    "a scope opened within this one is still open: close that one first",
  OtherThread: "the scope belongs to another thread: close it there",
  NoSuchScope: "the scope is not open",
  NotClosed: "the scope is not closed: it has no trace yet",
};

// Scopes that are open on this thread, and whether a microtask will look for them: when it runs, the code that opened
// them waits for something.
const openScopes = new Set();
let watching = false;

function watch(scope) {
  openScopes.add(scope);
  if (watching) return;
  watching = true;
  queueMicrotask(() => {
    watching = false;
    // The innermost first.
    for (const open of [...openScopes].reverse()) open._suspend();
  });
}

const CLOSE = 0;
const ABANDON = 1;
const SUSPEND = 2;
const TREE_LINES = 40;

/** Native code from one address up to another. */
class Code {
  constructor(start, end) {
    this.start = BigInt(start);
    this.end = BigInt(end);
    if (this.start >= this.end)
      throw new RangeError("the code of a scope is not empty");
  }

  /** The `length` bytes at `start`. */
  static range(start, length) {
    return new Code(BigInt(start), BigInt(start) + BigInt(length));
  }

  /** The whole function at an address, or of that name; as its file's symbols say. */
  static function(function_) {
    const address = addressOf(function_);
    const range = native.functionRange(address);
    if (range === undefined)
      throw new RangeError(
        `no symbol of known size holds 0x${address.toString(16)}: use Code.range`,
      );
    return new Code(range[0], range[1]);
  }

  /** Machine code in memory of its own, for ever. */
  static bytes(bytes) {
    const start = native.executable(Uint8Array.from(bytes));
    if (start === undefined) throw new Error("no executable memory to be had");
    return Code.range(start, bytes.length);
  }
}

function addressOf(function_) {
  if (typeof function_ === "bigint") return function_;
  if (function_ instanceof Code) return function_.start;
  if (typeof function_ === "string") {
    const address = native.symbol(function_);
    if (address === undefined)
      throw new RangeError(`no function of the name ${function_}`);
    return address;
  }
  throw new TypeError(
    "a native function is an address (BigInt), a name, or a Code",
  );
}

/** One scope, and its trace once it is closed. */
class ScopedTrace {
  #site;
  #sink;
  #handle = 0;
  #trace;
  #facts;
  /** What the function of `scope` returned. */
  value = undefined;

  constructor(site, sink) {
    this.#site = site;
    this.#sink = sink;
  }

  /** Where it was opened: full path, line, column. */
  get site() {
    const { file, line, column } = this.#site;
    return `${file}:${line}:${column}`;
  }
  /** The instructions that ran, as assembly: each once, with how often it ran. */
  get path() {
    return this.assembly();
  }
  /** Something was recorded, and all of it: the interrupted flow of this thread, signal handlers excluded. */
  get complete() {
    return this.#known()[0];
  }
  /** Something may be missing: see `reasons`. */
  get truncated() {
    return this.#known()[1].length > 0;
  }
  get reasons() {
    return this.#known()[1];
  }
  /** How it was seen. */
  get tier() {
    return this.#known()[2];
  }
  /** Why nothing was recorded; null if something was. */
  get skipReason() {
    return this.#known()[3];
  }
  /** How many instructions ran, iterations of `rep` each. */
  get instructions() {
    return this.#known()[4];
  }
  get traps() {
    return this.#known()[5];
  }
  /** The addresses in the order they ran, each as often as it ran. */
  get addresses() {
    return this.skipReason === null ? native.addresses(this.#trace) : [];
  }
  /** The instructions in the order they ran; a repeated `rep` is one step. */
  get steps() {
    const steps = this.skipReason === null ? native.steps(this.#trace) : [];
    return steps.map(([address, count, bytes, next]) => ({
      address,
      count,
      bytes,
      next,
    }));
  }
  /** What all passes of this call site took. */
  get totals() {
    const { file, line, column } = this.#site;
    const [passes, traps, seconds] = native.totals(file, line, column);
    return { passes, traps, seconds };
  }
  /** The folded call tree. */
  tree(lines = TREE_LINES) {
    return this.#text("tree", "intel", lines);
  }
  /** All of it as assembly, in "intel" or "att" syntax. */
  assembly(syntax = "intel") {
    return this.#text("full", syntax, 0);
  }
  /** One JSON object with every step in order. */
  json(syntax = "intel") {
    return this.#text("json", syntax, 0);
  }

  /** Ends the scope, or throws a `ScopeError`. */
  close() {
    const refused = this.#end(CLOSE);
    if (refused !== "") throw new ScopeError(refused);
  }

  /** Ends the scope if it is open: what is wrong is one of its reasons. */
  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.#end(ABANDON);
  }

  /** @internal */
  _open(asked) {
    watch(this);
    this.#handle = native.open(...asked);
  }

  /** @internal */
  _abandon() {
    this.#end(ABANDON);
  }

  /** @internal */
  _suspend() {
    this.#end(SUSPEND);
  }

  /** @internal */
  _take(answer) {
    this.#trace = answer.pop();
    this.#facts = answer;
    this.#emit();
  }

  #end(ending) {
    if (this.#facts !== undefined) return "AlreadyClosed";
    const answer = native.close(this.#handle, ending);
    if (typeof answer !== "object") return answer ?? "NoSuchScope";
    native.pause();
    try {
      openScopes.delete(this);
      this._take(answer);
    } finally {
      native.resume();
    }
    return "";
  }

  #text(how, syntax, lines) {
    const skipped = this.skipReason;
    if (skipped === null) return native.text(this.#trace, how, syntax, lines);
    if (how !== "json") return `skipped: ${skipped}\n`;
    return JSON.stringify({
      status: "truncated",
      reasons: [],
      tier: this.tier,
      skip_reason: skipped,
      instructions: 0,
      verified: [],
      assumed: [],
      trace: [],
    });
  }

  #known() {
    if (this.#facts === undefined) throw new ScopeError("NotClosed");
    return this.#facts;
  }

  #emit() {
    const sink = this.#sink;
    if (sink === true) process.stdout.write(this.#headed(this.tree()));
    else if (typeof sink === "string")
      fs.appendFileSync(sink, this.#headed(this.assembly()));
    else if (typeof sink === "function") sink(this.#headed(this.tree()));
  }

  #headed(text) {
    return `scope ${this.site}\n${text}`;
  }
}

function prepared(below, code, options) {
  const { backend = HwBackend.Auto, emit = true } = options;
  const { maxTraps = 0, maxSeconds = 0 } = options;
  if (!Object.values(HwBackend).includes(backend))
    throw new RangeError(`no backend ${backend}`);
  const site = siteOf(below);
  const range =
    code == null || code instanceof Code ? code : Code.function(code);
  const asked = [range?.start ?? null, range?.end ?? null, backend];
  asked.push(maxTraps, Math.round(maxSeconds * 1e9));
  asked.push(site.file, site.line, site.column);
  return { scope: new ScopedTrace(site, emit), asked };
}

function paused(work) {
  native.pause();
  try {
    return work();
  } finally {
    native.resume();
  }
}

/**
 * Calls `body` in a scope of the native `code` (null: everything that this thread runs) and returns the closed scope,
 * with what `body` returned as `value`. A promise ends the scope there and then: what follows is not in it.
 */
function scope(code, body, options = {}) {
  const made = paused(() => prepared(scope, code, options));
  const opened = made.scope;
  opened._open(made.asked);
  try {
    opened.value = body(opened);
  } catch (error) {
    opened._abandon();
    throw error;
  }
  if (typeof opened.value?.then === "function") opened._suspend();
  else opened._abandon();
  return opened;
}

/** Opens a scope for `using`, or for `close()`. */
function open(code = null, options = {}) {
  const made = paused(() => prepared(open, code, options));
  made.scope._open(made.asked);
  return made.scope;
}

/**
 * Calls a C function in a scope of its own, and nothing else in it: at most six integers, and it returns. The result is
 * `value`, an unsigned BigInt.
 */
function call(function_, args = [], options = {}) {
  return paused(() => {
    const made = prepared(call, options.code, options);
    const six = Array.from(args, (arg) => BigInt.asUintN(64, BigInt(arg)));
    const address = addressOf(function_);
    const [value, trace] = native.call(address, six, ...made.asked);
    made.scope.value = value;
    made.scope._take(trace);
    return made.scope;
  });
}

module.exports = {
  Code,
  HwBackend,
  ScopeError,
  ScopedTrace,
  call,
  open,
  scope,
};
