//! Hand-labelled texts: every definition and every certain call of them, and nothing else.

mod labelled;

use std::fs;

use tempfile::tempdir;

use super::build;
use crate::catalog::{Catalog, Definition, Kept};

/// Files and their texts.
type Sources = &'static [(&'static str, &'static str)];

fn catalog(sources: &[(&str, &str)]) -> Catalog {
    let folder = tempdir().unwrap();
    for (path, text) in sources {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    build(&[folder.path().to_owned()], &[], &Kept::default(), &|| {
        false
    })
    .unwrap()
    .kept
    .catalog
}

fn check(sources: Sources, definitions: &str, calls: &str) {
    let catalog = catalog(sources);
    let found: Vec<_> = catalog
        .definitions
        .iter()
        .map(|it| shown(&catalog, it))
        .collect();
    assert_eq!(found.join("\n"), definitions.trim(), "definitions");
    let mut found: Vec<_> = catalog
        .edges
        .iter()
        .map(|edge| {
            let name = |id: crate::catalog::DefId| &catalog.definitions[id.index()].qualified;
            format!(
                "{}:{} {} -> {} ({})",
                edge.line,
                edge.column,
                name(edge.caller),
                name(edge.callee),
                edge.how.word()
            )
        })
        .collect();
    found.sort();
    let mut expected: Vec<_> = calls.trim().lines().map(str::to_owned).collect();
    expected.sort();
    assert_eq!(found.join("\n"), expected.join("\n"), "calls");
}

fn shown(catalog: &Catalog, it: &Definition) -> String {
    let span = it.span;
    let file = &catalog.files[it.file.index()].path;
    let flags = [
        (it.flags.is_async, " async"),
        (it.flags.generator, " generator"),
        (it.flags.is_static, " static"),
        (it.flags.anonymous, " anonymous"),
    ];
    let flags: String = flags
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, word)| *word)
        .collect();
    format!(
        "{file} {}:{}-{}:{} {} {}#{}{flags}",
        span.start.line,
        span.start.column,
        span.end.line,
        span.end.column,
        it.kind.word(),
        it.qualified,
        it.ordinal
    )
}

#[test]
fn python_as_labelled() {
    const SOURCES: Sources = &[
        (
            "a.py",
            r#"import b
from b import helper as hp, Base

class A(Base):
    x = 1
    def __init__(self):
        self.v = [hp(i) for i in range(3)]
    @property
    def p(self): return self.q()
    @staticmethod
    def st(): return 1
    async def q(self):
        return A.st() + b.helper(2) + self.m()

def main():
    a = A()
    a.q()
    f = lambda z: z
    f(3)
    def inner():
        yield 1
    inner()
main()
"#,
        ),
        (
            "b.py",
            r#"def helper(i): return i
class Base:
    def m(self): return 0
"#,
        ),
    ];
    check(
        SOURCES,
        r#"
a.py 1:0-24:0 module <module>#0
a.py 4:0-13:46 class A#0
a.py 6:4-7:42 constructor A.__init__#0
a.py 7:17-7:42 comprehension A.__init__.<locals>.<listcomp>#0 anonymous
a.py 9:4-9:32 getter A.p#0
a.py 11:4-11:22 method A.st#0 static
a.py 12:4-13:46 method A.q#0 async
a.py 15:0-22:11 function main#0
a.py 18:8-18:19 closure main.<locals>.<lambda>#0 anonymous
a.py 20:4-21:15 function main.<locals>.inner#0 generator
b.py 1:0-4:0 module <module>#0
b.py 1:0-1:23 function helper#0
b.py 2:0-3:25 class Base#0
b.py 3:4-3:25 method Base.m#0
"#,
        r#"
23:0 <module> -> main (scope)
7:18 A.__init__.<locals>.<listcomp> -> helper (import)
9:24 A.p -> A.q (receiver)
13:15 A.q -> A.st (type)
13:24 A.q -> helper (import)
13:38 A.q -> Base.m (receiver)
16:8 main -> A.__init__ (scope)
17:4 main -> A.q (type)
19:4 main -> main.<locals>.<lambda> (scope)
22:4 main -> main.<locals>.inner (scope)
"#,
    );
}

