//! Calls that are labelled by hand: see README.md.
mod list;
use list::{length as size, Counter};

trait Shape {
    fn area(&self) -> i32;
    fn twice(&self) -> i32 { 2 * self.area() } //: Shape::twice = Square::area Circle::area
}
struct Square { side: i32 }
struct Circle;
impl Shape for Square {
    fn area(&self) -> i32 { self.side * self.side } //: Square::area
}
impl Shape for Circle {
    fn area(&self) -> i32 { 3 } //: Circle::area
}
impl Square {
    fn new(side: i32) -> Self { Self::checked(side) } //: Square::new = Square::checked
    fn checked(side: i32) -> Self { Self { side } } //: Square::checked
    fn grow(&mut self) -> &mut Self { self.side += 1; self } //: Square::grow
}
fn helper(n: i32) -> i32 { n + 1 } //: helper
fn twice(n: i32) -> i32 { helper(helper(n)) } //: twice = helper
fn apply(f: impl Fn(i32) -> i32, n: i32) -> i32 { f(n) } //: apply = twice helper
fn shadowed(helper: fn(i32) -> i32) -> i32 { helper(1) } //: shadowed = twice
fn generic<T: Shape>(shape: &T) -> i32 { shape.area() } //: generic = Square::area
fn dynamic(shape: &dyn Shape) -> i32 { shape.area() + shape.twice() } //: dynamic = Circle::area Shape::twice
fn outer() -> i32 { //: outer
    fn helper(n: i32) -> i32 { n } //: outer::helper
    helper(1) //= outer::helper
}
macro_rules! call { ($f:ident) => { $f(1) } }
fn main() { //: main
    let mut square = Square::new(2); //= Square::new
    let mut sum = square.grow().grow().area(); //= Square::grow Square::area
    sum += square.twice() + Shape::area(&square) + <Square as Shape>::area(&square); //= Shape::twice Square::area
    sum += generic(&square) + dynamic(&Circle); //= generic dynamic
    sum += apply(twice, 1) + apply(helper, 2); //= apply
    sum += shadowed(twice) + outer(); //= shadowed outer
    sum += size(&[1]) + list::length(&[]); //= list::length
    let local = |n| helper(n); //: local = helper
    sum += local(1); //= local
    let helper = |n: i32| n; //: local_helper
    sum += helper(2); //= local_helper
    sum += call!(twice); //= twice
    sum += Counter::default().next(); //= Counter::default Counter::next
    sum += [1, 2].iter().map(|n| crate::twice(*n)).sum::<i32>(); //= twice
    println!("{}", sum);
}
