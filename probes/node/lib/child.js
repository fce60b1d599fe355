'use strict';
// Children that run under the permission model: Node.js before 22 then refuses to read a preloaded file that is not among the
// permitted ones, and ends. Such a child starts without the preload, as it would without the probe.

const fs = require('fs');

const MODEL = /--(?:experimental-)?permission(?![\w-])/;
const PRELOADED = /--(?:require|r)[ =]"((?:[^"\\]|\\.)*)"\s*/g;

/** Loading `child_process` takes time: it is done when a text names it, before that text runs. */
function install(probe) {
  const [major] = process.versions.node.split('.');
  let used = Number(major) >= 22;
  probe.useChildren = () => {
    if (used) return;
    used = true;
    const children = require('child_process');
    const { prototype } = children.ChildProcess;
    prototype.spawn = wrapped(prototype.spawn, ([options]) => [alone(probe, options)]);
    for (const name of ['spawnSync', 'execFileSync'])
      children[name] = wrapped(children[name], (args) => aloneAtOnce(probe, args));
    children.execSync = wrapped(children.execSync, ([command, options]) => {
      const [, , set] = aloneAtOnce(probe, [command, [command], options]);
      return [command, set];
    });
    require('module').syncBuiltinESMExports();
  };
}

function wrapped(target, change) {
  return new Proxy(target, {
    apply: (target, self, args) => Reflect.apply(target, self, changed(args, change)),
  });
}

/** What cannot be understood is the program's own affair. */
function changed(args, change) {
  try {
    return change(args);
  } catch {
    return args;
  }
}

/** What `ChildProcess.prototype.spawn` is given, with all of its environment. */
function alone(probe, options) {
  const at = options.envPairs.findIndex((pair) => pair.startsWith('NODE_OPTIONS='));
  const set = options.envPairs[at]?.slice('NODE_OPTIONS='.length);
  if (set === undefined || !isRestricted(options.args, set)) return options;
  const left = without(probe, set);
  const pairs = options.envPairs.filter((_, index) => index !== at);
  return { ...options, envPairs: left === '' ? pairs : [...pairs, `NODE_OPTIONS=${left}`] };
}

/** What the functions that wait for their child are given: a file, and perhaps arguments and options. */
function aloneAtOnce(probe, [file, ...rest]) {
  const args = Array.isArray(rest[0]) ? rest[0] : [];
  const options = rest.find((one) => typeof one === 'object' && one !== null && !Array.isArray(one)) ?? {};
  const env = options.env ?? process.env;
  const words = options.shell ? [String(file), ...args] : args;
  if (env.NODE_OPTIONS === undefined || !isRestricted(words, env.NODE_OPTIONS)) return [file, ...rest];
  const { NODE_OPTIONS, ...others } = env;
  const left = without(probe, NODE_OPTIONS);
  return [file, args, { ...options, env: left === '' ? others : { ...others, NODE_OPTIONS: left } }];
}

function isRestricted(words, set) {
  return MODEL.test(set) || words.some((word) => MODEL.test(word));
}

/** `NODE_OPTIONS` without our preload. */
function without({ preload }, set) {
  return set.replace(PRELOADED, (whole, quoted) => {
    const path = quoted.replace(/\\(.)/g, '$1');
    return fs.realpathSync(path) === fs.realpathSync(preload) ? '' : whole;
  });
}

module.exports = { install };
