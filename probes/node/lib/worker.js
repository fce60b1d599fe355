'use strict';
// Workers: one with an environment of its own would start without the preload.

const threads = require('worker_threads');

function install({ preload }) {
  const { Worker } = threads;
  threads.Worker = new Proxy(Worker, {
    construct(target, [file, options, ...rest], made) {
      const args = [file, equipped(options, preload), ...rest];
      return Reflect.construct(target, args, made === threads.Worker ? target : made);
    },
  });
  require('module').syncBuiltinESMExports();
}

function equipped(options, preload) {
  const env = options?.env;
  if (typeof env !== 'object' || env === null || env === process.env) return options;
  if (String(env.NODE_OPTIONS ?? '').includes(preload)) return options;
  const execArgv = options.execArgv ?? process.execArgv;
  return { ...options, execArgv: [...execArgv, '--require', preload] };
}

module.exports = { install };
