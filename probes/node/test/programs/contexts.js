'use strict';
// Scripts and functions in many contexts, as test runners load them, and what is left alone.
const vm = require('vm');
const text = 'function f(x) { return g(x) } const g = (x) => x + 1; f(1)';
const context = vm.createContext({});
const results = [
  new vm.Script(text, { filename: '/virtual/script.js' }).runInContext(context),
  vm.runInThisContext('(() => { function inThis() { return 2 } return inThis() })()', { filename: '/virtual/this.js' }),
  vm.runInNewContext('(function inNew() { return 3 })()', {}, '/virtual/new.js'),
  vm.compileFunction('const h = () => a; return h()', ['a'], { filename: '/virtual/function.js', parsingContext: context })(4),
  new vm.Script('(() => 5)()').runInThisContext(),
  eval('(() => 6)()'),
  new Function('return (() => 7)()')(),
  new vm.Script('(async () => { await 0; return [1].map((x) => x) })().then((x) => x[0])', { filename: '/virtual/strange.js' }).runInNewContext(Object.freeze({})),
  vm.runInContext('new Error("in context").stack', context, '/virtual/error.js'),
];
const script = new vm.Script(text, { filename: '/virtual/cached.js', cachedData: Buffer.from('bad') });
results.push(script.runInNewContext(), new vm.Script('(function inMade() { return 8 })()', { filename: '/virtual/made.js' }).runInNewContext(), typeof script.cachedDataRejected);
Promise.all(results).then((all) => console.log(JSON.stringify(all)));
