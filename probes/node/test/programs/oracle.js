'use strict';
// Preloaded behind the probe: V8 counts the same calls in the same process. At the end, ranges of rewritten texts are told as
// those of the originals, one JSON object in $ORACLE.
const fs = require('fs');
const path = require('path');
const { Session } = require('inspector');
const { fileURLToPath } = require('url');

const addon = require(path.join(process.env.PROBE, 'lib/scalpel.node'));
const session = new Session();
session.connect();
session.post('Profiler.enable');
session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });

process.on('exit', () => {
  session.post('Profiler.takePreciseCoverage', (error, taken) => {
    if (error) throw error;
    const counted = [];
    for (const { url, functions } of taken.result) {
      if (!url.startsWith('file://')) continue;
      const file = fileURLToPath(url);
      if (file === __filename || file.startsWith(path.join(process.env.PROBE, 'lib'))) continue;
      for (const { functionName, ranges } of functions) {
        // Made by V8 for fields and static blocks; no function of the source.
        if (/^<(instance_members|static)_initializer>$/.test(functionName)) continue;
        const back = (offset) => {
          const byPath = addon.offset(file, offset);
          return byPath === offset ? addon.offset(url, offset) : byPath;
        };
        counted.push({
          file,
          name: functionName,
          start: back(ranges[0].startOffset),
          end: back(ranges[0].endOffset),
          count: ranges[0].count,
        });
      }
    }
    fs.writeFileSync(process.env.ORACLE, JSON.stringify(counted));
  });
});
