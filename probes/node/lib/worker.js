'use strict';
// Workers: one with an environment of its own would start without the preload.

const { isModule } = require('./esm.js');

/** Loading `worker_threads` costs a third of the start: it is done when a text names it, before that text runs. */
function install(probe) {
  let used = false;
  probe.useWorkers = () => {
    if (!used) wrap(probe, require('worker_threads'));
    used = true;
  };
}

function wrap({ addon, preload }, threads) {
  const { Worker } = threads;
  threads.Worker = new Proxy(Worker, {
    construct(target, [file, options, ...rest], made) {
      if (isModule(path(file))) addon.modules(true);
      const args = [file, equipped(options, preload), ...rest];
      return Reflect.construct(target, args, made === threads.Worker ? target : made);
    },
  });
  require('module').syncBuiltinESMExports();
}

function path(file) {
  return file instanceof URL && file.protocol === 'file:' ? require('url').fileURLToPath(file) : file;
}

function equipped(options, preload) {
  const env = options?.env;
  if (typeof env !== 'object' || env === null || env === process.env) return options;
  if (String(env.NODE_OPTIONS ?? '').includes(preload)) return options;
  const execArgv = options.execArgv ?? process.execArgv;
  return { ...options, execArgv: [...execArgv, '--require', preload] };
}

module.exports = { install };
