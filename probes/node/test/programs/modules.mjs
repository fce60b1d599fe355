// A module that imports another, CommonJS, and itself again; top-level await; a worker pool.
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { createRequire } from 'node:module';
import fs from 'node:fs';
import { twice } from './module-dependency.mjs';

const { once } = await import('node:events');
const require = createRequire(import.meta.url);

export function work(n) { let sum = 0; for (let i = 0; i < n; i++) sum += twice(i); return sum; }

if (isMainThread) {
  const { fromCommonJs } = require('./commonjs-dependency.cjs');
  const workers = [1, 2, 3].map((n) => new Worker(new URL(import.meta.url), { workerData: n, env: n === 3 ? {} : process.env }));
  const sums = await Promise.all(workers.map(async (worker) => (await once(worker, 'message'))[0]));
  console.log(sums.join(), fromCommonJs(), work(10), new Error('here').stack.split('\n')[1].trim().replace(/\(?file.*programs/, ''));
  console.log(String(work), fs.existsSync(new URL(import.meta.url)));
} else {
  parentPort.postMessage(work(workerData * 10));
}
