'use strict';
// Calls a function $CALLS times, in a worker that is terminated or in the program itself, which then kills itself.
const { Worker, isMainThread, parentPort } = require('worker_threads');

function counted(x) {
  return x + 1;
}

function call(times) {
  for (let i = 0; i < times; i++) counted(i);
}

const calls = Number(process.env.CALLS);
if (!isMainThread) {
  call(calls);
  parentPort.postMessage('done');
  setInterval(() => {}, 1000);
} else if (process.env.WAY === 'worker') {
  const worker = new Worker(__filename);
  worker.on('message', () => worker.terminate());
} else {
  call(calls);
  process.kill(process.pid, 'SIGKILL');
}
