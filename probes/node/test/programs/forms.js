#!/usr/bin/env node
'use strict';
// One of each form that a function can have; prints what it computes.
const seen = [];
const note = (x) => (seen.push(x), x);
function* counting() { try { yield 1; const got = yield; note(got); yield* inner(); } finally { note('closed'); } }
function* inner() { yield 2; }
async function* source() { yield 'a'; yield 'b'; }
class Base { constructor(x) { this.x = note(x); } get doubled() { return this.x * 2; } static make(x) { return new this(x); } }
class Derived extends Base { #secret = 5; constructor() { super(3); } ['com' + 'puted']() { return this.#reveal(); } #reveal() { return this.#secret; } set value(v) { this.x = v; } }
async function rejected() { try { await Promise.reject(new Error('no')); } catch (error) { return note(error.message); } finally { note('finally'); } }
async function unheard() { await null; throw new Error('unheard'); }
async function looped() { const all = []; outer: for await (const x of source()) { if (x === 'a') continue outer; all.push(x); } for await (const x of [1, 2]) all.push(x); return all; }
function defaulted(x = note('default')) { return x; }
function thrower() { throw new Error('thrown'); }
const concise = (x) => ({ x }), awaited = async (x) => (await x) + 1;
function recursive(n) { return n === 0 ? 0 : 1 + recursive(n - 1); }
function overrides() { try { return 1; } finally { note('override'); } }

(async () => {
  const made = Derived.make(); made.value = note(made.doubled + made.computed());
  const generator = counting(); generator.next(); generator.next(); note([...generator].join()); 
  const early = counting(); early.next(); early.return();
  note(await rejected()); await unheard().catch((error) => note(error.message));
  note((await looped()).join()); note(defaulted()); note(defaulted(1)); note(concise(1).x); note(await awaited(Promise.resolve(1)));
  try { thrower(); } catch (error) { note(error.message); }
  note(recursive(5)); note(overrides()); note(await Promise.all([awaited(1), awaited(2)]));
  console.log(JSON.stringify(seen));
})();
