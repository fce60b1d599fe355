export const before = 1;
await null;
throw new Error('after a while');
