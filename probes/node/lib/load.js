'use strict';
// CommonJS: the text that is compiled, after every transpiler has had it, is rewritten. Knows which of the three kinds a text
// is, and what to do with a file that cannot be rewritten: nothing.

const Module = require('module');
const { deeper } = require('./stack.js');

const KIND = { script: 0, commonjs: 1, module: 2 };

function install(probe) {
  const { addon, helper, mode } = probe;
  const compile = Module.prototype._compile;

  /** The text to run in place of `text`, and what else is known of it; never throws. */
  probe.load = (text, file, kind, { typescript = false, alias = false, lines = 0, columns = 0 } = {}) => {
    if (typeof text !== 'string' || typeof file !== 'string' || file === '') return {};
    // A thread of hooks loads these files again.
    if (file.startsWith(__dirname)) return {};
    if (text.includes('worker_threads')) probe.useWorkers();
    if (text.includes('child_process')) probe.useChildren();
    const loaded = addon.load(text, file, kind, typescript, alias, lines, columns) ?? {};
    if (loaded.imports) probe.useModules?.();
    return loaded;
  };

  // Without a name and of three parameters, as Node.js has it.
  Module.prototype._compile = function (content, filename, format) {
    const form = String(format ?? '');
    const kind = form.startsWith('module') ? KIND.module : KIND.commonjs;
    const { text = content, module = 0 } = probe.load(content, filename, kind, {
      typescript: form.endsWith('typescript'),
    });
    if (module !== 0 && mode === 'count') helper.c[module]++;
    const token = module !== 0 && mode === 'call' ? helper.e(module) : 0;
    const restore = deeper();
    let returned = 0;
    try {
      const result = compile.call(this, text, filename, format);
      returned = 1;
      return result;
    } finally {
      restore();
      if (token !== 0) helper.x(token, module, returned);
    }
  };
}

module.exports = { install, KIND };
