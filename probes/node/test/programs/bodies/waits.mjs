export let waited = await Promise.resolve('waited');
try {
  await Promise.reject(new Error('caught'));
} catch (error) {
  waited += error.message;
}
