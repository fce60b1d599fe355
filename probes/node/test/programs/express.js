'use strict';
// Routes, middleware, errors; $REQUESTS requests by its own client.
const http = require('http');
const express = require('express');

const app = express();
app.use((req, res, next) => {
  res.setHeader('x-seen', '1');
  next();
});
app.use(express.json());
app.get('/', (req, res) => res.send('hello'));
app.get('/users/:id', (req, res) => res.json({ id: req.params.id, query: req.query }));
app.post('/echo', (req, res) => res.status(201).json(req.body));
const router = express.Router();
router.use(function audited(req, res, next) {
  next();
});
router.get('/list', async (req, res) => {
  await null;
  res.json([1, 2, 3]);
});
app.use('/api', router);
app.get('/fail', () => {
  throw new Error('as asked');
});
app.get('/reject', async () => {
  throw new Error('as asked');
});
app.use((error, req, res, next) => {
  res.status(500).send(error.message);
});

const PATHS = ['/', '/users/7?q=1', '/api/list', '/fail', '/missing', '/reject', '/echo'];
const requests = Number(process.env.REQUESTS ?? 700);

const server = app.listen(0, '127.0.0.1', async () => {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 20 });
  const { port } = server.address();
  const ask = (path) =>
    new Promise((resolve, reject) => {
      const post = path === '/echo';
      const request = http.request(
        { port, path, agent, method: post ? 'POST' : 'GET', headers: { 'content-type': 'application/json' } },
        (response) => {
          response.resume();
          response.on('end', () => resolve(response.statusCode));
        },
      );
      request.on('error', reject);
      request.end(post ? '{"a":1}' : undefined);
    });
  const answers = {};
  for (let done = 0; done < requests; done += PATHS.length) {
    for (const status of await Promise.all(PATHS.map(ask))) answers[status] = (answers[status] ?? 0) + 1;
  }
  console.log(JSON.stringify(answers));
  agent.destroy();
  server.close();
});
