'use strict';
// Runs a program under the stand-in for the collector and gives back what its probes wrote.
// $SCALPEL_COLLECTOR: the example `collector` of probes/core. $SCALPEL_PROBE: the folder of the probe with its addon.
// $SCALPEL_NODE: the Node.js to test, by default this one. $SCALPEL_PACKAGES: a folder with the `node_modules` of the tests.
const { spawnSync } = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');

const COLLECTOR = process.env.SCALPEL_COLLECTOR;
const PROBE = process.env.SCALPEL_PROBE ?? path.dirname(__dirname);
const NODE = process.env.SCALPEL_NODE ?? process.execPath;
const PACKAGES = process.env.SCALPEL_PACKAGES;
const PRELOAD = path.join(PROBE, 'preload.js');
const PROGRAMS = path.join(__dirname, 'programs');

/** Major version of the Node.js under test. */
const MAJOR = Number(spawnSync(NODE, ['-p', 'process.versions.node.split(".")[0]']).stdout);

/** The environment in which a program is recorded. */
function injected(env = {}) {
  const options = env.NODE_OPTIONS ? ` ${env.NODE_OPTIONS}` : '';
  return { ...process.env, ...env, NODE_OPTIONS: `--require "${PRELOAD}"${options}`, PROBE };
}

/** A program without the probe, in the same surroundings: what it printed, and how it ended. */
function plain(args, options = {}) {
  return run(args, { ...options, env: { ...process.env, ...options.env, PROBE } });
}

/** The same with the probe, and what the probe wrote: `events`, and for each process `functions`, `notes`, `counters`. */
function record(args, options = {}) {
  return run(args, { ...options, env: injected(options.env) });
}

function run(args, { mode = 'call', env, cwd, input, collector = [] }) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'scalpel-node-'));
  try {
    const file = (name) => path.join(folder, name);
    const shell = ['sh', '-c', `exec "$@" >"${file('out')}" 2>"${file('err')}"`, 'sh', NODE, ...args];
    const options = { env, cwd, input, encoding: 'utf8', maxBuffer: 1 << 30 };
    const ran = spawnSync(COLLECTOR, ['--mode', mode, ...collector, '--', ...shell], options);
    const told = ran.stdout
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line));
    return {
      code: ran.status,
      stdout: fs.readFileSync(file('out'), 'utf8'),
      stderr: fs.readFileSync(file('err'), 'utf8'),
      events: told.filter((one) => 'kind' in one),
      hellos: told.filter((one) => 'hello' in one),
      processes: told.filter((one) => 'functions' in one),
    };
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

/** Calls by function id: ENTER events and what is only counted in call mode, counters in count mode. */
function calls(recorded, mode) {
  const sums = new Map();
  const add = (func, by) => sums.set(func, (sums.get(func) ?? 0) + by);
  if (mode === 'call') {
    for (const event of recorded.events) if (event.kind === 'Enter') add(event.func, 1);
    for (const { functions } of recorded.processes) {
      for (const { func, calls } of functions) if (calls > 0) add(func, calls);
    }
  } else {
    for (const { counters, functions } of recorded.processes) {
      for (const [func, count] of Object.entries(counters)) add(Number(func), count);
      for (const { func, calls } of functions) if (calls > 0) add(func, calls);
    }
  }
  return sums;
}

const program = (name) => path.join(PROGRAMS, name);

module.exports = { COLLECTOR, MAJOR, NODE, PACKAGES, PRELOAD, PROBE, calls, injected, plain, program, record };
