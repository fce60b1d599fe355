use super::*;
use scalpel_common::segment::name_flags::{ANONYMOUS, ASYNC, GENERATOR};

const UNPRINTED: &str = "/*$scalpel:node-do-not-add-exception-line*/";

fn source(text: &str, kind: Kind) -> Source<'_> {
    Source {
        text,
        kind,
        typescript: false,
    }
}

/// Functions from 100 on, the text's own body 99.
fn rewritten(source: Source<'_>, found: &Found, mode: Mode, alias: bool) -> Rewritten {
    let functions: Vec<u32> = (100..).take(found.functions.len()).collect();
    let ids = Ids {
        top_level: 99,
        functions: &functions,
    };
    rewrite(source, found, ids, mode, alias).unwrap()
}

/// Rewritten in each mode, with and without alias; each time every place finds back and the text parses.
fn check(text: &str, kind: Kind) -> String {
    let source = source(text, kind);
    let found = find(source).unwrap();
    let mut call = String::new();
    for (mode, alias) in [
        (Mode::Count, false),
        (Mode::Count, true),
        (Mode::Call, true),
        (Mode::Call, false),
    ] {
        let rewritten = rewritten(source, &found, mode, alias);
        assert_eq!(
            rewritten.text.matches('\n').count(),
            text.matches('\n').count()
        );
        finds_back(text, &rewritten);
        call = rewritten.text.replace(UNPRINTED, "");
    }
    call
}

/// Each unit of the rewritten text stands in for one of the original, in order, and outside of insertions is equal to it.
fn finds_back(text: &str, rewritten: &Rewritten) {
    let original: Vec<u16> = text.encode_utf16().collect();
    let new: Vec<u16> = rewritten.text.encode_utf16().collect();
    let mut seen = vec![false; original.len()];
    let mut last = 0;
    for (place, unit) in new.iter().enumerate() {
        let back = rewritten.edits.offset(place as u32) as usize;
        assert!(back >= last, "places stay in order");
        last = back;
        if back < original.len() && original[back] == *unit {
            seen[back] = true;
        }
    }
    assert!(seen.iter().all(|seen| *seen), "every unit is still there");
}

fn names(text: &str) -> Vec<String> {
    let found = find(source(text, Kind::CommonJs)).unwrap();
    let functions = found.functions.into_iter();
    functions.map(|function| function.name).collect()
}

#[test]
fn a_function_is_bracketed() {
    let text = check("'use strict'; function f(a) { return a }", Kind::CommonJs);
    assert_eq!(
        text,
        "'use strict'; function f(a) {;let $scalpel$t=$scalpel.g[806]?0:$scalpel.e(100),$scalpel$r,$scalpel$v;try{ return \
         ($scalpel$v=(0,a),$scalpel$r=1,$scalpel$v) ;$scalpel$r=1}finally{$scalpel$t&&$scalpel.x($scalpel$t,100,$scalpel$r)}}"
    );
}

#[test]
fn every_line_with_a_piece_is_marked_once() {
    let text = "function f() {\n return [() => 1, () => 2] }\nvar x\nf(function () {\n})";
    let source = source(text, Kind::CommonJs);
    let found = find(source).unwrap();
    for mode in [Mode::Call, Mode::Count] {
        let rewritten = rewritten(source, &found, mode, false).text;
        for line in rewritten.lines() {
            let marks = line.matches(UNPRINTED).count();
            assert_eq!(marks, usize::from(line.contains("$scalpel")), "{line}");
        }
    }
}

#[test]
fn a_count_is_one_statement() {
    let source = source("const f = x => x; function g() {}", Kind::Script);
    let found = find(source).unwrap();
    let ids = Ids {
        top_level: 0,
        functions: &[7, 9],
    };
    let counted = rewrite(source, &found, ids, Mode::Count, false).unwrap();
    assert_eq!(
        counted.text.replace(UNPRINTED, ""),
        "const f = x => ($scalpel.c[7]++,x/*$scalpel*/); function g() {;$scalpel.c[9]++;}"
    );
}

