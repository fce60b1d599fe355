'use strict';
// `vm`: scripts and functions with a file name are rewritten, as test runners load them; each new context gets the helper.
// A script may run in a context that was made behind our back: its outermost functions then find no helper and record
// nothing.

const vm = require('vm');
const source = require('./source.js');
const stack = require('./stack.js');
const { KIND } = require('./load.js');

function install(probe) {
  const { Script, compileFunction, createContext, runInContext, runInNewContext, runInThisContext } = vm;
  const globalOf = new Script('globalThis');

  /** Gives a context what rewritten code looks for; one that cannot be extended stays as it is. */
  const equip = (context) => {
    try {
      const realm = globalOf.runInContext(context);
      if (realm[probe.HELPER] !== undefined) return;
      Object.defineProperty(realm, probe.HELPER, { value: probe.helper });
      source.install(probe, realm);
      stack.install(probe, realm);
    } catch {
      // Frozen, or its own traps said no.
    }
  };

  vm.Script = new Proxy(Script, {
    construct(target, [code, options, ...rest], made) {
      const args = [...rewritten(probe, KIND.script, code, options), ...rest];
      return Reflect.construct(target, args, made === vm.Script ? target : made);
    },
  });

  vm.createContext = named('createContext', createContext, function (...args) {
    const context = createContext.apply(this, args);
    equip(context);
    return context;
  });

  vm.compileFunction = named('compileFunction', compileFunction, function (code, params, options) {
    const [text, used] = rewritten(probe, KIND.commonjs, code, options);
    return compileFunction.call(this, text, params, used);
  });

  /** The context that Node.js would make now, equipped. */
  const made = (object = {}, options = {}) => {
    const { contextName: name, contextOrigin: origin, contextCodeGeneration: codeGeneration, microtaskMode } = options;
    return vm.createContext(object, { name, origin, codeGeneration, microtaskMode });
  };

  const { runInNewContext: runScript } = Script.prototype;
  Script.prototype.runInNewContext = named('runInNewContext', runScript, function (object, options) {
    const restore = stack.deeper();
    try {
      return runScript.call(this, made(object, options), options);
    } finally {
      restore();
    }
  });

  for (const [name, run] of Object.entries({ runInContext, runInNewContext, runInThisContext })) {
    const at = name === 'runInThisContext' ? 1 : 2;
    vm[name] = named(name, run, function (code, ...args) {
      const [text, used] = rewritten(probe, KIND.script, code, args[at - 1]);
      if (used !== args[at - 1]) args[at - 1] = used;
      if (run === runInNewContext && text !== code) args[0] = made(args[0], typeof used === 'string' ? {} : used);
      const restore = stack.deeper();
      try {
        return run.call(this, text, ...args);
      } finally {
        restore();
      }
    });
  }

  if (typeof vm.SourceTextModule === 'function') {
    const { SourceTextModule } = vm;
    vm.SourceTextModule = new Proxy(SourceTextModule, {
      construct(target, [code, options, ...rest], made) {
        const file = options?.identifier;
        const { text = code } = probe.load(code, file, KIND.module, { alias: true });
        return Reflect.construct(target, [text, options, ...rest], made === vm.SourceTextModule ? target : made);
      },
    });
  }
  require('module').syncBuiltinESMExports();
}

/** Text and options for what is to be compiled. A code cache belongs to the original text, and its ids to another run. */
function rewritten(probe, kind, code, options) {
  const given = typeof options === 'string' ? { filename: options } : options;
  const file = given?.filename;
  const { text } = probe.load(code, file, kind, {
    alias: true,
    lines: given?.lineOffset ?? 0,
    columns: given?.columnOffset ?? 0,
  });
  if (text === undefined) return [code, options];
  if (given.cachedData === undefined) return [text, options];
  const { cachedData: _, ...used } = given;
  return [text, used];
}

function named(name, original, replacement) {
  Object.defineProperty(replacement, 'name', { value: name });
  Object.defineProperty(replacement, 'length', { value: original.length });
  return replacement;
}

module.exports = { install };
