'use strict';
// TypeScript that a compiler has compiled: stacks that Node.js maps back, the text of functions and the maps themselves are
// those without the probe, whether the map is in the file or beside it.
const assert = require('assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { test } = require('node:test');
const { PACKAGES, plain, record } = require('./harness.js');

const SOURCE = `// é🕵🏻 コメント
import * as fs from 'fs';
import * as nodeModule from 'module';

interface Point { x: number; y?: number }
enum Colour { Red, Green }
const naïve = <T,>(value: T): T => { if (value === undefined) throw new Error('naïve'); return value };
class Ä<T extends Point> {
  constructor(private readonly points: T[] = []) {}
  get size(): number { return this.points.length }
  fail(): never { throw new TypeError(\`size \${this.size}\`) }
}
async function later(ms: number): Promise<number> { await null; naïve(undefined); return ms }
function caught(work: () => unknown): string { try { work(); return '' } catch (error) { return (error as Error).stack! } }

console.log(caught(() => new Ä([{ x: Colour.Green }]).fail()));
console.log([naïve, Ä, later, caught].map(String).join('\\n'));
const map = (nodeModule as any).findSourceMap(__filename);
console.log(map ? JSON.stringify([map.payload.sources, map.findEntry(9, 10)]) : 'no map');
console.log(fs.readFileSync(__filename, 'utf8').length);
later(1).catch((error) => { console.log(error.stack); new Ä().fail() });
`;

const COMPILERS = {
  tsc(text, inline) {
    const { transpileModule, ModuleKind, ScriptTarget } = require(path.join(PACKAGES, 'node_modules/typescript'));
    const compilerOptions = {
      module: ModuleKind.CommonJS,
      target: ScriptTarget.ES2022,
      sourceMap: !inline,
      inlineSourceMap: inline,
      inlineSources: inline,
    };
    const { outputText, sourceMapText } = transpileModule(text, { compilerOptions, fileName: 'mapped.ts' });
    return { code: outputText, map: sourceMapText };
  },
  esbuild(text, inline) {
    const { transformSync } = require(path.join(PACKAGES, 'node_modules/esbuild'));
    const options = { loader: 'ts', format: 'cjs', minify: true, keepNames: true, sourcefile: 'mapped.ts' };
    const { code, map } = transformSync(text, { ...options, sourcemap: inline ? 'inline' : 'external' });
    return { code: inline ? code : `${code}//# sourceMappingURL=mapped.js.map\n`, map };
  },
};

/** Without the excerpt above an exception that ends the program: the map's is not shown where its line was rewritten. */
const told = (text) => text.slice(text.search(/^\w*Error: /m));

/** A folder with the source, what a compiler made of it, and the map if that is a file. */
function compiled(compile, inline) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'scalpel-maps-'));
  const { code, map } = compile(SOURCE, inline);
  fs.writeFileSync(path.join(folder, 'mapped.ts'), SOURCE);
  fs.writeFileSync(path.join(folder, 'mapped.js'), code);
  if (!inline) fs.writeFileSync(path.join(folder, 'mapped.js.map'), map);
  return folder;
}

for (const [name, compile] of Object.entries(COMPILERS)) {
  for (const inline of [true, false]) {
    const where = inline ? 'in the file' : 'beside it';
    test(`${name}, with the map ${where}`, { skip: !PACKAGES && 'no packages' }, () => {
      const cwd = compiled(compile, inline);
      for (const flags of [['--enable-source-maps'], []]) {
        const args = [...flags, 'mapped.js'];
        const without = plain(args, { cwd });
        if (flags.length > 0) assert.match(without.stdout, /mapped\.ts:11:25/, 'Node.js maps this stack');
        for (const mode of ['call', 'count']) {
          const recorded = record(args, { cwd, mode });
          assert.strictEqual(recorded.stdout, without.stdout, `${mode}: stdout`);
          assert.strictEqual(told(recorded.stderr), told(without.stderr), `${mode}: stderr`);
          assert.strictEqual(recorded.code, without.code);
          const functions = recorded.processes.flatMap((one) => one.functions);
          assert.ok(functions.length > 5, `only ${functions.length} functions`);
        }
      }
      fs.rmSync(cwd, { recursive: true });
    });
  }
}
