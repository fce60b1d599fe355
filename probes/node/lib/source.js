'use strict';
// A function's own text: `toString` answers what the program's author wrote. Takes out what `src/rewrite/pieces.rs` puts in,
// by the same grammar; a text without the helper's name is not looked at.

const FALLBACK = String.raw`typeof \$scalpel=="object"\?\$scalpel:\{v:x=>x,o:x=>x,c:\{\},g:new Proxy\(\{\},\{get:\(\)=>1\}\)\}`;
const H = String.raw`\$scalpel(?:\$h)?`;
const T = String.raw`\$scalpel\$t`;
const ALIAS = String.raw`(?:;let \$scalpel\$h=${FALLBACK})?`;
const ENTERED = String.raw`;let (?:\$scalpel\$h=${FALLBACK},)?${T}=${H}\.g\[\d+\]\?0:${H}`;
const START = String.raw`${ENTERED}\.[ea]\(\d+\),\$scalpel\$r,\$scalpel\$v;try\{`;
const FINALLY = String.raw`\}finally\{${T}&&${H}\.[xy]\(${T},\d+,\$scalpel\$r\)\}`;
const SUSPEND = String.raw`${T}&&\(${T}=${H}\.[sp]\(${T},\d+\)\)`;
const RESUME = String.raw`${T}<0&&\(${T}=${H}\.[rq]\(${T},\d+\)\)`;
const COUNT = String.raw`${H}\.(?:c\[\d+\]\+\+|o\(\d+\))`;

const PIECES = [
  String.raw`\{;${START}return\(\$scalpel\$v=\(0,`,
  String.raw`\),\$scalpel\$r=1,\$scalpel\$v\)${FINALLY}\}`,
  START,
  String.raw`${ENTERED}\.m\(\d+,[01]\);`,
  String.raw`;${T}&&${H}\.z\(${T},\d+,[01]\);`,
  String.raw`;\$scalpel\$r=1${FINALLY}`,
  String.raw`\(\$scalpel\$v=\(0,`,
  String.raw`\),\$scalpel\$r=1,\$scalpel\$v\)`,
  String.raw`\{\$scalpel\$r=1;`,
  String.raw` ${H}\.v\(void 0,${SUSPEND}\)`,
  String.raw`,${SUSPEND}\)`,
  String.raw`,${RESUME}\)`,
  String.raw`;${SUSPEND};`,
  String.raw`${RESUME};`,
  String.raw`${H}\.v\(`,
  String.raw`\{;${ALIAS};${COUNT};return\(0,`,
  String.raw`${ALIAS};${COUNT};`,
  String.raw`\(${COUNT},`,
  String.raw`\)/\*\$scalpel;\*/\}`,
  String.raw`/\*\$scalpel\*/[})]`,
  String.raw`\{/\*\$scalpel\*/`,
  String.raw`/\*\$scalpel:node-do-not-add-exception-line\*/`,
];

const INSERTED = new RegExp(PIECES.join('|'), 'g');

/** The original of a rewritten text, or of any part of it that cuts no insertion. */
function original(text) {
  return text.replace(INSERTED, '');
}

/** Has functions of a context answer their original text. */
function install({ HELPER }, realm) {
  const { prototype } = realm.Function;
  const native = prototype.toString;
  const { apply } = realm.Reflect;
  const proxy = new realm.Proxy(native, {
    apply(target, self, args) {
      const text = apply(target, self === proxy ? target : self, args);
      return text.includes(HELPER) ? original(text) : text;
    },
  });
  Object.defineProperty(prototype, 'toString', { value: proxy });
}

module.exports = { install, original };
