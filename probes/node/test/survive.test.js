'use strict';
// What was recorded outlives a killed process and a terminated worker; children, clusters and their own ends are theirs.
const assert = require('assert');
const { test } = require('node:test');
const { calls, plain, program, record } = require('./harness.js');

const counted = (recorded, mode) => {
  const ids = recorded.processes.flatMap(({ functions }) => functions.filter(({ name }) => name === 'counted'));
  const sums = calls(recorded, mode);
  return ids.reduce((sum, { func }) => sum + (sums.get(func) ?? 0), 0);
};

for (const mode of ['call', 'count']) {
  test(`${mode} mode: all that a killed process had recorded is there, with its name`, () => {
    for (let time = 0; time < 10; time++) {
      const times = 1 + Math.floor(Math.random() * 20000);
      const recorded = record([program('killed.js')], { mode, env: { CALLS: String(times) } });
      assert.strictEqual(counted(recorded, mode), times);
      assert.notStrictEqual(recorded.code, 0);
    }
  });

  test(`${mode} mode: all that a terminated worker had recorded is there`, () => {
    const recorded = record([program('killed.js')], { mode, env: { CALLS: '5000', WAY: 'worker' } });
    assert.strictEqual(recorded.code, 0);
    assert.strictEqual(counted(recorded, mode), 5000);
  });
}

test('each child and each worker of a cluster is recorded by itself', () => {
  const without = plain([program('family.js')]);
  const recorded = record([program('family.js')]);
  const lines = (text) => text.split('\n').sort();
  assert.deepStrictEqual(lines(recorded.stdout), lines(without.stdout));
  assert.strictEqual(recorded.stderr, without.stderr);
  assert.strictEqual(recorded.hellos.length, 4);
  const work = recorded.events.filter(({ kind, name }) => kind === 'Enter' && name === 'work');
  assert.strictEqual(new Set(work.map(({ pid }) => pid)).size, 4);
});

test('a collector that is gone leaves the program as it was', () => {
  const env = { SCALPEL_SOCKET: '/nonexistent/socket' };
  const { spawnSync } = require('child_process');
  const { NODE, injected } = require('./harness.js');
  const options = { encoding: 'utf8' };
  const gone = spawnSync(NODE, [program('mirror.js')], { ...options, env: injected(env) });
  const never = spawnSync(NODE, [program('mirror.js')], { ...options, env: { ...process.env, ...env } });
  assert.strictEqual(gone.stdout, never.stdout);
  assert.strictEqual(gone.stderr, never.stderr);
  assert.strictEqual(gone.status, never.status);
});
