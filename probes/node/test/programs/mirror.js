'use strict';
// Tells everything by which a program could notice the probe.
const fs = require('fs');
const vm = require('vm');
const { Worker, isMainThread } = require('worker_threads');

const say = (what, value) => console.log(what, typeof value === 'string' ? value : JSON.stringify(value));
const oneLine = (x) => x + 1; function sameLine(a = () => 1) { return a() } async function waits() { await null; throw new Error('waited') }
class Shape { #hidden = 1; static kind = 'shape'; get hidden() { return this.#hidden } static async *[Symbol.iterator]() { yield 1 } }

say('source', [oneLine, sameLine, waits, Shape, Shape.prototype.constructor, say].map(String));
say('toString of toString', String(Function.prototype.toString));
say('names', [oneLine.name, sameLine.length, (() => {}).name, Shape.name, (() => function () {})().name].join());
say('globals', Object.keys(globalThis));
say('cache', Object.keys(require.cache));
say('children', module.children.length);
say('listeners', process.eventNames().map(String));
say('handles', process.getActiveResourcesInfo());
say('compile', [require('module').prototype._compile.name, require('module').prototype._compile.length].join());
say('vm', Object.keys(vm).map((name) => [name, typeof vm[name], vm[name]?.name, vm[name]?.length].join(' ')));
say('threads', fs.readdirSync('/proc/self/task').length);
say('descriptors', fs.readdirSync('/proc/self/fd').length - 1);
say('signals', fs.readFileSync('/proc/self/status', 'utf8').match(/^Sig(Blk|Ign|Cgt).*$/gm).join(' '));

const stacks = () => { const inner = () => { return new Error('inner').stack }; return [new Error('outer').stack, inner()] };
say('stack', stacks().join('\n'));
try { null.property } catch (error) { say('engine', error.stack) }
try { JSON.parse('{') } catch (error) { say('builtin', error.stack) }
function site() { const saved = Error.prepareStackTrace; Error.prepareStackTrace = (_, sites) => sites; const [here] = new Error('').stack.slice(0, 1); Error.prepareStackTrace = saved; return here }
const here = (() => site())();
say('site', [here.getLineNumber(), here.getColumnNumber(), here.getFunctionName(), here.getPosition(), String(here), here.constructor.name]);
say('prepare', [typeof Error.prepareStackTrace, Error.prepareStackTrace === Error.prepareStackTrace]);
const captured = {}; (() => Error.captureStackTrace(captured))(); say('captured', captured.stack);

say('eval', [eval('1 + oneLine(1)'), new Function('a', 'return a * 2')(21), (0, eval)('typeof oneLine')]);
const context = vm.createContext({ seen: [] });
vm.runInContext('const f = () => seen.push(1); f(); function g() { return f.toString() } seen.push(g())', context, 'inside.js');
say('context', [context.seen, Object.keys(context)]);
say('frozen', vm.runInNewContext('(() => 1)()', Object.freeze({}), { filename: 'frozen.js' }));
say('script', new vm.Script('(function named() { return 1 })', { filename: 'script.js' }).runInThisContext().toString());
say('function', vm.compileFunction('return (() => a)()', ['a'], { filename: 'function.js' })(5));
say('in another', new vm.Script('(() => { try { return (() => 7)() } finally {} })()', { filename: 'other.js' }).runInContext(vm.runInThisContext('0') || vm.createContext({})));

waits().catch((error) => {
  say('waited', error.stack);
  const started = new Worker(`const { parentPort } = require('worker_threads'); const f = () => 'from worker'; parentPort.postMessage([f(), f.toString(), Object.keys(process.env)])`, { eval: true, env: {} });
  started.on('message', (message) => say('worker', message));
  started.on('exit', (code) => {
    say('worker exit', code);
    process.exitCode = 7;
  });
});
if (isMainThread) process.on('exit', (code) => say('exit', code));
