'use strict';
// Events of every form of function: each call has its end, nests in its caller, and waits apart.
const assert = require('assert');
const { test } = require('node:test');
const { MAJOR, PROBE, calls, plain, program, record } = require('./harness.js');

const of = (recorded, name) => recorded.events.filter((event) => event.name === name).map((event) => event.kind);
const functions = (recorded) => recorded.processes.flatMap((one) => one.functions);

/** Every ENTER has one end; what is suspended goes on before it ends; no event comes outside of its call. */
function balanced(events) {
  const open = new Map();
  for (const { kind, func, frame } of events) {
    const key = `${func}/${frame}`;
    const state = open.get(key);
    if (kind === 'Enter') assert.strictEqual(state, undefined, `${key} entered twice`);
    if (kind === 'Suspend') assert.strictEqual(state, 'runs', `${key} suspended while ${state}`);
    if (kind === 'Resume') assert.strictEqual(state, 'waits', `${key} resumed while ${state}`);
    if (kind === 'Exit' || kind === 'Unwind') assert.strictEqual(state, 'runs', `${key} ended while ${state}`);
    open.set(key, { Enter: 'runs', Resume: 'runs', Suspend: 'waits', Exit: 'ended', Unwind: 'ended' }[kind]);
  }
  return [...open].filter(([, state]) => state !== 'ended').map(([key]) => key);
}

/** Calls by name under their caller: what a lane's order says. */
function edges(events) {
  const stack = [];
  const found = new Map();
  for (const { kind, name, frame } of events) {
    if (kind === 'Enter') {
      const edge = `${stack.at(-1)?.name ?? ''} > ${name}`;
      found.set(edge, (found.get(edge) ?? 0) + 1);
    }
    if (kind === 'Enter' || kind === 'Resume') stack.push({ name, frame });
    else assert.strictEqual(stack.pop()?.frame, frame, `${kind} of ${name} is not the innermost`);
  }
  return found;
}

test('every form of function', () => {
  const without = plain([program('forms.js')]);
  const recorded = record([program('forms.js')]);
  assert.strictEqual(recorded.stdout, without.stdout);
  assert.strictEqual(recorded.stderr, '');
  assert.deepStrictEqual(balanced(recorded.events), []);
  assert.deepStrictEqual(of(recorded, 'rejected'), ['Enter', 'Suspend', 'Resume', 'Exit']);
  assert.deepStrictEqual(of(recorded, 'unheard'), ['Enter', 'Suspend', 'Resume', 'Unwind']);
  assert.deepStrictEqual(of(recorded, 'thrower'), ['Enter', 'Unwind']);
  assert.deepStrictEqual(of(recorded, 'overrides'), ['Enter', 'Exit']);
  assert.deepStrictEqual(of(recorded, 'inner'), ['Enter', 'Suspend', 'Resume', 'Exit']);
  const counting = of(recorded, 'counting');
  assert.strictEqual(counting.filter((kind) => kind === 'Unwind').length, 1, 'a generator that is closed');
  const found = edges(recorded.events);
  assert.strictEqual(found.get('Derived.constructor > Base.constructor'), 1);
  assert.strictEqual(
    found.get('Derived.computed > Derived.#reveal') ?? found.get('Derived.[computed] > Derived.#reveal'),
    1,
  );
  assert.strictEqual(found.get('recursive > recursive'), 5);
  const awaited = recorded.events.filter(({ name, kind }) => name === 'awaited' && kind === 'Enter');
  assert.strictEqual(new Set(awaited.map(({ value }) => value)).size, 3, 'each call is a task of its own');
});

test('count mode counts what call mode enters', () => {
  for (const name of ['forms.js', 'contexts.js', 'alone.js', 'bodies.mjs']) {
    const [byCalls, byCounts] = ['call', 'count'].map((mode) => {
      const recorded = record([program(name)], { mode });
      const sums = calls(recorded, mode);
      const named = functions(recorded).filter(({ func }) => sums.has(func));
      return Object.fromEntries(
        named.map(({ func, name, file, line, column }) => [`${file}:${line}:${column} ${name}`, sums.get(func)]),
      );
    });
    assert.deepStrictEqual(byCounts, byCalls);
  }
});

test('every id is named before its first event, and none is 0', () => {
  const recorded = record([program('forms.js')]);
  assert.ok(recorded.events.every(({ func, name, file }) => func > 0 && name && file));
  assert.ok(functions(recorded).every(({ name, file, line, start, end }) => name && file && line > 0 && end > start));
});

