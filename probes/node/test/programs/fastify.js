'use strict';
// Hooks, schemas, decorators, plugins, errors; $REQUESTS requests by injection.
const fastify = require('fastify')();

fastify.addHook('onRequest', async (request) => {
  request.seen = true;
});
fastify.decorate('twice', (x) => 2 * x);
fastify.register(async (scope) => {
  scope.get('/:x', { schema: { params: { type: 'object', properties: { x: { type: 'integer' } } } } }, async (request) => ({
    twice: scope.twice(request.params.x),
  }));
  scope.get('/fail', async () => {
    throw new Error('as asked');
  });
}, { prefix: '/plugin' });

(async () => {
  const answers = {};
  for (let done = 0; done < Number(process.env.REQUESTS ?? 300); done += 3) {
    for (const url of ['/plugin/4', '/plugin/fail', '/plugin/no']) {
      const { statusCode } = await fastify.inject(url);
      answers[statusCode] = (answers[statusCode] ?? 0) + 1;
    }
  }
  console.log(JSON.stringify(answers));
  await fastify.close();
})();
