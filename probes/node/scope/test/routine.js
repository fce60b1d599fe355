"use strict";
// What the tests share: routines in executable memory, and the corpus.
const fs = require("node:fs");
const path = require("node:path");
const tr = require("..");

/** Time is no matter here: other work may run on this machine. */
const QUIET = { emit: null, maxSeconds: 60 };
/** `mov ecx, edi; dec ecx; jnz; ret`: 2 + 2n instructions. */
const SPIN = "89f9ffc975fcc3";

const corpus = () =>
  JSON.parse(
    fs.readFileSync(
      path.join(__dirname, "../../../scope/corpus/routines.json"),
      "utf8",
    ),
  ).routines;

const code = (hex) => tr.Code.bytes(Buffer.from(hex, "hex"));

const offsets = (routine, trace) =>
  trace.addresses.map((address) => Number(address - routine.start));

/** What of a run of the corpus is not as it is written there; null = all is. */
function wrong(routine, run, trace) {
  const steps = trace.steps.map(({ address, count }) => [
    Number(address - routine.start),
    count,
  ]);
  if (trace.skipReason !== null) return trace.skipReason;
  if (!trace.complete || trace.truncated) return trace.reasons.join();
  if (trace.tier !== "single-step") return trace.tier;
  if (JSON.stringify(steps) !== JSON.stringify(run.steps))
    return JSON.stringify(steps);
  if (trace.instructions !== run.instructions) return trace.instructions;
  if (run.result !== null && trace.value !== BigInt(run.result))
    return trace.value;
  return null;
}

module.exports = { QUIET, SPIN, code, corpus, offsets, wrong };
