'use strict';
// ECMAScript modules. Node.js that has synchronous hooks gets one; an older one pays for a thread of hooks, and only once the
// program uses modules.

const Module = require('module');
const { KIND } = require('./load.js');

const FORMATS = {
  module: { kind: KIND.module },
  'module-typescript': { kind: KIND.module, typescript: true },
};

function install(probe) {
  if (probe.mode === 'v8' && typeof Module.registerHooks !== 'function') return;
  if (typeof Module.registerHooks === 'function') {
    Module.registerHooks({
      load: (url, context, next) => loaded(probe, url, next(url, context)),
    });
  } else if (typeof Module.register === 'function') {
    let used = false;
    probe.useModules = () => {
      if (used) return;
      used = true;
      probe.addon.modules(true);
      // Modules are rewritten by another thread, which cannot tell.
      probe.useWorkers();
      probe.useChildren();
      const { pathToFileURL } = require('url');
      Module.register(pathToFileURL(require.resolve('./hooks.mjs')));
    };
    // A worker is not told its file yet: it does as the rest of the process.
    if (startsWithModule() || probe.addon.modules(false)) probe.useModules();
  }
}

/** What a load hook answers in place of `answer`. */
function loaded(probe, url, answer) {
  const format = FORMATS[answer.format];
  if (format === undefined || answer.source == null) return answer;
  const source = typeof answer.source === 'string' ? answer.source : Buffer.from(answer.source).toString('utf8');
  const { text } = probe.load(source, url, format.kind, { typescript: format.typescript });
  return text === undefined ? answer : { ...answer, source: text };
}

/** Whether the program itself is a module, or may be one. */
function startsWithModule() {
  const flags = [...process.execArgv, ...String(process.env.NODE_OPTIONS ?? '').split(' ')];
  if (
    flags.some((flag) =>
      /^--(import|experimental-loader|loader|input-type=module|experimental-default-type=module)/.test(flag),
    )
  ) {
    return true;
  }
  return isModule(process.argv[1]);
}

/** Whether a file that is run is a module, by its name and its package. */
function isModule(main) {
  if (typeof main !== 'string') return false;
  if (main.endsWith('.mjs')) return true;
  if (main.endsWith('.cjs')) return false;
  return inModulePackage(main);
}

function inModulePackage(file) {
  const { dirname, join } = require('path');
  const fs = require('fs');
  let folder = dirname(file);
  try {
    folder = dirname(fs.realpathSync(file));
  } catch {
    // The program says so itself when it is started.
  }
  for (;;) {
    try {
      const text = fs.readFileSync(join(folder, 'package.json'), 'utf8');
      return JSON.parse(text).type === 'module';
    } catch {
      const up = dirname(folder);
      if (up === folder) return false;
      folder = up;
    }
  }
}

module.exports = { install, isModule, loaded };
