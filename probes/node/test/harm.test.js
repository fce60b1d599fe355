'use strict';
// With the probe a program does what it does without: output, errors, exit code, descriptors, threads, signals, stack depth.
const assert = require('assert');
const { test } = require('node:test');
const { MAJOR, plain, program, record } = require('./harness.js');

const MODES = ['call', 'count'];

/** What differs by itself from run to run. */
const steady = (text) => text.replace(/\(node:\d+\)/g, '(node:PID)');

function same(args, options) {
  const without = plain(args, options);
  for (const mode of MODES) {
    const recorded = record(args, { ...options, mode });
    assert.strictEqual(steady(recorded.stdout), steady(without.stdout), `${mode}: stdout`);
    assert.strictEqual(steady(recorded.stderr), steady(without.stderr), `${mode}: stderr`);
    assert.strictEqual(recorded.code, without.code, `${mode}: exit code`);
    assert.ok(options?.unseen || recorded.hellos.length > 0, `${mode}: the probe was there`);
  }
}

test('a program that looks for the probe finds nothing', () => same([program('mirror.js')]));

for (const way of [
  'alone',
  'line',
  'returned',
  'arrow',
  'primitive',
  'later',
  'awaited',
  'made',
  'caught',
  'exit',
  'deep',
]) {
  test(`an end by exception reads the same: ${way}`, () => same([program('throws.js'), way]));
}

test('without addons, or with V8 coverage of its own, the program runs on', () => {
  same(['--no-addons', program('throws.js'), 'line'], { unseen: true });
  same(['--no-addons', program('throws.js'), 'exit'], { unseen: true });
});

test(
  'under the permission model the program runs on',
  { skip: MAJOR < 22 && 'Node.js 20 reads no preloaded file there' },
  () => {
    same(['--permission', '--allow-fs-read=*', program('throws.js'), 'exit'], { unseen: true });
  },
);

test('children that set the permission model themselves start', () => {
  const lines = (text) => text.split('\n').sort();
  const without = plain([program('permission.js')]);
  assert.match(without.stdout, /child parent false/);
  for (const mode of MODES) {
    const recorded = record([program('permission.js')], { mode });
    assert.deepStrictEqual(lines(recorded.stdout), lines(without.stdout));
    assert.strictEqual(recorded.stderr, without.stderr);
    assert.ok(recorded.hellos.length > 0);
  }
});

test('exceptions with source maps enabled read the same', () => {
  for (const way of ['alone', 'line', 'awaited']) same(['--enable-source-maps', program('throws.js'), way]);
});

test('the user keeps his own V8 coverage', () => {
  const fs = require('fs');
  const os = require('os');
  const path = require('path');
  for (const collector of [[], ['--option', 'node-coverage=v8']]) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'scalpel-v8-'));
    const recorded = record([program('throws.js'), 'exit'], {
      mode: 'count',
      env: { NODE_V8_COVERAGE: folder },
      collector,
    });
    assert.strictEqual(recorded.code, 9);
    const [file] = fs.readdirSync(folder);
    const { result } = JSON.parse(fs.readFileSync(path.join(folder, file)));
    const [script] = result.filter(({ url }) => url.endsWith('throws.js'));
    const exit = script.functions.find(({ functionName }) => functionName === 'exit');
    assert.strictEqual(exit.ranges[0].count, 1);
    fs.rmSync(folder, { recursive: true });
  }
});

test('recursion goes as deep as it did', () => {
  const without = Number(plain([program('depth.js')]).stdout);
  for (const mode of MODES) {
    const { stdout, code } = record([program('depth.js')], { mode, collector: ['--quiet'] });
    assert.strictEqual(code, 0);
    assert.ok(Number(stdout) >= without, `${mode}: ${stdout} of ${without} frames`);
  }
});
