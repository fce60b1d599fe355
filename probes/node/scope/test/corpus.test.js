"use strict";
// Every routine of the conformance corpus, called, and as a region around a call within a window.
const assert = require("node:assert");
const test = require("node:test");
const tr = require("..");
const { QUIET, code, corpus, wrong } = require("./routine.js");

for (const given of corpus()) {
  test(`${given.name} is exact`, () => {
    const routine = code(given.bytes);
    for (const run of given.runs) {
      const trace = tr.call(routine, run.args, QUIET);
      assert.strictEqual(wrong(routine, run, trace), null);
      const region = tr.call(routine, run.args, { ...QUIET, code: routine });
      assert.strictEqual(wrong(routine, run, region), null);
    }
  });
}
