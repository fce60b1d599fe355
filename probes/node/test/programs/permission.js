'use strict';
// Starts itself under the permission model, in every way that there is; each child may read this file alone.
const children = require('child_process');

const [major] = process.versions.node.split('.');
const model = Number(major) < 22 ? '--experimental-permission' : '--permission';
const args = ['--no-warnings', model, `--allow-fs-read=${__filename}`, __filename, 'child'];
const env = { ...process.env, OF: 'parent' };
const command = [process.execPath, ...args].join(' ');

if (process.argv[2] === 'child') {
  console.log('child', process.env.OF, process.permission.has('fs.read', '/etc'));
} else {
  const said = [
    children.spawnSync(process.execPath, args).stdout,
    children.spawnSync(process.execPath, args, { env }).stdout,
    children.execFileSync(process.execPath, args, { env }),
    children.execSync(command),
    children.spawnSync(command, { shell: true }).stdout,
  ];
  console.log(said.map(String).join(''));
  const later = (error, stdout) => console.log(error, stdout);
  children.execFile(process.execPath, args, { env }, later);
  children.exec(command, later);
  children.fork(__filename, ['child'], { execArgv: args.slice(0, 3) }).on('exit', (code) => console.log(code));
  children.spawn(process.execPath, args, { stdio: 'ignore' }).on('exit', (code) => console.log(code));
}
