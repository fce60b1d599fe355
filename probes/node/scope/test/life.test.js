"use strict";
// Scopes by the thousand, real code, and processes with less: nothing is left behind.
const assert = require("node:assert");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const test = require("node:test");
const zlib = require("node:zlib");
const tr = require("..");
const { QUIET, SPIN, code, corpus } = require("./routine.js");

const spin = code(SPIN);
const lines = (file) => fs.readFileSync(file, "utf8").split("\n");

function left() {
  global.gc?.();
  return {
    descriptors: fs.readdirSync("/proc/self/fd").length,
    // Of the addon and its scopes: the runtime makes some of its own.
    rss: process.memoryUsage.rss(),
  };
}

test("a thousand scopes leave nothing", async () => {
  const some = async (times) => {
    for (let turn = 0; turn < times; turn++) {
      const t = tr.call(spin, [1], QUIET);
      assert.ok(t.complete && t.instructions === 4);
    }
    // What JavaScript has let go of is given back between its tasks.
    global.gc?.();
    await new Promise(setImmediate);
  };
  await some(300);
  const before = left();
  await some(1000);
  const after = left();
  assert.strictEqual(after.descriptors, before.descriptors);
  assert.ok(
    after.rss < before.rss + 16 * 2 ** 20,
    `${before.rss} ${after.rss}`,
  );
});

test("a million passes of one site are bounded", () => {
  const passes = (times) => {
    let t;
    for (let turn = 0; turn < times; turn++) {
      t = tr.call(spin, [400], QUIET);
    }
    return t;
  };
  passes(20_000);
  const before = left();
  const t = passes(980_000);
  const after = left();
  assert.ok(
    after.rss < before.rss + 48 * 2 ** 20,
    `${before.rss} ${after.rss}`,
  );
  assert.strictEqual(t.totals.passes, 1_000_000);
  assert.ok(t.totals.traps <= 1_100_000);
  assert.match(t.skipReason, /^budget spent/);
});

const text = "write to someone@example.org, please";
// Each is a call site of its own, with its own budget.
const REAL = {
  "a regular expression": () =>
    within(
      () => /(\w+)@(\w+)\.org/.exec(text).slice(1),
      (body) => tr.scope(null, body, QUIET),
    ),
  "JSON.parse": () =>
    within(
      () => JSON.parse('{"a":[1,2.5,"text"],"b":{"c":null}}'),
      (body) => tr.scope(null, body, QUIET),
    ),
  "JSON.stringify": () =>
    within(
      () => JSON.stringify({ a: [1, 2.5, "text"] }),
      (body) => tr.scope(null, body, QUIET),
    ),
  "a native addon": () =>
    within(
      () => zlib.deflateRawSync(text).toString("hex"),
      (body) => tr.scope(null, body, QUIET),
    ),
};

function within(body, scope) {
  const wanted = body();
  const t = scope(body);
  assert.deepStrictEqual(t.value, wanted);
  assert.strictEqual(t.skipReason, null);
  assert.ok(t.instructions > 0);
  assert.ok(t.complete || t.reasons.join() === "budget", t.reasons.join());
}

for (const [name, run] of Object.entries(REAL))
  test(`${name} computes what it does without`, run);

test("a command that is started inside runs", () => {
  const body = () => execFileSync("/bin/echo", ["42"], { encoding: "utf8" });
  const t = tr.scope(null, body, QUIET);
  assert.strictEqual(t.value, "42\n");
});

const gated = (gate, more = {}) =>
  JSON.parse(
    execFileSync(process.execPath, [path.join(__dirname, "gated.js"), gate], {
      encoding: "utf8",
      env: { ...process.env, ...more },
    }),
  );

test("the corpus is exact as nobody, without a capability", (context) => {
  if (process.getuid() !== 0) {
    context.skip("only root can become nobody");
    return;
  }
  const of = corpus().flatMap((given) => given.runs).length;
  assert.deepStrictEqual(gated("nobody"), { exact: of, of, handler: true });
});

test("the corpus is exact under a filter that denies perf, bpf and ptrace", () => {
  const of = corpus().flatMap((given) => given.runs).length;
  assert.deepStrictEqual(gated("seccomp"), { exact: of, of, handler: true });
});

test("off is off", () => {
  const told = gated("none", { SCALPEL_SCOPE: "off" });
  assert.strictEqual(told.exact, 0);
  assert.strictEqual(told.skipped, "SCALPEL_SCOPE=off");
  assert.ok(!told.handler, "no handler of SIGTRAP");
});

test("the addon's copy is the built one", () => {
  assert.ok(
    lines("/proc/self/maps").some((map) => map.endsWith("scalpel_scope.node")),
  );
});
