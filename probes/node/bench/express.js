'use strict';
// A server of Express with routes, middleware and errors; a client in a process of its own, never recorded, keeps 20 requests
// under way. Prints processor time of the server and wall time of 1,000 of $REQUESTS requests in ns, after a warm-up.
const { fork } = require('child_process');
const http = require('http');

const requests = Number(process.env.REQUESTS ?? 10000);
const paths = ['/', '/users/7?q=1', '/api/list', '/fail', '/missing'];

async function ask(port, times) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 20 });
  let next = 0;
  const one = (path) =>
    new Promise((resolve, reject) => {
      const request = http.get({ port, path, agent }, (response) => response.resume().on('end', resolve));
      request.on('error', reject);
    });
  const work = async () => {
    while (next < times) await one(paths[next++ % paths.length]);
  };
  await Promise.all(Array.from({ length: 20 }, work));
  agent.destroy();
}

function serve() {
  const express = require('express');
  const app = express();
  app.use((request, response, next) => {
    response.setHeader('x-seen', '1');
    next();
  });
  app.use(express.json());
  app.get('/', (request, response) => response.send('hello'));
  app.get('/users/:id', ({ params, query }, response) => response.json({ id: params.id, query }));
  const router = express.Router();
  router.get('/list', async (request, response) => {
    await null;
    response.json([1, 2, 3]);
  });
  app.use('/api', router);
  app.get('/fail', () => {
    throw new Error('as asked');
  });
  app.use((error, request, response, next) => response.status(500).send(error.message));
  const server = app.listen(0, '127.0.0.1', () => {
    const { NODE_OPTIONS: _, NODE_V8_COVERAGE: __, ...env } = process.env;
    const client = fork(__filename, ['client', server.address().port], { env, execArgv: [] });
    let cpu;
    let wall;
    client.on('message', (message) => {
      if (message === 'warm') {
        cpu = process.cpuUsage();
        wall = process.hrtime.bigint();
        client.send('go');
        return;
      }
      const { user, system } = process.cpuUsage(cpu);
      const wall_ns = (Number(process.hrtime.bigint() - wall) * 1e3) / requests;
      console.error(JSON.stringify({ ns: ((user + system) * 1e6) / requests, wall_ns }));
      client.disconnect();
      server.close();
    });
  });
}

if (process.argv[2] === 'client') {
  const port = Number(process.argv[3]);
  ask(port, requests / 5).then(() => process.send('warm'));
  process.once('message', () => ask(port, requests).then(() => process.send('done')));
} else {
  serve();
}
