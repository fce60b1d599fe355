'use strict';
// Parses TypeScript's own compiler $TIMES times; prints how much processor time one took in ns, loading left out.
const fs = require('fs');
const path = require('path');

const home = path.join(process.env.SCALPEL_PACKAGES, 'node_modules/typescript/lib');
const ts = require(path.join(home, 'typescript.js'));
const text = fs.readFileSync(path.join(home, 'lib.dom.d.ts'), 'utf8');
const times = Number(process.env.TIMES ?? 5);

const parse = () => ts.createSourceFile('a.ts', text, ts.ScriptTarget.Latest, true).getChildCount();
parse();
const start = process.cpuUsage();
for (let i = 0; i < times; i++) parse();
const { user, system } = process.cpuUsage(start);
console.error(JSON.stringify({ ns: ((user + system) * 1e3) / times }));
