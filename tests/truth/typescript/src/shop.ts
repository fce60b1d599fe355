import { hit } from './hit';

export function traced(_: unknown, name: string, how: PropertyDescriptor): PropertyDescriptor {
  hit('traced');
  const value = how.value as (...args: unknown[]) => unknown;
  return { ...how, value(this: unknown, ...args: unknown[]) { hit('traced.value'); return value.apply(this, args); } };
}
export const sealed = (kind: string) => (it: Function): void => { hit('sealed.inner'); Object.freeze(it); void kind; };

export enum Colour { Red, Green = 4, Blue }
export const enum Size { Small = 1, Large }
export enum Word { Yes = 'yes', No = 'no' }

export namespace Geometry {
  export const unit = 1;
  export function area(side: number): number { hit('Geometry.area'); return side * side * unit; }
  export namespace Deep { export const twice = (n: number): number => { hit('Deep.twice'); return n * 2; }; }
}
export namespace Geometry {
  export function edge(side: number): number { hit('Geometry.edge'); return 4 * side; }
}

export abstract class Base {
  static #made = 0;
  static { hit('Base.static'); Base.#made = 1; }
  protected constructor(protected readonly name: string, private extra = (() => { hit('Base.extra'); return 2; })()) { hit('Base.constructor'); }
  abstract price(): number;
  get label(): string { hit('Base.label.get'); return this.#shown(); }
  set label(value: string) { hit('Base.label.set'); void value; }
  #shown(): string { hit('Base.#shown'); return `${this.name} ${this.extra}`; }
  get #hidden(): number { hit('Base.#hidden'); return 1; }
  hidden(): number { hit('Base.hidden'); return this.#hidden; }
  static made(): number { hit('Base.made'); return Base.#made; }
  static #count(): number { hit('Base.#count'); return Base.#made; }
  static count(): number { hit('Base.count'); return Base.#count(); }
  unused(): void { hit('Base.unused'); }
}

@sealed('item')
export class Item extends Base {
  tax = (rate: number): number => { hit('Item.tax'); return rate * this.cost; };
  static readonly [Symbol.iterator] = function* () { hit('Item.static.iterator'); yield 1; };
  constructor(private cost: number) { super('item'); hit('Item.constructor'); }
  @traced price(): number { hit('Item.price'); return this.cost; }
  ['computed' + 1](): number { hit('Item.computed'); return 1; }
  'quoted name'(): number { hit('Item.quoted'); return 1; }
  async *parts(): AsyncGenerator<number> { hit('Item.parts'); yield 1; yield 2; }
  *[Symbol.iterator](): Generator<number> { hit('Item.iterator'); yield this.cost; }
  async later(): Promise<number> { hit('Item.later'); await null; return [1, 2].map((n) => { hit('Item.later.map'); return n; }).length; }
}
/* 🕵🏻 */ export const naïve = (größe: number): number => { hit('naïve'); return größe; }; export const 二 = (n: number): number => { hit('二'); return n + 2; };
export class Ä { ö(): number { hit('Ä.ö'); return 1; } static ß = (): number => { hit('Ä.ß'); return 2; }; }

export default function (): number { hit('default'); return 1; }
