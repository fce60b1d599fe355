// Modules that end in every way: at their end, by an exception before and after an `await`, and while others wait.
import { twice } from './module-dependency.mjs';

function after(name) {
  return twice(name.length);
}
const source = (text) => `data:text/javascript,${encodeURIComponent(text)}`;
const file = (name) => new URL(`./bodies/${name}.mjs`, import.meta.url);
const told = [];
for (const name of ['ends', 'throws', 'waits', 'rejects', 'empty', 'child']) {
  const made = await import(file(name)).catch((error) => error);
  told.push(made.message ?? Object.keys(made).join(), after(name));
}
try {
  const [one, two] = await Promise.all([import(file('slow')), import(file('waits'))]);
  told.push(one.slow, two.waited);
} catch (error) {
  told.push(error.message);
}
for await (const x of [1, 2]) told.push(x);
told.push((await import(source('export default 1'))).default);
console.log(told.join());
