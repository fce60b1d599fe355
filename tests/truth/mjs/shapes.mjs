// The same names in two modules, and what only modules have.
import { again, told, Shape, hit } from './shapes-too.mjs';
import * as everything from './shapes-too.mjs';
import anonymous from './shapes-too.mjs';

export const same = () => { hit('same.here'); return 1; };
export class Circle extends Shape { area() { hit('Circle.area'); return super.area() + this.#radius(); } #radius() { hit('Circle.#radius'); return 1; } static { hit('Circle.static'); } }
export async function main() { hit('main'); const { lazy } = await import('./shapes-too.mjs'); return lazy() + everything.same() + same() + anonymous() + again() + new Circle().area(); }
const value = await (async () => { hit('top.await'); return 1; })();
await main();
export function neverCalled() { hit('neverCalled'); return value; }
console.log(JSON.stringify(told()));
