//! What exists in an executable, against a program whose calls are known.

use scalpel_user::catalog::{Catalog, How, Kept, PieceKind};
use scalpel_user::static_;

use crate::build::Workshop;

const SOURCE: &str = "\
#include <cstdio>
#include <cstdlib>
struct A { virtual int v(int); virtual ~A() {} };
__attribute__((noinline)) int leaf(int x) { return x * 3 + 1; }
static inline int small(int x) { return x + 2; }
int A::v(int x) { return leaf(small(x)); }
__attribute__((noinline)) int tail(int x) { return leaf(x + 1); }
int (*pointer)(int) = nullptr;
__attribute__((noinline)) void take() { pointer = leaf; }
int main(int c, char **) { A *a = new A; take(); printf(\"%d\\n\", a->v(c) + tail(c) + pointer(c)); delete a; }
";

fn catalog() -> Option<Catalog> {
    let workshop = Workshop::new();
    workshop.source("a.cc", SOURCE);
    if !crate::build::has("g++") {
        return None;
    }
    workshop.run("g++ -O2 -g -fPIE -pie -o a a.cc");
    let built = static_::build(&[], &[workshop.path("a")], &Kept::default(), &|| false);
    Some(built.unwrap().kept.catalog)
}

fn calls(catalog: &Catalog, caller: &str, how: How) -> Vec<String> {
    let name = |id: scalpel_user::catalog::DefId| catalog.definitions[id.index()].name.clone();
    let edges = catalog
        .edges
        .iter()
        .filter(|edge| edge.how == how && name(edge.caller) == caller);
    edges.map(|edge| name(edge.callee)).collect()
}

#[test]
fn calls_jumps_imports_and_possible_callees_are_told_apart() {
    let Some(catalog) = catalog() else { return };
    assert_eq!(calls(&catalog, "tail(int)", How::TailJump), ["leaf(int)"]);
    assert_eq!(calls(&catalog, "take()", How::AddressTaken), ["leaf(int)"]);
    assert!(calls(&catalog, "main", How::Plt).contains(&"printf".into()));
    assert!(calls(&catalog, "main", How::Vtable).contains(&"A::v(int)".into()));
    assert!(calls(&catalog, "main", How::Direct).contains(&"take()".into()));
    for how in How::ALL {
        assert!(
            calls(&catalog, "_init", *how).is_empty(),
            "the stubs behind _init are not its own"
        );
    }
}

#[test]
fn inlined_copies_and_lines_come_from_debug_information() {
    let Some(catalog) = catalog() else { return };
    let (small, definition) = catalog
        .numbered()
        .find(|(_, it)| it.name == "small")
        .unwrap();
    let native = definition.native.as_ref().unwrap();
    assert_eq!(
        (native.size, native.line),
        (0, Some(5)),
        "it stands nowhere itself"
    );
    let hosts: Vec<_> = catalog
        .pieces
        .iter()
        .filter(|piece| piece.of == small && piece.kind == PieceKind::Inlined)
        .filter_map(|piece| piece.host)
        .map(|host| catalog.definitions[host.index()].name.as_str())
        .collect();
    assert!(hosts.contains(&"A::v(int)"), "{hosts:?}");
}

const LAMBDAS: &str = "\
#include <functional>
#define NI __attribute__((noinline, noipa))
static int seen;
template <typename T> NI T within(T n) { auto inner = [](T m) NI { seen++; return m; }; return inner(n); }
int main(int count, char **) {
    auto plain = [](int n) NI { seen++; return n; };
    auto any = [](auto n) NI { seen++; return n; };
    auto pair = [](int n) NI { seen++; return n; }(1) + [](int n) NI { seen--; return n; }(2);
    auto outer = [&](int n) NI {
        auto inner = [n](int m) NI { seen++; return n + m; };
        return inner(count);
    };
    std::function<int(int)> put = [count](int n) { return n + count; };
    return plain(1) + any(1) + int(any(1.5)) + pair + outer(1) + put(1) + within(1) + int(within(1.5));
}
";

#[test]
fn lambdas_stand_where_their_classes_do() {
    let workshop = Workshop::new();
    workshop.source("a.cc", LAMBDAS);
    if !crate::build::has("g++") {
        return;
    }
    workshop.run("g++ -std=c++17 -O1 -g -o a a.cc");
    let built = static_::build(&[], &[workshop.path("a")], &Kept::default(), &|| false);
    let catalog = built.unwrap().kept.catalog;
    let of_a = |native: &&scalpel_user::catalog::Native| {
        let source = native.source.as_deref().unwrap_or_default();
        source.ends_with("/a.cc")
    };
    let natives = catalog.definitions.iter();
    let natives = natives.filter(|definition| definition.name.contains("operator()"));
    let mut places: Vec<_> = natives
        .filter_map(|definition| definition.native.as_ref().filter(of_a))
        .map(|native| (native.line.unwrap(), native.column.unwrap()))
        .collect();
    places.sort_unstable();
    // Of a lambda in a template gcc names the first bracket, else the last one.
    let column = |line: usize, nth: usize| {
        let bracket = if line == 4 { '[' } else { ']' };
        let text = LAMBDAS.lines().nth(line - 1).unwrap();
        text.match_indices(bracket).nth(nth).unwrap().0 as u32 + 1
    };
    let lines = [4, 4, 6, 7, 7, 8, 8, 9, 10, 13];
    let nth = |at: usize| usize::from(at == 6);
    let expect: Vec<_> = (0..)
        .zip(lines)
        .map(|(at, line)| (line as u32, column(line, nth(at))))
        .collect();
    assert_eq!(places, expect);
}
