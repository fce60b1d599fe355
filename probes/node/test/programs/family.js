'use strict';
// A parent, a forked child, and a cluster of two: each works and says so.
const { fork } = require('child_process');
const cluster = require('cluster');

function work(who) {
  console.log(`${who} worked`);
}

if (process.argv[2] === 'child') {
  work('child');
} else if (cluster.isPrimary) {
  work('parent');
  fork(__filename, ['child']).on('exit', () => {
    cluster.fork();
    cluster.fork();
  });
} else {
  work('member');
  process.exit(0);
}
