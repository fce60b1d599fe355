'use strict';
// A program that does nothing: the processor time that it has taken is the start.
const { user, system } = process.cpuUsage();
console.error(JSON.stringify({ ns: (user + system) * 1e3 }));