#[test]
fn every_form_of_function_is_rewritten() {
    for text in [
        "#!/usr/bin/env node\n'use strict'\nfunction f() {}",
        "function f() { 'use strict'\n[1].map(x => x) }",
        "const f = () => ({ a: 1 }), g = x => y => [x, y], h = async x => await x",
        "class A extends B { #p = 1; static s = () => 2; constructor() { super(); return } get g() { return this.#p } set g(v) {} \
         static async *['c' + 1]() { yield* x } #m() { return function () {} } static { this.z = 1 } }",
        "function* g() { const a = yield, b = yield 1; yield* [yield, 2]; return yield }",
        "async function f() { for await (const x of y) z(x); for await (const x of y) { if (x) continue; else break } }",
        "async function f() { a: b: for await (x of y) { for (;;) { continue a } } if (1) for await (x of y) ; }",
        "async function f() { try { await x } catch { await y } finally { await z } return await (await a)(await b) }",
        "function f(a = () => 1, { b = function () {}, ...c } = {}) { if (a) return; else return a\n }",
        "const o = { m() {}, get x() { return 1 }, async *[Symbol.iterator]() {}, 'a b': () => {}, f: function () {} }",
        "label: { const f = () => { switch (1) { case 1: return; default: return void 0 } } }",
        "const t = `${(() => `${await1}`)()}`; var await1",
        "export1 = x => /re/g.test(x) ? function () { return /}/ } : null; (function () { return this })()",
        "var 变量 = () => '🕵🏻'; function é() { return 变量 + 'é' } // 🕵🏻\nfunction after() { return 1 }",
    ] {
        check(text, Kind::CommonJs);
    }
    check(
        "export default async () => { await import('x') }\nexport function f() {}",
        Kind::Module,
    );
}

#[test]
fn the_body_of_a_module_is_bracketed_outside_of_any_block() {
    assert_eq!(
        check("export const a = f()\n// end", Kind::Module),
        ";let $scalpel$t=$scalpel.g[798]?0:$scalpel.m(99,0);export const a = f();$scalpel$t&&$scalpel.z($scalpel$t,99,0);\n// end"
    );
    assert_eq!(
        check("#!/usr/bin/env node\r\n'use strict'; f()", Kind::Module),
        "#!/usr/bin/env node\r\n;let $scalpel$t=$scalpel.g[798]?0:$scalpel.m(99,0);'use strict'; f();$scalpel$t&&$scalpel.z($scalpel$t,99,0);"
    );
    let waits = check("const a = await f(); try { g() } catch { }", Kind::Module);
    assert!(waits.contains("$scalpel.m(99,1);const a = $scalpel.v(await $scalpel.v(f(),$scalpel$t&&($scalpel$t=$scalpel.p($scalpel$t,99)))"), "{waits}");
    assert!(
        waits.contains("catch {$scalpel$t<0&&($scalpel$t=$scalpel.q($scalpel$t,99)); }"),
        "{waits}"
    );
    let never = check(
        "try { g() } catch { } for (const x of y) continue",
        Kind::Module,
    );
    assert!(!never.contains(".q("), "{never}");
    for text in [
        "",
        "// nothing",
        "#!/usr/bin/env node\n",
        "import 'x'",
        "export default class {}",
        "export default () => ({})",
        "export default async x => await x",
        "for await (const x of y) { if (x) continue; z(x) }",
        "export { a as default }; const a = 1; export * from 'y'",
        "await import('x'); class A { static { try { f() } catch { g() } } }",
        "label: for await (x of y) for (;;) continue label; var x",
    ] {
        check(text, Kind::Module);
    }
    let lonely = find(source("#!/usr/bin/env node", Kind::Module)).unwrap();
    assert_eq!(lonely.top_level, None);
}

#[test]
fn types_are_read() {
    let text = "abstract class A<T> { constructor(private a: T) {} abstract m(): void; f(this: A<T>, x?: number): x is 1 { return <any>x as T } }\
                declare function g(): void; function h(x: string): void; function h(x: any) { return x! } enum E { A }";
    let source = Source {
        text,
        kind: Kind::Module,
        typescript: true,
    };
    let found = find(source).unwrap();
    assert_eq!(found.functions.len(), 3);
    let rewritten = rewritten(source, &found, Mode::Call, false);
    finds_back(text, &rewritten);
}

