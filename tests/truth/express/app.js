'use strict';
// An application of Express that asks itself, over the loopback, and ends.
const express = require('express');

const app = express();
app.use(express.json());
app.use((request, response, next) => {
  request.started = Date.now();
  next();
});
const router = express.Router();
router.param('id', (request, response, next, id) => {
  request.id = Number(id);
  next();
});
router.get('/items/:id', async (request, response) => response.json({ id: request.id }));
router.post('/items', (request, response) => response.status(201).send(request.body));
router.get('/fail', () => {
  throw new Error('asked for');
});
app.use('/api', router);
app.get('/', function home(request, response) {
  response.type('text').cookie('seen', '1').send('home');
});
app.use((error, request, response, next) => {
  response.status(500).send(error.message);
});

const server = app.listen(0, '127.0.0.1', async () => {
  const base = `http://127.0.0.1:${server.address().port}`;
  const ask = async (path, options) => (await fetch(base + path, options)).text();
  for (let round = 0; round < 20; round++) {
    for (const path of ['/', '/api/items/3', '/api/fail', '/nothing']) await ask(path);
    await ask('/api/items', { method: 'POST', body: '{"a":1}', headers: { 'content-type': 'application/json' } });
  }
  process.exit(0);
});
