import anonymous, { length as size, Base } from './lists.mjs';
import * as lists from './lists.mjs';
function helper(n) { return n + 1; } //: helper
const twice = (n) => helper(helper(n)); //: twice = helper
function apply(f, n) { return f(n); } //: apply = twice helper
function shadowed(helper) { return helper(1); } //: shadowed = twice
function rebound() { let twice = helper; return twice(1); } //: rebound = helper
class Square extends Base {
  #side = 1;
  constructor(side) { super(); this.#side = side; this.check(); } //: Square.new = Base.new Square.check
  check() { return this.#area(); } //: Square.check = Square.area
  #area() { return this.#side + this.shared(); } //: Square.area = Base.shared
  static made() { return new Square(1); } //: Square.made = Square.new
  static both() { return this.made(); } //: Square.both = Square.made
  field = () => this.check(); //: Square.field = Square.check
}
const object = { method() { return helper(1); }, arrow: () => twice(1), self() { return this.method(); } }; //: object.self = helper twice object.self
function outer() { //: outer
  function helper() { return 1; } //: outer.helper
  { const twice = () => helper(); helper(); } //= outer.helper
  return helper() + hoisted(); //= outer.helper hoisted
  function hoisted() { return 2; } //: hoisted
}
let assigned = () => 1; //: assigned.first
assigned = () => 2; //: assigned.second
const maker = () => () => helper(2); //: maker = helper
(function main() { //: main = main
  const square = new Square(2); //= Square.new
  let sum = square.check() + square.field() + Square.made().check(); //= Square.check Square.field Square.made
  sum += apply(twice, 1) + apply(helper, 1); //= apply
  sum += shadowed(twice) + rebound() + outer(); //= shadowed rebound outer
  sum += size([]) + lists.length([1]) + anonymous(); //= length default
  sum += object.self(); //= object.self
  sum += assigned(); //= assigned.second
  sum += maker()(); //= maker
  sum += [1, 2].map((n) => twice(n)).length; //= twice
  sum += Square.both() ? 1 : helper?.(1); //= Square.both helper
  for (const helper of [twice]) sum += helper(1); //= twice
  console.log(sum);
})();
