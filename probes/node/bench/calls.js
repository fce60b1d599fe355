'use strict';
// $CALLS calls of a function that does almost nothing; prints how much processor time they took in ns, after a warm-up.
const calls = Number(process.env.CALLS ?? 3e6);

function leaf(x) {
  return (x * 7) | 0;
}

function run(times) {
  let sum = 0;
  for (let i = 0; i < times; i++) sum = (sum + leaf(i)) | 0;
  return sum;
}

run(1e5);
const start = process.cpuUsage();
const sum = run(calls);
const { user, system } = process.cpuUsage(start);
console.error(JSON.stringify({ ns: (user + system) * 1e3, calls, sum }));
