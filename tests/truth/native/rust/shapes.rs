//! Functions of many shapes, each with a mark that counts its calls. What stands behind `//=` is what has to come of a
//! function that no call of its own is seen of.
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

static MARKS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());
#[inline(never)]
fn hit(name: &'static str) {
    *MARKS.lock().unwrap().entry(name).or_default() += 1;
}

mod shop {
    use super::hit;
    #[inline(never)] pub fn total(n: u64) -> u64 { hit("total"); inner::total(n) }
    mod inner {
        use super::hit;
        #[inline(never)] pub fn total(n: u64) -> u64 { hit("inner.total"); n + 1 }
    }
    #[inline(never)] pub fn twice<T: std::ops::Add<Output = T> + Copy>(n: T) -> T { hit("twice"); n + n }
    pub trait Price {
        fn cost(&self) -> u64;
        #[inline(never)] fn price(&self) -> u64 { hit("Price.price"); self.cost() + 1 }
    }
    pub struct Item(pub u64);
    pub struct Book { pub pages: u64 }
    impl Item {
        #[inline(never)] pub fn new(n: u64) -> Self { hit("Item.new"); Self(n) }
        #[inline(always)] pub fn put_in(&self) -> u64 { hit("Item.put_in"); self.0 } //= not-visible inlined
        #[inline(never)] pub fn never(&self) -> u64 { hit("Item.never"); 0 } //= never-ran
        #[allow(dead_code)] fn unused(&self) -> u64 { hit("Item.unused"); 0 } //= not-in-build no-code
    }
    impl Price for Item {
        #[inline(never)] fn cost(&self) -> u64 { hit("Item.cost"); self.0 }
    }
    impl Price for Book {
        #[inline(never)] fn cost(&self) -> u64 { hit("Book.cost"); self.pages }
        #[inline(never)] fn price(&self) -> u64 { hit("Book.price"); self.cost() }
    }
    impl Drop for Book {
        #[inline(never)] fn drop(&mut self) { hit("Book.drop"); }
    }
    impl<'a> std::ops::Add<&'a Item> for Item {
        type Output = Self;
        #[inline(never)] fn add(self, other: &'a Item) -> Self { hit("Item.add"); Self(self.0 + other.0) }
    }
    impl From<u64> for Item {
        #[inline(never)] fn from(n: u64) -> Self { hit("Item.from"); Self(n) }
    }
}

#[inline(never)] extern "C" fn compare(a: &u64, b: &u64) -> i32 { hit("compare"); i32::from(a > b) - i32::from(a < b) }
#[inline(never)] const fn fixed(n: u64) -> u64 { n * 2 } //= -
#[inline(never)] fn recursive(n: u64) -> u64 { hit("recursive"); if n < 2 { 1 } else { std::hint::black_box(recursive(n - 1)) + recursive(n - 2) } }
#[inline(never)] fn caught() { hit("caught"); let _ = std::panic::catch_unwind(panics); }
#[inline(never)] fn panics() { hit("panics"); std::panic::resume_unwind(Box::new(1)); }
async fn later(n: u64) -> u64 { hit("later"); n } //= not-visible inlined
#[inline(never)] fn ready<T>(future: impl Future<Output = T>) -> T { hit("ready");
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) { Poll::Ready(value) => value, Poll::Pending => panic!() }
}
#[inline(never)] fn apply(f: &dyn Fn(u64) -> u64, n: u64) -> u64 { hit("apply"); f(n) }
#[inline(never)] fn outer(n: u64) -> u64 { hit("outer");
    #[inline(never)] fn within(n: u64) -> u64 { hit("outer.within"); n }
    within(n) + within(n)
}

fn main() { hit("main");
    use shop::{Book, Item, Price};
    let item = Item::new(3) + &Item::from(2);
    let book = Book { pages: 7 };
    let dynamic: [&dyn Price; 2] = [&item, &book];
    let mut sum = shop::total(1) + shop::twice(2u64) + u64::from(shop::twice(2u8)) + item.put_in() + fixed(item.0);
    sum += dynamic.iter().map(|it| it.price()).sum::<u64>(); //= not-visible inlined
    sum += u64::from(compare(&1, &2) < 0) + recursive(5) + outer(1);
    caught();
    let captured = sum;
    let closure =
        move |n: u64| { hit("closure"); n + captured }; //= not-visible inlined
    sum += apply(&closure, 1) + ready(later(2));
    if std::env::args().count() > 9 { sum += item.never(); }
    drop(book);
    let marks = MARKS.lock().unwrap().clone();
    for (name, calls) in marks { println!("{name} {calls}"); }
    assert!(sum > 0);
}
