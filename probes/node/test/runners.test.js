'use strict';
// Test runners show the code under test, and print what they print without the probe.
const assert = require('assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { test } = require('node:test');
const { PACKAGES, calls, plain, record } = require('./harness.js');

const FILES = {
  'package.json': '{ "name": "under-test", "version": "1.0.0" }',
  'sum.js': `function sum(a, b) { return a + b; }
async function later(a) { await null; return sum(a, 1); }
class Total { constructor() { this.n = 0; } add(x) { this.n = sum(this.n, x); return this; } }
module.exports = { sum, later, Total };`,
  'jest/sum.test.js': `const { sum, later, Total } = require('../sum.js');
test('sum', () => { expect(sum(1, 2)).toBe(3); });
test('later', async () => { expect(await later(1)).toBe(2); });
test('total', () => { expect(new Total().add(2).add(3).n).toBe(5); });`,
  'mocha/sum.js': `const assert = require('assert');
const { sum, later, Total } = require('../sum.js');
describe('sum', () => {
  it('adds', () => assert.equal(sum(1, 2), 3));
  it('later', async () => assert.equal(await later(1), 2));
  it('total', () => assert.equal(new Total().add(2).add(3).n, 5));
  it('fails', () => assert.equal(sum(1, 1), 3));
});`,
  'vitest/sum.ts': `export interface Two { a: number; b: number }
export function sum({ a, b }: Two): number { return a + b }
export const later = async (a: number): Promise<number> => { await null; return sum({ a, b: 1 }) }
export class Total { n = 0; add(x: number): this { this.n = sum({ a: this.n, b: x }); return this } }`,
  'vitest/sum.test.ts': `import { expect, test } from 'vitest'
import { later, sum, Total } from './sum'
test('sum', () => { expect(sum({ a: 1, b: 2 })).toBe(3) })
test('later', async () => { expect(await later(1)).toBe(2) })
test('total', () => { expect(new Total().add(2).add(3).n).toBe(5) })`,
};

/** A project whose packages are the tests'. */
function project() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'scalpel-runner-'));
  for (const [name, text] of Object.entries(FILES)) {
    fs.mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    fs.writeFileSync(path.join(folder, name), text);
  }
  fs.symlinkSync(path.join(PACKAGES, 'node_modules'), path.join(folder, 'node_modules'));
  return folder;
}

/** Without what times and colours make of it. */
const steady = (text) =>
  text
    .replace(/\d+(\.\d+)? ?m?s\b|\d\d:\d\d:\d\d|, estimated/g, 'T')
    .replace(/ \(T\)/g, '')
    .replace(/^.*(Time|Duration|Start at).*$/gm, '');

const RUNNERS = {
  jest: ['node_modules/jest/bin/jest.js', '--rootDir', '.', '--no-cache', '-i', 'jest'],
  mocha: ['node_modules/mocha/bin/mocha.js', 'mocha/sum.js'],
  'vitest, processes': ['node_modules/vitest/vitest.mjs', 'run', '--root', 'vitest'],
  'vitest, threads': ['node_modules/vitest/vitest.mjs', 'run', '--root', 'vitest', '--pool', 'threads'],
  'vitest, contexts': ['node_modules/vitest/vitest.mjs', 'run', '--root', 'vitest', '--pool', 'vmThreads'],
};

for (const [name, args] of Object.entries(RUNNERS)) {
  test(`${name} shows the code under test`, { skip: !PACKAGES && 'no packages' }, () => {
    const cwd = project();
    const env = { NO_COLOR: '1', FORCE_COLOR: '0', CI: '' };
    const without = plain(args, { cwd, env });
    const recorded = record(args, { cwd, env, collector: ['--option', 'node-exclude=**/node_modules/**'] });
    fs.rmSync(cwd, { recursive: true });
    assert.strictEqual(recorded.code, without.code);
    assert.strictEqual(steady(recorded.stdout), steady(without.stdout));
    assert.strictEqual(steady(recorded.stderr), steady(without.stderr));
    const entered = (name) => recorded.events.filter((event) => event.kind === 'Enter' && event.name === name).length;
    assert.strictEqual(entered('sum'), name === 'mocha' ? 5 : 4);
    assert.strictEqual(entered('later'), 1);
    assert.strictEqual(entered('Total.add'), 2);
  });
}

