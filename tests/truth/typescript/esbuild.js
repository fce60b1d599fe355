'use strict';
// As a bundler builds an application for delivery.
require('esbuild').buildSync({
  entryPoints: ['src/main.ts'],
  outfile: 'esbuild/main.js',
  bundle: true,
  minify: true,
  sourcemap: true,
  charset: 'utf8',
  platform: 'node',
  target: 'es2021',
});
