'use strict';
// Test runners show the code under test, and print what they print without the probe.
const assert = require('assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { test } = require('node:test');
const { PACKAGES, plain, record } = require('./harness.js');

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