/** Packages that come with their own tests, copied out of `node_modules`: each is the code under test. */
function withOwnTests(packages) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'scalpel-real-'));
  fs.writeFileSync(path.join(folder, 'package.json'), FILES['package.json']);
  fs.symlinkSync(path.join(PACKAGES, 'node_modules'), path.join(folder, 'node_modules'));
  for (const name of packages)
    fs.cpSync(path.join(PACKAGES, 'node_modules', name), path.join(folder, name), { recursive: true });
  return folder;
}

const CIPHERS = ['des.js', 'hash.js', 'hpack.js'];

const REAL = {
  mocha: {
    packages: CIPHERS,
    args: ['node_modules/mocha/bin/mocha.js', ...CIPHERS.map((name) => `${name}/test/*-test.js`)],
    // OpenSSL has no DES any more: failures and their stacks are compared too.
    says: /112 passing[^]*10 failing/,
    code: 10,
    functions: 100,
  },
  jest: {
    packages: CIPHERS,
    args: [
      'node_modules/jest/bin/jest.js',
      '--rootDir',
      '.',
      '--no-cache',
      '--cacheDirectory',
      'cache',
      '-i',
      '--transform',
      '{}',
      '--testRegex',
      '[-]test.js$',
    ],
    says: /10 failed, 112 passed, 122 total/,
    code: 1,
    functions: 100,
  },
  vitest: {
    packages: ['zod'],
    args: [
      'node_modules/vitest/vitest.mjs',
      'run',
      '--root',
      'zod',
      '--pool',
      'threads',
      // What takes long is listed, and given up.
      '--slowTestThreshold',
      '600000',
      '--testTimeout',
      '60000',
      ...['string', 'object', 'record', 'async-parsing', 'error'].map((name) => `src/v4/classic/tests/${name}.test.ts`),
      ...['object', 'string', 'unions', 'async-parsing', 'error'].map((name) => `src/v3/tests/${name}.test.ts`),
    ],
    says: /Tests {2}\d{3} passed/,
    code: 0,
    functions: 400,
  },
};

/** Lines that a run prints, in any order: files are run at once, and runners start with what took longest the last time. */
const lines = (text) =>
  steady(text)
    .split('\n')
    .map((line) => line.trimEnd())
    .sort();

/** Calls of named functions below a module: how often a file is loaded is the runner's affair. */
function called(recorded, mode) {
  const sums = calls(recorded, mode);
  const found = new Map();
  for (const { functions } of recorded.processes) {
    for (const { func, name, file, line } of functions) {
      const [, place] = /((?:des|hash|hpack)\.js\/lib\/.*)/.exec(file) ?? [];
      if (!place || name === '(module)' || !sums.has(func)) continue;
      const key = `${place}:${line} ${name}`;
      found.set(key, (found.get(key) ?? 0) + sums.get(func));
    }
  }
  return [...found].sort();
}

const counted = new Map();

for (const [name, { packages, args, says, code, functions }] of Object.entries(REAL)) {
  test(`${name} runs the tests of real packages as without the probe`, { skip: !PACKAGES && 'no packages' }, () => {
    const cwd = withOwnTests(packages);
    const env = { NO_COLOR: '1', FORCE_COLOR: '0', CI: '' };
    const options = {
      cwd,
      env,
      collector: ['--option', 'node-exclude=**/node_modules/**', '--slots', '65536', '--lanes', '64'],
    };
    const run = (how, more) => {
      fs.rmSync(path.join(cwd, 'cache'), { recursive: true, force: true });
      return how(args, { ...options, ...more });
    };
    const without = run(plain);
    assert.strictEqual(without.code, code, without.stdout + without.stderr);
    assert.match(without.stdout + without.stderr, says);
    for (const mode of ['call', 'count']) {
      const collector = mode === 'call' ? [...options.collector, '--quiet'] : options.collector;
      const recorded = run(record, { mode, collector });
      assert.strictEqual(recorded.code, code, mode);
      assert.deepStrictEqual(lines(recorded.stdout), lines(without.stdout), `${mode}: stdout`);
      assert.deepStrictEqual(lines(recorded.stderr), lines(without.stderr), `${mode}: stderr`);
      if (mode === 'call') continue;
      const sums = calls(recorded, mode);
      assert.ok(sums.size > functions, `only ${sums.size} functions of the packages ran`);
      if (packages === CIPHERS) counted.set(name, called(recorded, mode));
    }
    fs.rmSync(cwd, { recursive: true });
  });
}

test('two runners call the code under test equally often', { skip: !PACKAGES && 'no packages' }, () => {
  assert.ok(counted.get('mocha').length > 40, `only ${counted.get('mocha').length} functions`);
  assert.deepStrictEqual(counted.get('jest'), counted.get('mocha'));
});
