import anonymous, { length as size, type Kind, Base } from './lists';
import * as lists from './lists';
function over(n: number): number;
function over(s: string): string;
function over(it: unknown): unknown { return it; } //: over
const twice = <T extends number>(n: T): number => helper(helper(n)); //: twice = helper
function helper(this: void, n: number): number { return n + 1; } //: helper
function apply(f: (n: number) => number): number { return f(1); } //: apply = twice
namespace Geometry {
  export function area(side: number): number { return unit() * side; } //: Geometry.area = Geometry.unit
  function unit(): number { return 1; } //: Geometry.unit
}
abstract class Shape extends Base {
  constructor(protected readonly side: number) { super(); } //: Shape.new = Base.new
  abstract area(): number;
  twice(): number { return 2 * this.area(); } //: Shape.twice = Square.area
  static of(kind: Kind): Shape { return kind === 'square' ? new Square(1) : new Square(2); } //: Shape.of = Square.new
}
class Square extends Shape {
  constructor(side: number) { super(side); } //: Square.new = Shape.new
  override area(): number { return Geometry.area(this.side) + this.#own(); } //: Square.area = Geometry.area Square.own
  #own(): number { return this.shared()!; } //: Square.own = Base.shared
  get value(): number { return this.twice() as number; } //: Square.value = Shape.twice
}
function main(): void { //: main
  const square: Square = new Square(2); //= Square.new
  const shape: Shape = Shape.of('square'); //= Shape.of
  let sum = square.area() + shape.area() + shape.twice(); //= Square.area Shape.twice
  sum += over(1) + twice(2) + helper(1); //= over twice helper
  sum += apply(twice) + Geometry.area(1); //= apply Geometry.area
  sum += size([]) + lists.length([1]) + anonymous(); //= length default
  sum += ((square as Shape).twice() satisfies number) + (helper as (n: number) => number)(1); //= Shape.twice helper
  console.log(sum, [1].map(twice), square.value); //= twice
}
main(); //= main
