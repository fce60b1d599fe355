'use strict';
// Joins the recording and sets the hooks, before any code of the program. Knows the order of things.

/** As `worker_threads` has it, whose loading would cost a third of the start. */
const isMainThread = process.abort.disabled !== true;

/** The name that inserted code calls; `src/rewrite/pieces.rs` has it too. */
const HELPER = '$scalpel';

const KINDS = { runtime: 1, blindSpot: 2, refusal: 4, unseen: 7 };

/** Why functions may run unseen. */
const UNSEEN = { before: 1, unread: 3, unwatched: 4 };

/** Files that are told one by one, and the longest path that is not cut. */
const MOST_FILES = 100;
const LONGEST_PATH = 232;

const BLIND_SPOTS = [
  'code of Node.js itself and built-in functions: seen natively only',
  'eval, new Function and vm scripts without a file name: left as they are',
  'initializers of class fields, static blocks, default parameters: part of whoever runs them',
  'code that ran before this preload: snapshots, single executable applications, earlier --require',
  'children and workers that are started without NODE_OPTIONS',
];

/**
 * @param {string} preload path of the file that is preloaded, for workers that do not inherit it
 */
function start(preload) {
  if (globalThis[HELPER] !== undefined) return;
  // A worker may have an empty environment in a process that has joined.
  if (isMainThread && !process.env.SCALPEL_SOCKET) return;
  const addon = require('./scalpel.node');
  const refusal = addon.connect(`Node.js ${process.versions.node}`);
  if (refusal !== undefined) return;
  const mode = addon.option('mode');
  if (mode === 'v8' && !require('./coverage.js').start(addon)) {
    addon.note(KINDS.unseen, UNSEEN.unwatched, '');
    return;
  }
  const probe = { addon, mode, preload, helper: makeHelper(addon), isMainThread, HELPER };
  Object.defineProperty(globalThis, HELPER, { value: probe.helper });
  const realm = [require('./source.js'), require('./stack.js')];
  // Last the one that has files rewritten, so that none of ours is.
  const hooks = [
    require('./context.js'),
    require('./worker.js'),
    require('./child.js'),
    require('./fatal.js'),
    require('./esm.js'),
    require('./load.js'),
  ];
  for (const part of realm) part.install(probe, globalThis);
  for (const hook of hooks) hook.install(probe);
  if (isMainThread) {
    tell(addon, mode);
    tellLoaded(probe);
    deepen(addon);
  }
}

/** Which files were loaded before: what ran of them then was not seen, nor is it now. */
function tellLoaded({ addon, mode, preload }) {
  // The last moments of a process, and all of one that is killed, are in no coverage.
  if (mode === 'v8') addon.note(KINDS.unseen, UNSEEN.unwatched, '');
  const own = preload.slice(0, preload.lastIndexOf('/') + 1);
  const files = Object.keys(require.cache).filter((file) => !file.startsWith(own));
  const isToldWhole = files.length > MOST_FILES || files.some((file) => Buffer.byteLength(file) > LONGEST_PATH);
  for (const file of isToldWhole || hasSnapshot() ? [''] : files) addon.note(KINDS.unseen, UNSEEN.before, file);
  // The text in it is compiled by no hook, and which files it was made of is not known.
  if (isSingleExecutable()) addon.note(KINDS.unseen, UNSEEN.unread, '');
}

/** Nobody knows what lies in a snapshot. */
function hasSnapshot() {
  const flags = [...process.execArgv, ...String(process.env.NODE_OPTIONS ?? '').split(/[\s"]+/)];
  return flags.some((flag) => flag.startsWith('--snapshot-blob')) && !flags.includes('--build-snapshot');
}

/** Whether the program is part of the executable. Before 20.12 nothing tells but that it is its own script. */
function isSingleExecutable() {
  try {
    return require('node:sea').isSea();
  } catch {
    const [, script] = process.argv;
    return script !== undefined && sameFile(script, process.execPath);
  }
}

function sameFile(one, other) {
  const fs = require('fs');
  try {
    return fs.realpathSync(one) === fs.realpathSync(other);
  } catch {
    // Found by $PATH.
    return other.endsWith(`/${one}`);
  }
}

/** What inserted code calls; the rest of it is made by the addon. */
function makeHelper(addon) {
  const helper = addon.helper();
  helper.v = (value) => value;
  return Object.freeze(helper);
}

function tell(addon, mode) {
  const how = mode === 'v8' ? 'V8 precise coverage' : `load-time rewrite, ${mode} mode`;
  addon.note(KINDS.runtime, 0, `Node.js ${process.versions.node}, ${how}`);
  for (const text of BLIND_SPOTS) addon.note(KINDS.blindSpot, 0, text);
  if (mode === 'call' && !addon.turns())
    addon.note(KINDS.blindSpot, 0, 'the end of a module by an exception: what runs later seems to be called by it');
}

/** Frames of rewritten functions are larger: without more stack, recursion would end earlier than it did. */
function deepen(addon) {
  const chosen = process.execArgv.some((flag) => /^--stack[-_]size/.test(flag));
  if (chosen || !addon.deepen())
    addon.note(KINDS.blindSpot, 0, 'recursion ends at about half the depth: the stack could not be made larger');
}

module.exports = { start };
