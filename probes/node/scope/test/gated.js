"use strict";
// Replays the corpus in a process that gave something up, and tells as JSON.
const fs = require("node:fs");
const tr = require("..");
const { QUIET, code, corpus, wrong } = require("./routine.js");

const handled = () => {
  const status = fs.readFileSync("/proc/self/status", "latin1");
  const caught = /^SigCgt:\s*([0-9a-f]+)/m.exec(status)[1];
  return ((BigInt(`0x${caught}`) >> 4n) & 1n) === 1n;
};

function becomeNobody() {
  process.setgroups([]);
  process.setgid(65534);
  process.setuid(65534);
  // As a program that nobody has started.
  native("prctl", [4, 1, 0, 0, 0]);
}

/** A call by name, within no scope that records. */
const native = (name, args) =>
  tr.call(name, args, { ...QUIET, backend: tr.HwBackend.IntelPt }).value;

function deny() {
  const denied = [298, 321, 101]; // perf_event_open, bpf, ptrace
  const rules = [[0x20, 0, 0, 0]];
  denied.forEach((number, at) =>
    rules.push([0x15, denied.length - at, 0, number]),
  );
  rules.push([0x06, 0, 0, 0x7fff0000], [0x06, 0, 0, 0x00050001]);
  const filter = Buffer.alloc(8 * rules.length);
  rules.forEach(([what, yes, no, k], at) => {
    filter.writeUInt16LE(what, 8 * at);
    filter.writeUInt8(yes, 8 * at + 2);
    filter.writeUInt8(no, 8 * at + 3);
    filter.writeUInt32LE(k, 8 * at + 4);
  });
  const program = Buffer.alloc(16);
  program.writeUInt16LE(rules.length, 0);
  program.writeBigUInt64LE(tr.Code.bytes(filter).start, 8);
  native("prctl", [38, 1, 0, 0, 0]);
  const set = native("prctl", [22, 2, tr.Code.bytes(program).start]);
  if (set !== 0n) throw new Error("no filter");
  if (native("ptrace", [0, 0, 0, 0]) === 0n)
    throw new Error("it does not hold");
}

const cases = corpus().map((given) => [given, code(given.bytes)]);
({ none: () => {}, nobody: becomeNobody, seccomp: deny })[process.argv[2]]();
if (handled()) throw new Error("a handler before the first scope");
const told = { exact: 0, of: 0, handler: false };
for (const [given, routine] of cases) {
  for (const run of given.runs) {
    const trace = tr.call(routine, run.args, QUIET);
    told.exact += wrong(routine, run, trace) === null ? 1 : 0;
    told.of += 1;
    if (trace.skipReason !== null) told.skipped = trace.skipReason;
  }
}
told.handler = handled();
console.log(JSON.stringify(told));
