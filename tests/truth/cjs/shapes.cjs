'use strict';
// Shapes of functions that are hard to tell apart; every function says a mark of its own. cjs.txt says what is not obvious.
const seen = [];
const hit = (name) => { seen.push(name); };

function declared() { hit('declared'); return 1; }
async function later() { hit('later'); await null; return [1].map((n) => { hit('later.map'); return n; }); }
function* numbers() { hit('numbers'); yield 1; }
async function* stream() { hit('stream'); yield 1; }
const expression = function () { hit('expression'); return 1; };
const named = function inner() { hit('named'); return 1; };
const arrows = [(n) => { hit('arrows.0'); return n; }, (n) => { hit('arrows.1'); return n; }, async (n) => { hit('arrows.2'); return n; }];
const chained = (a) => { hit('chained'); return (b) => { hit('chained.b'); return (c) => { hit('chained.c'); return a + b + c; }; }; };
const key = 'com' + 'puted';
const object = {
  method() { hit('object.method'); return 1; },
  get value() { hit('object.value.get'); return 1; },
  set value(n) { hit('object.value.set'); },
  [key]() { hit('object.computed'); return 1; },
  [`${key} too`]: function () { hit('object.computed.too'); return 1; },
  'quoted name': () => { hit('object.quoted'); return 1; },
  async later() { hit('object.later'); return 1; },
  *each() { hit('object.each'); yield 1; },
  123() { hit('object.123'); return 1; },
};
class Base {
  #secret = 1;
  static #made = 0;
  field = () => { hit('Base.field'); return this.#read(); };
  static field = () => { hit('Base.static.field'); return 1; };
  static { hit('Base.static'); Base.#made = 1; }
  constructor(n, then = () => { hit('Base.constructor.then'); return n; }) { hit('Base.constructor'); this.n = then(); }
  #read() { hit('Base.#read'); return this.#secret; }
  get #hidden() { hit('Base.#hidden.get'); return 1; }
  set #hidden(n) { hit('Base.#hidden.set'); }
  both() { hit('Base.both'); this.#hidden = this.#hidden; return 1; }
  get same() { hit('Base.same.get'); return 1; }
  set same(n) { hit('Base.same.set'); }
  static same() { hit('Base.static.same'); return Base.#made; }
  [Symbol.toPrimitive]() { hit('Base.toPrimitive'); return 1; }
  [key]() { hit('Base.computed'); return 1; }
  async *parts() { hit('Base.parts'); yield 1; }
  unused() { hit('Base.unused'); }
}
class Derived extends Base { same2() { hit('Derived.same2'); return super.both(); } }
const Expression = class { run() { hit('Expression.run'); return 1; } };
const Named = class Inner extends (class { up() { hit('Inner.up'); return 1; } }) { run() { hit('Named.run'); return super.up(); } };
{ function declared() { hit('block.declared'); return 2; } declared(); }
(function () { hit('iife'); })();
(() => { hit('iife.arrow'); })();
!function () { hit('iife.bang'); }();
new (function Made() { hit('new.Made'); })();
/* 🕵🏻 */ const naïve = () => { hit('naïve'); return '🕵🏻'; }, 二 = () => { hit('二'); return 2; };
function destructured({ a = () => { hit('destructured.a'); return 1; } } = {}, [b = () => { hit('destructured.b'); return 2; }] = []) { hit('destructured'); return a() + b(); }
const tag = (parts, ...values) => { hit('tag'); return parts.length + values.length; };
const once = (f) => { hit('once'); return f; };
const wrapped = once(once(function () { hit('wrapped'); return 1; }));
var again = function () { hit('again.first'); return 1; }; again();
var again = function () { hit('again.second'); return 2; };
Object.defineProperty(object, 'defined', { get() { hit('defined.get'); return 1; } });
Base.prototype.added = function () { hit('added'); return 1; };
const made = new Function('n', 'return n + 1');
const evaluated = (0, eval)('(function evaluated() { return 1; })');

async function main() {
  hit('main');
  const base = new Derived(1);
  base.same = base.same + Base.same() + Base.field() + base.field() + base.both() + base.same2() + base[key]() + base.added() + +base;
  for await (const part of base.parts()) void part;
  for await (const part of stream()) void part;
  object.value = object.value + object.method() + object[key]() + object[`${key} too`]() + object['quoted name']() + object[123]() + object.defined;
  void [...object.each(), ...numbers(), await object.later(), await later(), ...arrows.map((f) => { hit('main.map'); return f(1); })];
  void [declared(), expression(), named(), chained(1)(2)(3), new Expression().run(), new Named().run(), naïve(), 二(), destructured(), tag`a${1}`, wrapped(), again()];
  await Promise.resolve(1).then((n) => { hit('then.first'); return n; }).then((n) => { hit('then.second'); return n; });
  label: for (const f of [() => { hit('loop'); return 1; }]) { f(); continue label; }
  made(1);
  evaluated();
  setTimeout(() => { hit('timer'); console.log(JSON.stringify(seen)); }, 0);
}
function neverCalled() { hit('neverCalled'); return () => { hit('neverCalled.arrow'); }; }
if (seen.length > 999) neverCalled();
main();
