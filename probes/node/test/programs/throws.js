'use strict';
// Ends by an exception, in the way that its argument names.
const ways = {
  alone() {
    throw new Error('alone');
  },
  line() { throw new Error('on one line') },
  returned() {
    return null.property;
  },
  arrow: () => undefinedName,
  primitive() {
    throw 5;
  },
  async later() {
    await null;
    throw new TypeError('later');
  },
  async awaited() { await Promise.reject(new Error('rejected')) },
  made() {
    const make = () => new Error('made elsewhere');
    throw make();
  },
  caught() {
    try { throw new Error('first') } catch (error) { throw new Error('second', { cause: error }) }
  },
  exit() {
    try { process.exit(9) } finally { console.log('not printed') }
  },
  deep() {
    const deeper = (n) => (n === 0 ? ways.alone() : deeper(n - 1));
    deeper(30);
  },
};
ways[process.argv[2]]();