test('modules, a pool of workers, one with an empty environment', () => {
  for (const mode of ['call', 'count']) {
    const without = plain([program('modules.mjs')]);
    const recorded = record([program('modules.mjs')], { mode });
    assert.strictEqual(recorded.stdout, without.stdout);
    assert.strictEqual(recorded.stderr, without.stderr);
    const sums = calls(recorded, mode);
    const count = (name) =>
      functions(recorded)
        .filter((one) => one.name === name)
        .reduce((sum, { func }) => sum + (sums.get(func) ?? 0), 0);
    assert.strictEqual(count('work'), 4);
    assert.strictEqual(count('twice'), 10 + 10 + 20 + 30);
    assert.strictEqual(count('fromCommonJs'), 1);
    assert.strictEqual(recorded.hellos.length, 1, 'one handshake a process');
    if (mode === 'call') {
      assert.strictEqual(new Set(recorded.events.map(({ lane }) => lane)).size, 4, 'a lane an isolate');
      assert.ok(
        functions(recorded).every(({ file }) => !file.startsWith(`${PROBE}/lib`)),
        'nothing of ours is rewritten',
      );
    }
  }
});

test('the body of a module is a call, whichever way it ends', () => {
  const without = plain([program('bodies.mjs')]);
  const recorded = record([program('bodies.mjs')]);
  assert.strictEqual(recorded.stdout, without.stdout);
  assert.strictEqual(recorded.stderr, '');
  assert.deepStrictEqual(balanced(recorded.events), []);
  const body = (name) =>
    recorded.events
      .filter((one) => one.name === '(module)' && one.file.endsWith(`/${name}.mjs`))
      .map(({ kind }) => kind);
  const waited = ['Enter', 'Suspend', 'Resume', 'Suspend', 'Resume', 'Exit'];
  assert.deepStrictEqual(body('ends'), ['Enter', 'Exit']);
  assert.deepStrictEqual(body('throws'), ['Enter', 'Unwind']);
  assert.deepStrictEqual(body('waits'), waited);
  assert.deepStrictEqual(body('rejects'), ['Enter', 'Suspend', 'Resume', 'Unwind']);
  assert.deepStrictEqual(body('empty'), ['Enter', 'Exit']);
  assert.deepStrictEqual(body('slow'), ['Enter', 'Suspend', 'Resume', 'Exit']);
  assert.deepStrictEqual(body('child'), [], 'a module whose import has failed does not run');
  assert.strictEqual(body('bodies').at(-1), 'Exit');
  const found = edges(recorded.events);
  assert.strictEqual(found.get('(module) > after'), 6);
  assert.strictEqual(found.get('(module) > thrower'), 1);
  const main = new Set(
    recorded.events.filter(({ name, kind }) => name === 'after' && kind === 'Enter').map(({ frame }) => frame),
  );
  assert.strictEqual(main.size, 6);
  const counted = record([program('bodies.mjs')], { mode: 'count' });
  const sums = calls(counted, 'count');
  for (const { name, file, func } of functions(counted))
    if (name === '(module)') assert.strictEqual(sums.get(func), file.endsWith('child.mjs') ? undefined : 1, file);
});

test(
  'types are stripped by Node.js after the rewrite',
  { skip: MAJOR < 24 && 'this Node.js runs no TypeScript by default' },
  () => {
    const without = plain([program('typed.ts')]);
    const recorded = record([program('typed.ts')]);
    assert.strictEqual(recorded.stdout, without.stdout);
    assert.deepStrictEqual(balanced(recorded.events), []);
    assert.deepStrictEqual(of(recorded, 'distance'), ['Enter', 'Exit']);
    assert.deepStrictEqual(of(recorded, 'later'), ['Enter', 'Suspend', 'Resume', 'Exit']);
  },
);

test('contexts, and what is left alone', () => {
  const without = plain([program('contexts.js')]);
  const recorded = record([program('contexts.js')]);
  // A frame of ours may have taken the place of the last one.
  const same = (text) =>
    JSON.parse(text)
      .slice(0, -1)
      .map((one) => String(one).split('\n').slice(0, 8));
  assert.deepStrictEqual(same(recorded.stdout), same(without.stdout));
  for (const name of ['f', 'inThis', 'inNew', 'inMade', 'h'])
    assert.ok(of(recorded, name).length > 0, `${name} is seen`);
  const [{ notes }] = recorded.processes;
  assert.ok(notes.some(({ text, value }) => text.startsWith('places that make functions of text') && value === 2));
});

test('V8 coverage on request gives the same counts', () => {
  const recorded = record([program('forms.js')], { mode: 'count', collector: ['--option', 'node-coverage=v8'] });
  assert.strictEqual(recorded.stdout, plain([program('forms.js')]).stdout);
  const [{ functions }] = recorded.processes;
  const count = (name) => functions.find((one) => one.name === name).calls;
  assert.strictEqual(count('recursive'), 6);
  assert.strictEqual(count('counting'), 2);
  assert.strictEqual(count('awaited'), 3);
});

test('a filter leaves files out, and says how many', () => {
  const recorded = record([program('modules.mjs')], {
    collector: ['--option', 'node-exclude=**/module-dependency.mjs'],
  });
  assert.ok(!functions(recorded).some(({ file }) => file.includes('module-dependency')));
  const [{ notes }] = recorded.processes;
  assert.ok(notes.some(({ kind, value }) => kind === 6 && value >= 1));
});
