"use strict";
// What the surface promises: forms, names, order, threads, output.
const assert = require("node:assert");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { Worker } = require("node:worker_threads");
const tr = require("..");
const { QUIET, SPIN, code, offsets } = require("./routine.js");

const spin = code(SPIN);

test("a scope is named by its place in the source", () => {
  const t = tr.call(spin, [1], QUIET);
  assert.match(t.site, /^\/.*surface\.test\.js:\d+:\d+$/);
  assert.ok(t.site.startsWith(__filename));
});

test("a window shows what the thread runs", () => {
  const body = () => Math.max(1, 2);
  body();
  const t = tr.scope(null, body, QUIET);
  assert.strictEqual(t.value, 2);
  assert.strictEqual(t.skipReason, null);
  assert.ok(t.instructions > 10);
  assert.ok(t.complete || t.reasons.includes("budget"), t.reasons.join());
  const again = tr.scope(null, body, QUIET);
  assert.ok(again.complete, again.reasons.join());
});

test("a function is found by its name", () => {
  const labs = tr.Code.function("labs");
  assert.ok(labs.end > labs.start);
  const t = tr.call("labs", [-7], QUIET);
  assert.strictEqual(t.value, 7n);
  assert.ok(t.complete);
  assert.ok(t.addresses.every((at) => at >= labs.start && at < labs.end));
  assert.throws(() => tr.Code.function("no_such_function"), RangeError);
  assert.throws(() => tr.Code.function(8n), RangeError);
  assert.throws(() => tr.call(() => 1), TypeError);
  assert.throws(() => tr.call(spin, [1, 2, 3, 4, 5, 6, 7]), RangeError);
});

test("an exception goes through and closes the scope", () => {
  let inside;
  const body = (t) => {
    inside = t;
    throw new Error("thrown");
  };
  assert.throws(() => tr.scope(spin, body, QUIET), /thrown/);
  assert.strictEqual(inside.skipReason, null);
  assert.deepStrictEqual(inside.addresses, []);
});

test("a double close is an error", () => {
  const t = tr.open(spin, QUIET);
  t.close();
  assert.throws(() => t.close(), { name: "ScopeError", code: "AlreadyClosed" });
});

test("a trace is there when the scope is closed", () => {
  const t = tr.open(spin, QUIET);
  let told;
  try {
    told = t.reasons;
  } catch (error) {
    told = error.code;
  }
  t.close();
  assert.strictEqual(told, "NotClosed");
  assert.deepStrictEqual(t.reasons, []);
});

test("a wrong order is an error and a reason", () => {
  const outer = tr.open(spin, QUIET);
  const inner = tr.open(spin, QUIET);
  let told;
  try {
    outer.close();
  } catch (error) {
    told = error.code;
  }
  outer[Symbol.dispose ?? Symbol.for("Symbol.dispose")]();
  inner.close();
  assert.strictEqual(told, "WrongOrder");
  assert.ok(outer.reasons.includes("wrong order"));
  const again = tr.call(spin, [1], QUIET);
  assert.deepStrictEqual(offsets(spin, again), [0, 2, 4, 6]);
});

test("sixteen nest and the seventeenth is skipped, and ends no other", () => {
  const open = Array.from({ length: 17 }, () => tr.open(spin, QUIET));
  for (const t of open.reverse()) t.close();
  const [last, ...others] = open;
  assert.match(last.skipReason, /16/);
  for (const t of others) assert.strictEqual(t.skipReason, null);
  const again = tr.call(spin, [1], QUIET);
  assert.ok(again.complete);
});

test("a backend that is asked for by name is never replaced", () => {
  for (const backend of [tr.HwBackend.IntelPt, tr.HwBackend.AmdLbr]) {
    const t = tr.call(spin, [1], { ...QUIET, backend });
    assert.ok(t.tier === "none" || t.tier === backend);
    assert.strictEqual(t.tier === "none", t.skipReason !== null);
  }
  assert.throws(() => tr.open(spin, { backend: "fastest" }), RangeError);
});

test("an await inside ends the scope", async () => {
  const waits = async () => {
    await null;
    return 7;
  };
  const t = tr.scope(spin, waits, QUIET);
  assert.ok(t.reasons.includes("async suspend"));
  assert.strictEqual(await t.value, 7);
  const using = tr.open(spin, QUIET);
  await null;
  using[Symbol.dispose ?? Symbol.for("Symbol.dispose")]();
  assert.ok(using.reasons.includes("async suspend"));
  assert.ok(!using.complete);
  const sync = tr.open(spin, QUIET);
  sync.close();
  await null;
  assert.ok(sync.complete, sync.reasons.join());
});

test("a spent budget really stops", () => {
  const t = tr.call(spin, [100_000_000], { ...QUIET, maxTraps: 500 });
  assert.deepStrictEqual(t.reasons, ["budget"]);
  assert.ok(t.traps <= 501);
});

test("workers at once are exact", async () => {
  const source = `
    const { parentPort } = require("node:worker_threads");
    const tr = require(${JSON.stringify(path.join(__dirname, ".."))});
    const spin = tr.Code.bytes(Buffer.from("${SPIN}", "hex"));
    let wrong = 0;
    for (let turns = 1; turns < 60; turns++) {
      const t = tr.call(spin, [turns], { emit: null, maxSeconds: 60 });
      if (!t.complete || t.instructions !== 2 + 2 * turns) wrong++;
    }
    parentPort.postMessage(wrong);`;
  const one = () =>
    new Promise((resolve, reject) => {
      const worker = new Worker(source, { eval: true });
      worker.once("message", resolve);
      worker.once("error", reject);
    });
  assert.deepStrictEqual(await Promise.all([one(), one()]), [0, 0]);
  assert.ok(tr.call(spin, [1], QUIET).complete, "after workers have ended");
});

test("output goes where it is told", () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "scope-"));
  const file = path.join(folder, "trace.txt");
  const told = [];
  for (const emit of [null, false, file, (text) => told.push(text)])
    tr.call(spin, [3], { ...QUIET, emit });
  assert.match(fs.readFileSync(file, "utf8"), /dec ecx x3/);
  assert.strictEqual(told.length, 1);
  assert.match(told[0], /^scope .*surface\.test\.js:\d+/);
  assert.match(told[0], /8 instructions \(single-step\), complete/);
  fs.rmSync(folder, { recursive: true });
});

test("the example of the readme runs", () => {
  const readme = fs.readFileSync(path.join(__dirname, "../README.md"), "utf8");
  const example = readme.split("```js\n")[1].split("```")[0];
  const source = example.replace(
    '"scalpel-scope"',
    JSON.stringify(path.join(__dirname, "..")),
  );
  const told = execFileSync(process.execPath, ["-e", source], {
    encoding: "utf8",
  });
  assert.match(told, /complete: the interrupted flow/);
  assert.match(told, /7n complete true null\n$/);
});

test("renderings say what ran", () => {
  const t = tr.call(spin, [3], QUIET);
  assert.match(t.path, /dec ecx x3/);
  assert.match(t.assembly("att"), /decl %ecx x3/);
  assert.strictEqual(JSON.parse(t.json()).status, "complete");
  assert.throws(() => t.assembly("masm"), RangeError);
});

test("`using` closes, where the runtime has it", (context) => {
  let body;
  try {
    body = new Function(
      "tr",
      "spin",
      "quiet",
      "let kept; { using t = tr.open(spin, quiet); kept = t; } return kept;",
    );
  } catch {
    context.skip(`no \`using\` in Node.js ${process.version}`);
    return;
  }
  assert.ok(body(tr, spin, QUIET).complete);
});
