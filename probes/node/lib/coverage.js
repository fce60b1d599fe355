'use strict';
// V8's own precise coverage, in place of a rewrite. Taking it destroys what others would take: it is not used beside them.

const KINDS = { refusal: 4 };

/** Starts counting; whether it does. What was counted is taken when the process or worker ends. */
function start(addon) {
  const other = otherUser();
  if (other !== undefined) {
    addon.note(KINDS.refusal, 0, `V8 coverage is not used: ${other} takes it`);
    return false;
  }
  const { Session } = require('inspector');
  const session = new Session();
  session.connect();
  session.post('Profiler.enable');
  session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  process.on('exit', () => take(addon, session));
  return true;
}

function otherUser() {
  if (process.env.NODE_V8_COVERAGE) return 'NODE_V8_COVERAGE';
  const flags = [...process.execArgv, ...String(process.env.NODE_OPTIONS ?? '').split(' ')];
  return flags.find((flag) => flag.startsWith('--experimental-test-coverage'));
}

/** Each take holds what was called since the last one: the sums are the segment's. */
function take(addon, session) {
  session.post('Profiler.takePreciseCoverage', (error, taken) => {
    if (error) return;
    for (const { url, functions } of taken.result) {
      for (const { ranges } of functions) {
        const [{ startOffset, endOffset, count }] = ranges;
        if (count > 0) counted(addon, url, startOffset, endOffset, count);
      }
    }
  });
}

/** V8 names a CommonJS file by URL, and its hook by path. */
function counted(addon, url, start, end, count) {
  if (addon.counted(url, start, end, count)) return;
  if (!url.startsWith('file://')) return;
  const { fileURLToPath } = require('url');
  addon.counted(fileURLToPath(url), start, end, count);
}

module.exports = { start };