#[test]
fn functions_are_named_by_where_they_stand() {
    assert_eq!(
        names(
            "function a() { const b = () => {}; return function () {} }\n\
             class C { m() {} static s() {} get g() { return 1 } #p() {} f = () => 1; ['x' + 1]() {} }\n\
             const o = { m() {}, k: () => 1 }; exports.e = () => 1; A.prototype.p = function () {};\n\
             app.get('/', (q) => q); (function () {})(); const d = (x = () => 1) => x"
        ),
        [
            "a",
            "a.b",
            "a.(anonymous)",
            "C.m",
            "C.s",
            "C.get g",
            "C.#p",
            "C.f",
            "C.[computed]",
            "o.m",
            "o.k",
            "e",
            "A.prototype.p",
            "app.get(argument)",
            "(anonymous)",
            "d",
            "d.x"
        ]
    );
}

#[test]
fn places_are_those_of_v8() {
    let text = "/* é🕵🏻 */ class A { static async m() { return 1 } }\nconst f = async x => x";
    let found = find(source(text, Kind::Script)).unwrap();
    let units: Vec<u16> = text.encode_utf16().collect();
    let slices: Vec<_> = found
        .functions
        .iter()
        .map(|function| {
            String::from_utf16(&units[function.start as usize..function.end as usize]).unwrap()
        })
        .collect();
    assert_eq!(slices, ["async m() { return 1 }", "async x => x"]);
    let [m, f] = found.functions.as_slice() else {
        panic!()
    };
    assert_eq!((m.line, m.column, f.line, f.column), (1, 29, 2, 10));
    assert_eq!((m.flags, f.flags), (ASYNC, ASYNC));
}

#[test]
fn flags_tell_what_a_function_is() {
    let found = find(source("async function* f() {} (() => 1)()", Kind::Script)).unwrap();
    let flags: Vec<_> = found
        .functions
        .iter()
        .map(|function| function.flags)
        .collect();
    assert_eq!(flags, [ASYNC | GENERATOR, ANONYMOUS]);
}

#[test]
fn what_a_block_would_change_is_only_counted() {
    for text in [
        "function f() { var x; function x() {} }",
        "function f() { if (1) { for (var x in y); } function x() {} }",
        "function f() { function x() {} function x() {} }",
        "function f(x) { function x() {} return arguments[0] }",
        "function f(o) { with (o) { return x } }",
        "function f(o) { with (o) { return 1 } }",
    ] {
        let source = source(text, Kind::CommonJs);
        let found = find(source).unwrap();
        assert!(found.functions[0].left_alone, "{text}");
        let call = rewritten(source, &found, Mode::Call, false);
        assert!(call.text.contains("{;$scalpel.o(100);"), "{text}");
        assert!(!call.text.contains("e(100)"), "{text}");
        let count = rewritten(source, &found, Mode::Count, false);
        assert!(count.text.contains("{;$scalpel.c[100]++;"), "{text}");
    }
    let found = find(source(
        "function f() { var y; function x() {} } function g() { var x }",
        Kind::CommonJs,
    ))
    .unwrap();
    assert!(found.functions.iter().all(|function| !function.left_alone));
}

#[test]
fn a_text_is_never_rewritten_twice() {
    let once = check("function f() {}", Kind::Script);
    assert_eq!(
        find(source(&once, Kind::Script)).unwrap_err(),
        Left::NamesHelper
    );
    assert_eq!(
        find(source("function (", Kind::Script)).unwrap_err(),
        Left::Unreadable
    );
}

#[test]
fn makers_of_functions_and_imports_are_counted() {
    let found = find(source(
        "eval('1'); new Function('x'); Function('y'); import('z'); a.eval()",
        Kind::Script,
    ))
    .unwrap();
    assert_eq!((found.evals, found.imports), (3, true));
}
