'use strict';
// Every file of the installed packages is rewritten, in both modes: V8 compiles it as before, its lines stay, and the original
// comes back.
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const { test } = require('node:test');
const { PACKAGES, program, record } = require('./harness.js');

/** As many as one segment has ids for. */
const CHUNK = 1300;
const LARGEST = 400_000;

function files(folder) {
  const entries = fs.readdirSync(folder, { withFileTypes: true, recursive: true });
  return entries
    .filter((entry) => entry.isFile() && /\.[cm]?js$/.test(entry.name))
    .map((entry) => path.join(entry.parentPath ?? entry.path, entry.name))
    .filter((file) => fs.statSync(file).size < LARGEST)
    .sort();
}

test('packages of the registry', { skip: !PACKAGES && 'no packages' }, () => {
  const all = files(path.join(PACKAGES, 'node_modules')).filter((_, at) => at % 2 === 0);
  const sums = { files: 0, rewritten: 0, functions: 0, unreadable: 0 };
  for (let from = 0; from < all.length; from += CHUNK) {
    const mode = (from / CHUNK) % 2 === 0 ? 'call' : 'count';
    const { stdout, stderr } = record(['--experimental-vm-modules', '--no-warnings', program('corpus.js')], {
      mode,
      input: all.slice(from, from + CHUNK).join('\n'),
      collector: ['--quiet'],
    });
    const { faults, ...more } = JSON.parse(stdout || `{"faults": [${JSON.stringify(stderr)}]}`);
    assert.deepStrictEqual(faults, []);
    for (const [what, count] of Object.entries(more)) sums[what] += count;
  }
  console.log(JSON.stringify(sums));
  assert.ok(sums.files > 5000, `only ${sums.files} files`);
  assert.ok(sums.unreadable <= sums.files / 1000, `${sums.unreadable} of ${sums.files} files could not be read`);
});
