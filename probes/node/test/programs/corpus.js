'use strict';
// Rewrites every file that is named on standard input, and asks V8: what compiled before must compile after, with the same
// lines, and the original must come back from the rewritten text. Prints one line of JSON.
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const probe = process.env.PROBE;
const addon = require(path.join(probe, 'lib/scalpel.node'));
const { original } = require(path.join(probe, 'lib/source.js'));

const compiles = (text, kind) => {
  try {
    if (kind === 2) new vm.SourceTextModule(text);
    else vm.compileFunction(text, ['exports', 'require', 'module', '__filename', '__dirname']);
    return true;
  } catch {
    return false;
  }
};

const sums = { files: 0, unreadable: 0, rewritten: 0, functions: 0, faults: [] };
for (const file of fs.readFileSync(0, 'utf8').split('\n').filter(Boolean)) {
  const text = fs.readFileSync(file, 'utf8');
  if (text.includes('$scalpel')) continue;
  const kind = [1, 2].find((kind) => compiles(text, kind));
  if (kind === undefined) continue;
  sums.files++;
  const loaded = addon.load(text, file, kind, false, sums.files % 2 === 0, 0, 0);
  if (loaded.module === 0 && loaded.text === undefined) sums.unreadable++;
  if (loaded.text === undefined) continue;
  sums.rewritten++;
  sums.functions += loaded.text.match(/\$scalpel(?:\$h)?\.(?:[eamo]\(|c\[)/g).length;
  if (!compiles(loaded.text, kind)) sums.faults.push(`${file}: does not compile`);
  if (original(loaded.text) !== text) sums.faults.push(`${file}: the original does not come back`);
  if (loaded.text.split('\n').length !== text.split('\n').length) sums.faults.push(`${file}: other lines`);
}
console.log(JSON.stringify(sums));
