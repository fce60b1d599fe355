'use strict';
// Calls by function are those that V8 counts in the same process; call mode and count mode agree.
const assert = require('assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { test } = require('node:test');
const { PACKAGES, calls, program, record } = require('./harness.js');

/** Runs a program with V8 counting beside the probe; both answers by file and range. */
function both(name, mode, env) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'scalpel-oracle-'));
  const oracle = path.join(folder, 'oracle.json');
  // A module looks for packages beside itself, and nowhere else.
  const file = name.endsWith('.mjs') ? path.join(folder, name) : program(name);
  if (name.endsWith('.mjs')) {
    fs.copyFileSync(program(name), file);
    fs.symlinkSync(path.join(PACKAGES, 'node_modules'), path.join(folder, 'node_modules'));
  }
  const recorded = record(['--require', program('oracle.js'), file], {
    mode,
    env: { ...env, ORACLE: oracle, NODE_PATH: PACKAGES && path.join(PACKAGES, 'node_modules') },
    collector: ['--slots', '1048576', '--lanes', '8'],
  });
  assert.strictEqual(recorded.code, 0, recorded.stderr);
  const told = JSON.parse(fs.readFileSync(oracle));
  fs.rmSync(folder, { recursive: true });
  return { recorded, v8: byRange(told.filter((one) => one.count > 0)), ours: ours(recorded, mode) };
}

const key = ({ file, start, end }) => `${file}:${start}-${end}`;

function byRange(functions) {
  const found = new Map();
  for (const one of functions) found.set(key(one), (found.get(key(one)) ?? 0) + one.count);
  return found;
}

function ours(recorded, mode) {
  const sums = calls(recorded, mode);
  const [{ functions }] = recorded.processes;
  return byRange(functions.filter(({ func }) => sums.has(func)).map((one) => ({ ...one, count: sums.get(one.func) })));
}

/** What differs, as lines; the oracle's own file is not the program's. */
function differences(v8, ours) {
  const keys = new Set([...v8.keys(), ...ours.keys()]);
  const differs = (key) => v8.get(key) !== ours.get(key);
  const apart = [...keys].filter((key) => differs(key) && !/programs.oracle.js|probes.node.preload.js/.test(key));
  return apart.map((key) => `${key}: V8 ${v8.get(key)}, probe ${ours.get(key)}`);
}

// Seven paths a round.
for (const [mode, rounds] of [
  ['call', 100],
  ['count', 1429],
]) {
  const requests = 7 * rounds;
  test(
    `express, ${requests} requests, ${mode} mode: functions and counts are those of V8`,
    { skip: !PACKAGES && 'no packages' },
    () => {
      const { v8, ours, recorded } = both('express.js', mode, { REQUESTS: String(requests) });
      assert.deepStrictEqual(JSON.parse(recorded.stdout), {
        200: 3 * rounds,
        201: rounds,
        404: rounds,
        500: 2 * rounds,
      });
      assert.ok(ours.size > 200, `only ${ours.size} functions`);
      assert.deepStrictEqual(differences(v8, ours), []);
      const [{ functions }] = recorded.processes;
      assert.ok(functions.every(({ lost }) => lost === 0));
    },
  );
}

for (const mode of ['call', 'count']) {
  test(
    `fastify, 300 requests, ${mode} mode: functions and counts are those of V8`,
    { skip: !PACKAGES && 'no packages' },
    () => {
      const { v8, ours, recorded } = both('fastify.js', mode, { REQUESTS: '300' });
      assert.deepStrictEqual(JSON.parse(recorded.stdout), { 200: 100, 400: 100, 500: 100 });
      assert.ok(ours.size > 300, `only ${ours.size} functions`);
      assert.deepStrictEqual(differences(v8, ours), []);
    },
  );
}

for (const mode of ['call', 'count']) {
  test(
    `modules of the registry, ${mode} mode: functions, bodies of modules and counts are those of V8`,
    {
      skip: !PACKAGES && 'no packages',
    },
    () => {
      const { v8, ours, recorded } = both('packages.mjs', mode, {});
      const bodies = [...ours.keys()].filter((key) => /\.m?js:0-\d+$/.test(key));
      assert.strictEqual(recorded.stderr, '');
      assert.ok(bodies.length > 200, `only ${bodies.length} bodies of modules`);
      assert.ok(ours.size > 600, `only ${ours.size} functions`);
      assert.deepStrictEqual(differences(v8, ours), []);
    },
  );
}
