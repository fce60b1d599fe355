import { hit, told } from './hit';
import anonymous, { Ä, Colour, Geometry, Item, naïve, Size, Word, 二 } from './shop';

function over(value: number): number;
function over(value: string): string;
function over(value: unknown): unknown { hit('over'); return value; }

const folded = (() => 7)();
const object = {
  method() { hit('object.method'); return 1; },
  get value() { hit('object.value'); return 2; },
  arrow: () => { hit('object.arrow'); return 3; },
  async later() { hit('object.later'); return 4; },
  *each() { hit('object.each'); yield 5; },
};
const Named = class Inner { run() { hit('Inner.run'); return 1; } };
const tag = (parts: TemplateStringsArray, ...values: number[]): number => { hit('tag'); return parts.length + values.length; };
const byDefault = (n: number, then = (m: number): number => { hit('byDefault.then'); return m + 1; }): number => { hit('byDefault'); return then(n); };
const curried = (a: number) => { hit('curried'); return (b: number) => { hit('curried.inner'); return (c: number) => { hit('curried.innermost'); return a + b + c; }; }; };
const same = (): number => { hit('same.first'); return 1; };
{ const same = (): number => { hit('same.second'); return 2; }; same(); }
function* numbers(most: number): Generator<number> { hit('numbers'); for (let n = 0; n < most; n++) yield n; }
async function main(): Promise<void> {
  hit('main');
  const item = new Item(10);
  item.label = item.label + item.price() + item.tax(0.5) + item.hidden();
  Item.made(); Item.count();
  (item as unknown as Record<string, () => number>).computed1!(); item['quoted name']();
  for await (const part of item.parts()) void part;
  const all = [...item, ...numbers(2), ...(Item[Symbol.iterator])(), await item.later(), await object.later(), ...object.each()];
  all.push(Geometry.area(2), Geometry.edge(1), Geometry.Deep.twice(2), naïve(1), 二(1), new Ä().ö(), Ä.ß(), anonymous());
  all.push(object.method(), object.value, object.arrow(), new Named().run(), tag`a${1}b`, byDefault(1), curried(1)(2)(3), same(), over(1), folded);
  all.slice(0, 3).sort((a, b) => { hit('main.sort'); return a - b; });
  try { await Promise.reject(new Error('x')); } catch { (function named() { hit('main.named'); })(); }
  const { destructured = () => { hit('main.destructured'); return 1; } } = {} as { destructured?: () => number };
  destructured();
  console.log(Colour.Blue, Size.Large, Word.Yes, JSON.stringify(told().sort()));
}
function neverCalled(): number { hit('neverCalled'); return [1].filter((n) => { hit('neverCalled.filter'); return n; }).length; }
if (process.argv.length > 9) neverCalled();
void main();