#[test]
fn javascript_as_labelled() {
    const SOURCES: Sources = &[
        (
            "c.js",
            r#"const { x, y } = require('./d');
import def, { z as zz } from './d.js';
class K extends Object { #p = 1; static { init(); } get v() { return this.w(); } async *w() { x(); } field = () => { this.w() } }
function init() { y(); zz(); new K(); (function iife() {})(); }
export default init;
"#,
        ),
        (
            "d.js",
            r#"function x() {}
exports.y = function () { x(); };
module.exports.x = x;
export function z() {}
export default class {}
"#,
        ),
    ];
    check(
        SOURCES,
        r#"
c.js 1:0-6:0 module (module)#0
c.js 3:0-3:129 implicit-constructor K#0
c.js 3:25-3:127 field-initialiser K.<instance_members_initializer>#0 anonymous
c.js 3:33-3:51 static-block K.<static_initializer>#0 static anonymous
c.js 3:52-3:80 getter K.v#0
c.js 3:81-3:100 method K.w#0 async generator
c.js 3:109-3:127 closure K.field#0
c.js 4:0-4:63 function init#0
c.js 4:39-4:57 closure init.iife#0
d.js 1:0-6:0 module (module)#0
d.js 1:0-1:15 function x#0
d.js 2:12-2:32 closure y#0
d.js 4:7-4:22 function z#0
d.js 5:15-5:23 implicit-constructor default#0
"#,
        r#"
3:42 K.<static_initializer> -> init (scope)
3:69 K.v -> K.w (receiver)
3:94 K.w -> x (import)
3:117 K.field -> K.w (receiver)
4:29 init -> K (scope)
4:38 init -> init.iife (scope)
4:18 init -> y (import)
4:23 init -> z (import)
2:26 y -> x (scope)
"#,
    );
}

#[test]
fn typescript_as_labelled() {
    const SOURCES: Sources = &[(
        "e.ts",
        r#"export enum Color { Red }
export namespace N { export function f(): void {} }
@dec export class C { constructor(private a: number) { this.go(); } private static async go2(): Promise<void> {} public go() { C.go2(); } }
function over(a: string): void; function over(a: any) { N.f(); new C(1).go(); const c = new C(2); c.go(); }
"#,
    )];
    check(
        SOURCES,
        r#"
e.ts 1:0-5:0 module (module)#0
e.ts 1:7-1:25 enum Color#0
e.ts 2:7-2:51 namespace N#0
e.ts 2:28-2:49 function N.f#0
e.ts 3:22-3:67 constructor C.constructor#0
e.ts 3:83-3:112 method C.go2#0 async static
e.ts 3:120-3:137 method C.go#0
e.ts 4:32-4:107 function over#0
"#,
        r#"
3:55 C.constructor -> C.go (receiver)
3:127 C.go -> C.go2 (type)
4:63 over -> C.constructor (scope)
4:88 over -> C.constructor (scope)
4:98 over -> C.go (type)
"#,
    );
}

#[test]
fn go_as_labelled() {
    const SOURCES: Sources = &[(
        "m.go",
        r#"package main
import "fmt"
type T struct{ inner U }
type U struct{}
func (u *U) Do() {}
func (t *T) Run() { t.inner.Do(); t.help(); help() }
func (t *T) help() {}
func help() { fmt.Println("x"); f := func() { help() }; f(); func() {}() }
func main() { t := &T{}; t.Run(); u := U{}; u.Do() }
"#,
    )];
    check(
        SOURCES,
        r#"
m.go 5:0-5:19 method (*U).Do#0
m.go 6:0-6:52 method (*T).Run#0
m.go 7:0-7:21 method (*T).help#0
m.go 8:0-8:74 function help#0
m.go 8:37-8:54 closure help.func1#0 anonymous
m.go 8:61-8:70 closure help.func2#0 anonymous
m.go 9:0-9:52 function main#0
"#,
        r#"
6:20 (*T).Run -> (*U).Do (type)
6:34 (*T).Run -> (*T).help (type)
6:44 (*T).Run -> help (scope)
8:56 help -> help.func1 (scope)
8:61 help -> help.func2 (scope)
8:46 help.func1 -> help (scope)
9:44 main -> (*U).Do (type)
9:25 main -> (*T).Run (type)
"#,
    );
}

#[test]
fn rust_as_labelled() {
    const SOURCES: Sources = &[
        (
            "src/main.rs",
            r#"mod util;
use util::{go, Thing};
struct S { t: Thing }
impl S { fn new() -> Self { S { t: Thing::make() } } fn run(&self) { self.t.act(); self.other(); Self::new(); } fn other(&self) { go(); util::go(); crate::util::go(); let c = |x| x; c(1); } }
trait T { fn m(&self) { } }
impl T for S { fn m(&self) { self.run() } }
fn main() { let s: S = S::new(); s.run(); }
"#,
        ),
        (
            "src/util.rs",
            r#"pub struct Thing;
impl Thing { pub fn make() -> Self { Thing } pub fn act(&self) { super::main(); } }
pub fn go() {}
"#,
        ),
    ];
    check(
        SOURCES,
        r#"
src/main.rs 4:9-4:52 method S::new#0 static
src/main.rs 4:53-4:111 method S::run#0
src/main.rs 4:112-4:189 method S::other#0
src/main.rs 4:175-4:180 closure S::other::{closure#0}#0 anonymous
src/main.rs 5:10-5:25 method T::m#0
src/main.rs 6:15-6:41 method <S as T>::m#0
src/main.rs 7:0-7:43 function main#0
src/util.rs 2:17-2:44 method Thing::make#0 static
src/util.rs 2:49-2:81 method Thing::act#0
src/util.rs 3:4-3:14 function go#0
"#,
        r#"
4:35 S::new -> Thing::make (import)
4:97 S::run -> S::new (type)
4:83 S::run -> S::other (receiver)
4:69 S::run -> Thing::act (receiver)
4:182 S::other -> S::other::{closure#0} (scope)
4:130 S::other -> go (import)
4:136 S::other -> go (import)
4:148 S::other -> go (import)
6:29 <S as T>::m -> S::run (receiver)
7:23 main -> S::new (type)
7:33 main -> S::run (type)
"#,
    );
}

#[test]
fn c_as_labelled() {
    const SOURCES: Sources = &[
        (
            "x.c",
            r#"#define MAC(x) real(x)
static int local_fn(int a) { return a; }
int real(int a) { return local_fn(a) + other(a) + MAC(3); }
int (*fp)(int);
int call(int (*cb)(int)) { return cb(1) + fp(2); }
"#,
        ),
        (
            "y.c",
            r#"int other(int a) { return a; }
"#,
        ),
    ];
    check(
        SOURCES,
        r#"
x.c 2:0-2:40 function local_fn#0
x.c 3:0-3:59 function real#0
x.c 5:0-5:50 function call#0
y.c 1:0-1:30 function other#0
"#,
        r#"
3:25 real -> local_fn (scope)
3:39 real -> other (unique)
"#,
    );
}

#[test]
fn cpp_as_labelled() {
    const SOURCES: Sources = &[(
        "z.cpp",
        r#"namespace ns { int f(int a) { return a; } int f(int a, int b) { return f(a); }
class W { public: W() {} ~W() {} void a() { b(); this->b(); } void b(); virtual void v() { a(); } static int s() { return f(1,2); } }; 
void W::b() { auto l = [](int q) { return q; }; l(1); v(); } }
int main() { ns::W w; w.a(); return ns::f(1); }
"#,
    )];
    check(
        SOURCES,
        r#"
z.cpp 1:15-1:41 function ns::f#0
z.cpp 1:42-1:78 function ns::f#1
z.cpp 2:18-2:24 constructor ns::W::W#0
z.cpp 2:25-2:32 destructor ns::W::~W#0
z.cpp 2:33-2:61 method ns::W::a#0
z.cpp 2:72-2:97 method ns::W::v#0
z.cpp 2:98-2:131 method ns::W::s#0 static
z.cpp 3:0-3:60 method ns::W::b#0
z.cpp 3:23-3:46 closure ns::W::b::{lambda#1}#0 anonymous
z.cpp 4:0-4:47 function main#0
"#,
        r#"
1:71 ns::f -> ns::f (scope)
2:91 ns::W::v -> ns::W::a (receiver)
2:122 ns::W::s -> ns::f (scope)
4:36 main -> ns::f (unique)
"#,
    );
}

#[test]
fn java_as_labelled() {
    const SOURCES: Sources = &[(
        "J.java",
        r#"package p;
import java.util.*;
public class J extends B { private H h = new H(); static { init(); } public J(int a) { super(a); h.go(); }
  @Override public void over() { inherited(); this.m(1); m(1, 2); H.st(); Runnable r = () -> m(1); new Thread() { public void run() { m(1); } }; }
  void m(int a) {} void m(int a, int b) {} static void init() {} }
class H { void go() {} static void st() {} }
class B { B(int a) {} void inherited() {} }
"#,
    )];
    check(
        SOURCES,
        r#"
J.java 3:50-3:68 static-block J.<clinit>#0 static anonymous
J.java 3:76-3:106 constructor J.J#0
J.java 4:19-4:146 method J.over#0
J.java 4:87-4:97 closure J.over.lambda#0 anonymous
J.java 4:121-4:141 method J.over.1.run#0
J.java 5:2-5:18 method J.m#0
J.java 5:19-5:42 method J.m#1
J.java 5:50-5:64 method J.init#0 static
J.java 6:0-6:44 implicit-constructor H#0
J.java 6:10-6:22 method H.go#0
J.java 6:30-6:42 method H.st#0 static
J.java 7:10-7:21 constructor B.B#0
J.java 7:22-7:41 method B.inherited#0
"#,
        r#"
3:59 J.<clinit> -> J.init (receiver)
3:97 J.J -> H.go (receiver)
4:46 J.over -> J.m (receiver)
4:57 J.over -> J.m (receiver)
4:66 J.over -> H.st (type)
4:33 J.over -> B.inherited (receiver)
4:93 J.over.lambda -> J.m (receiver)
"#,
    );
}

#[test]
fn php_as_labelled() {
    const SOURCES: Sources = &[(
        "p.php",
        r#"<?php function f() { return fn($x) => $x; } class Q { private static function s() { yield 1; } public function __construct() { $a = function() {}; } }
"#,
    )];
    check(
        SOURCES,
        r#"
p.php 1:0-2:0 module {main}#0
p.php 1:6-1:43 function f#0
p.php 1:28-1:40 closure f::{closure}#0 anonymous
p.php 1:69-1:94 method Q::s#0 generator static
p.php 1:102-1:148 constructor Q::__construct#0
p.php 1:132-1:145 closure Q::__construct::{closure}#0 anonymous
"#,
        r#"
"#,
    );
}

#[test]
fn ruby_as_labelled() {
    const SOURCES: Sources = &[(
        "r.rb",
        r#"module M; class C; def self.a; end; def b; x = ->(y) { y }; z = lambda { 1 }; end; end; end
"#,
    )];
    check(
        SOURCES,
        r#"
r.rb 1:0-2:0 module <main>#0
r.rb 1:19-1:34 method M::C::a#0 static
r.rb 1:36-1:81 method M::C::b#0
r.rb 1:47-1:58 closure M::C::b::lambda#0 anonymous
r.rb 1:71-1:76 closure M::C::b::lambda#1 anonymous
"#,
        r#"
"#,
    );
}

#[test]
fn lua_as_labelled() {
    const SOURCES: Sources = &[(
        "l.lua",
        r#"local function a() end
function b.c:d() end
local e = function() end
"#,
    )];
    check(
        SOURCES,
        r#"
l.lua 1:0-4:0 module main chunk#0
l.lua 1:6-1:22 function a#0
l.lua 2:0-2:20 method b.c:d#0
l.lua 3:10-3:24 closure e#0
"#,
        r#"
"#,
    );
}

#[test]
fn zig_as_labelled() {
    const SOURCES: Sources = &[(
        "q.zig",
        r#"const S = struct { pub fn m(self: S) void { _ = self; } };
test "x" { }
pub fn main() void {}
"#,
    )];
    check(
        SOURCES,
        r#"
q.zig 1:23-1:55 method S.m#0
q.zig 2:0-2:12 function test.x#0
q.zig 3:4-3:21 function main#0
"#,
        r#"
"#,
    );
}

#[test]
fn csharp_as_labelled() {
    const SOURCES: Sources = &[(
        "w.cs",
        r#"namespace N { class C { public static async Task M() { int L() => 1; var f = (int x) => x; } int P { get => 1; set { } } int R => 3; public C() {} static C() {} } }
"#,
    )];
    check(
        SOURCES,
        r#"
w.cs 1:44-1:92 method N.C.M#0 async static
w.cs 1:55-1:68 function N.C.M.L#0
w.cs 1:77-1:89 closure N.C.M.lambda#0 anonymous
w.cs 1:101-1:110 getter N.C.get_P#0
w.cs 1:111-1:118 setter N.C.set_P#0
w.cs 1:121-1:132 getter N.C.get_R#0
w.cs 1:140-1:146 constructor N.C..ctor#0
w.cs 1:154-1:160 static-block N.C..cctor#0 static
"#,
        r#"
"#,
    );
}

#[test]
fn default_values_and_bases_of_python_are_called_for_by_what_is_around() {
    let catalog = catalog(&[(
        "a.py",
        "\
def made(): pass
def plain(a=made(), *, b: made() = 1): made()
class Shop(made()):
    def add(self, a=made()): return lambda b=made(): made()
",
    )]);
    let name = |id: crate::catalog::DefId| &*catalog.definitions[id.index()].qualified;
    let calls = catalog
        .edges
        .iter()
        .map(|edge| (edge.line, edge.column, name(edge.caller)));
    let mut calls: Vec<_> = calls.collect();
    calls.sort_unstable();
    let expect = [
        (2, 12, "<module>"),
        (2, 26, "<module>"),
        (2, 39, "plain"),
        (3, 11, "<module>"),
        (4, 20, "Shop"),
        (4, 45, "Shop.add"),
        (4, 53, "Shop.add.<locals>.<lambda>"),
    ];
    assert_eq!(calls, expect);
}
