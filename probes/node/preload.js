'use strict';
// What `NODE_OPTIONS=--require` names. It never throws: where the probe cannot run, the program runs as if it were not there.
try {
  require('./lib/start.js').start(__filename);
} catch {
  // No add-ons, no permission, no memory: the collector lists a process that did not say HELLO as not visible.
}
// Nobody asked for these modules: the program's `require.cache` is as it would be.
for (const path of Object.keys(require.cache)) {
  if (path.startsWith(__dirname)) delete require.cache[path];
}
