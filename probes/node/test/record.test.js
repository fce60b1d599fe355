'use strict';
// A whole recording, by `scalpel-ebpf record` ($SCALPEL_RECORDER): Express under load, each count that of V8 in the same process.
const assert = require('assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { spawnSync } = require('child_process');
const { test } = require('node:test');
const { NODE, PACKAGES, PROBE, program } = require('./harness.js');

const RECORDER = process.env.SCALPEL_RECORDER;
// Seven paths a round.
const ROUNDS = 1429;

const SQL = `SELECT f.path AS file, f.text_start AS start, f.text_end AS "end", t.calls AS calls,
  (SELECT coalesce(sum(l.count), 0) FROM losses l WHERE l.func = f.id) AS lost
  FROM functions f JOIN func_total t ON t.func = f.id WHERE f.text_end IS NOT NULL`;

function run(args, env = {}) {
  const ran = spawnSync(RECORDER, args, { encoding: 'utf8', maxBuffer: 1 << 28, env: { ...process.env, ...env } });
  assert.strictEqual(ran.status, 0, ran.stderr);
  return ran.stdout;
}

/** What V8 has counted and what was recorded: calls by file and range, of functions that were called. */
function recorded(mode) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'scalpel-record-'));
  try {
    const [genome, oracle] = ['run.genome', 'oracle.json'].map((name) => path.join(folder, name));
    // What a full lane cannot hold is told, function by function: V8's count is the sum.
    const options = ['--no-kernel', '--probe-mode', mode, '--max-loss', '100', '-o', genome];
    const command = [NODE, '--require', program('oracle.js'), program('express.js')];
    const out = run(['record', ...options, '--', ...command], {
      NODE_PATH: path.join(PACKAGES, 'node_modules'),
      SCALPEL_PROBES: path.dirname(PROBE),
      REQUESTS: String(7 * ROUNDS),
      ORACLE: oracle,
      PROBE,
    });
    const answers = { 200: 3 * ROUNDS, 201: ROUNDS, 404: ROUNDS, 500: 2 * ROUNDS };
    assert.deepStrictEqual(JSON.parse(out), answers);
    const loaded = JSON.parse(fs.readFileSync(oracle));
    const rows = JSON.parse(run(['genome', 'query', genome, SQL, '--json']));
    const lost = rows.reduce((sum, row) => sum + row.lost, 0);
    console.log(`# ${mode}: ${loaded.length} functions loaded, ${rows.length} called, ${lost} calls lost`);
    const ours = rows.map((row) => ({ ...row, count: row.calls + row.lost }));
    return { v8: sums(loaded.filter(({ count }) => count > 0)), ours: sums(ours) };
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

function sums(functions) {
  const found = {};
  for (const { file, start, end, count } of functions) {
    if (/programs.oracle\.js$|probes.node.preload\.js$/.test(file)) continue;
    const key = `${file}:${start}-${end}`;
    found[key] = (found[key] ?? 0) + count;
  }
  return found;
}

const skip = !(RECORDER && PACKAGES) && 'no recorder, or no packages';

test(`express, ${7 * ROUNDS} requests, recorded: both modes count what V8 counts`, { skip }, () => {
  const [call, count] = ['call', 'count'].map(recorded);
  assert.ok(Object.keys(call.ours).length > 200);
  assert.deepStrictEqual(call.ours, call.v8);
  assert.deepStrictEqual(count.ours, count.v8);
  assert.deepStrictEqual(call.ours, count.ours);
});
