//! Small catalogs and runs made by hand, each with the truth written beside it.

use super::*;
use crate::catalog::{
    Absence, Blindness, Builder, Definition, Edge, File, Flags, FoundBy, How, Kind, Native,
    Position, Span, State, hash,
};
use crate::event::MonoTime;
use crate::function::SourcePlace;
use crate::genome::BlindSpot;
use crate::genome::tests::{function, run};
use crate::genome::unseen::Unseen;
use crate::input::Loss;
use scalpel_common::kernel::LossClass;
use scalpel_common::segment::unseen;

use crate::tree::{Cell, Context, ContextId, EdgeSource, Metrics, Thread, Tree};

/// A source text whose definitions are named by what stands at their starts and ends.
struct Source {
    path: &'static str,
    text: &'static str,
    language: Language,
}

fn position(text: &str, byte: usize) -> Position {
    let before = &text[..byte];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Position {
        byte: byte as u32,
        utf16: before.encode_utf16().count() as u32,
        line: before.matches('\n').count() as u32 + 1,
        column: before[line_start..].encode_utf16().count() as u32,
    }
}

impl Source {
    fn file(&self, builder: &mut Builder) -> FileId {
        let root = builder.root("/app");
        builder.file(File {
            root: Some(root),
            path: self.path.into(),
            language: self.language,
            content: [1; 32],
            text_hash: hash(self.text.as_bytes()),
            build_id: String::new(),
            bytes: self.text.len() as u64,
            lines: self.text.lines().count() as u32,
            calls: 0,
            resolved: 0,
        })
    }

    /// The definition that `head` begins and whose text ends with the first `tail` behind it.
    fn definition(
        &self,
        file: FileId,
        kind: Kind,
        name: &str,
        head: &str,
        tail: &str,
    ) -> Definition {
        let declared = self.text.find(head).unwrap();
        let modifiers = ["@memo\n", "export ", "async "];
        let skipped = modifiers
            .iter()
            .take(2)
            .filter(|word| head.starts_with(**word));
        let start = declared + skipped.map(|word| word.len()).sum::<usize>();
        let end = declared + self.text[declared..].find(tail).unwrap() + tail.len();
        let body = start + self.text[start..].find(['{', ':', '>']).unwrap();
        let at = |byte| position(self.text, byte);
        Definition {
            file,
            parent: None,
            kind,
            name: name.rsplit('.').next().unwrap().into(),
            qualified: name.into(),
            ordinal: 0,
            flags: Flags {
                is_async: head.contains("async "),
                ..Flags::default()
            },
            body_hash: 1,
            span: Span {
                start: at(start),
                end: at(end),
                declared: at(declared),
                name: at(start),
                body: at(body),
            },
            native: None,
        }
    }
}

/// A run of functions, each called once from the one before it, in one thread.
fn genome(functions: Vec<FunctionInfo>) -> Genome {
    let mut table = FunctionTable::new();
    let mut contexts = vec![Context {
        parent: ContextId::ROOT,
        func: None,
        source: EdgeSource::Exact,
    }];
    let mut cells = Vec::new();
    for info in functions {
        let func = Some(table.insert(info));
        let context = ContextId(contexts.len() as u32);
        contexts.push(Context {
            parent: ContextId(context.0 - 1),
            func,
            source: EdgeSource::Exact,
        });
        cells.push(Cell {
            window: 0,
            thread: 0,
            context,
            metrics: Metrics {
                calls: 1,
                timed: 1,
                total_wall_ns: 10,
                ..Metrics::default()
            },
        });
    }
    Genome {
        functions: table,
        ended: MonoTime(2_000_000_000),
        tree: Tree {
            window_ns: 1_000_000_000,
            contexts,
            threads: vec![Thread::default()],
            cells,
            ..Tree::default()
        },
        ..Genome::of_run(run())
    }
}

fn script(source: &Source, text: &str, head: &str, tail: &str) -> FunctionInfo {
    let start = text.find(head).unwrap();
    let end = start + text[start..].find(tail).unwrap() + tail.len();
    let (start, end) = (position(text, start), position(text, end));
    FunctionInfo {
        raw_name: String::new(),
        language: Language::JavaScript,
        path: format!("/app/{}", source.path),
        line: Some(start.line),
        build_id: String::new(),
        file_offset: start.utf16.into(),
        place: SourcePlace {
            column: Some(start.column),
            range: Some((start.utf16, end.utf16)),
            text_hash: hash(text.as_bytes()),
            flags: if head.contains("async ") {
                name_flags::ASYNC
            } else {
                0
            },
            ..SourcePlace::default()
        },
        ..function(head, ExitStrategy::Probe)
    }
}

fn python(name: &str, line: u32, end_line: u32, flags: u16) -> FunctionInfo {
    FunctionInfo {
        raw_name: name.into(),
        language: Language::Python,
        path: "/app/shop.py".into(),
        line: Some(line),
        build_id: format!("{line:x}"),
        file_offset: line.into(),
        place: SourcePlace {
            end_line: Some(end_line),
            body_hash: line.into(),
            flags,
            ..SourcePlace::default()
        },
        ..function(name, ExitStrategy::Probe)
    }
}

fn laid(genome: &Genome, catalog: &Catalog, maps: &Maps) -> Matching {
    Matching::of(genome, catalog, &find(&genome.functions, catalog, maps))
}

fn outcomes(genome: &Genome, catalog: &Catalog, maps: &Maps) -> Vec<Result<String, Why>> {
    let matching = laid(genome, catalog, maps);
    let name = |outcome: &Outcome| match outcome {
        Outcome::Matched(id) => Ok(catalog.definition(*id).unwrap().qualified.clone()),
        Outcome::Unmatched(why) => Err(*why),
    };
    matching.outcomes.iter().map(name).collect()
}

const CART: Source = Source {
    path: "src/cart.ts",
    text: "// é𝕏\nexport async function add(a) { return a }\nexport function sum(b) {\n  return b.map(x => x + 1)\n}\n",
    language: Language::JavaScript,
};

fn cart() -> Catalog {
    let mut builder = Builder::new();
    let file = CART.file(&mut builder);
    builder.definition(CART.definition(
        file,
        Kind::Function,
        "add",
        "export async function add",
        "}",
    ));
    let sum = CART.definition(file, Kind::Function, "sum", "export function sum", "\n}");
    let sum = builder.definition(sum);
    let arrow = CART.definition(file, Kind::Closure, "sum.<arrow>", "x => x", "1");
    builder.definition(Definition {
        parent: Some(sum),
        ..arrow
    });
    builder.finish()
}

#[test]
fn javascript_is_matched_by_its_exact_range_in_the_text_that_was_loaded() {
    let ran = [
        script(&CART, CART.text, "async function add", "}"),
        script(&CART, CART.text, "x => x", "1"),
    ];
    let found = outcomes(&genome(ran.to_vec()), &cart(), &Maps::default());
    assert_eq!(found, [Ok("add".into()), Ok("sum.<arrow>".into())]);
}

#[test]
fn a_text_that_was_edited_since_the_run_is_never_matched_by_its_lines() {
    let edited: &'static str = "// é𝕏!\nexport async function add(a) { return a }\n";
    let ran = script(&CART, edited, "async function add", "}");
    let found = outcomes(&genome(vec![ran]), &cart(), &Maps::default());
    assert_eq!(found, [Err(Why::Edited)]);
}

#[test]
fn code_of_others_is_told_apart() {
    let other = Source {
        path: "node_modules/x/index.js",
        text: "function f(){}",
        language: Language::JavaScript,
    };
    let vendored = script(&other, other.text, "function f", "}");
    let mut outside = vendored.clone();
    outside.path = "/opt/lib.js".into();
    let mut ignored = vendored.clone();
    ignored.path = "/app/dist/x.js".into();
    let mut made = vendored.clone();
    (made.path, made.place.flags) = ("evalmachine".into(), name_flags::GENERATED);
    let found = outcomes(
        &genome(vec![vendored, outside, ignored, made]),
        &cart(),
        &Maps::default(),
    );
    let whys = [Why::Vendored, Why::OutOfTree, Why::NotListed, Why::Eval];
    assert_eq!(found, whys.map(Err));
}

/// `add` and `sum` in one line, with a helper that has no original.
const BUNDLE: &str = "var h=e=>e;async function n(r){return r}function t(r){return r.map(e=>e+1)}";

fn bundle(mappings: &[(&str, Option<(u32, u32)>)], content: bool) -> Maps {
    let mut builder = sourcemap::SourceMapBuilder::new(None);
    for (at, original) in mappings {
        let column = BUNDLE.find(at).unwrap() as u32;
        match original {
            Some((line, column_there)) => {
                let source = Some("/app/src/cart.ts");
                let raw = builder.add(0, column, *line, *column_there, source, None, false);
                if content {
                    builder.set_source_contents(raw.src_id, Some(CART.text));
                }
            }
            None => drop(builder.add(0, column, 0, 0, None, None, false)),
        }
    }
    let mut json = Vec::new();
    builder.into_sourcemap().to_writer(&mut json).unwrap();
    let map = Map::parse(&json, BUNDLE, str::to_owned, hash).unwrap();
    let mut maps = Maps::default();
    maps.add(hash(BUNDLE.as_bytes()), map);
    maps
}

const MAPPED: &[(&str, Option<(u32, u32)>)] = &[
    ("var h", None),
    ("async function n", Some((1, 7))),
    ("return r}", Some((1, 31))),
    ("function t", Some((2, 0))),
    ("return r.map", Some((3, 2))),
    ("e=>e+1", Some((3, 15))),
    ("1)}", Some((3, 24))),
];

fn bundled(head: &str, tail: &str) -> FunctionInfo {
    let dist = Source {
        path: "dist/app.js",
        text: BUNDLE,
        language: Language::JavaScript,
    };
    script(&dist, BUNDLE, head, tail)
}

#[test]
fn minified_code_is_matched_by_the_originals_of_its_start_and_of_its_end() {
    let ran = vec![
        bundled("async function n", "}"),
        bundled("function t", "1)}"),
        bundled("e=>e+1", "1"),
        bundled("e=>e;", "e;"),
    ];
    let found = outcomes(&genome(ran), &cart(), &bundle(MAPPED, true));
    let expect = [
        Ok("add".into()),
        Ok("sum".into()),
        Ok("sum.<arrow>".into()),
        Err(Why::Generated),
    ];
    assert_eq!(found, expect);
}

#[test]
fn a_function_whose_end_belongs_to_another_is_not_matched() {
    // A wrapper that a bundler put around two functions begins where the first begins.
    let ran = vec![bundled("async function n", "1)}")];
    let found = outcomes(&genome(ran), &cart(), &bundle(MAPPED, true));
    assert_eq!(found, [Err(Why::NotFound)]);
}

#[test]
fn originals_that_cannot_be_compared_are_not_believed() {
    let ran = || vec![bundled("function t", "1)}")];
    let found = outcomes(&genome(ran()), &cart(), &bundle(MAPPED, false));
    assert_eq!(found, [Err(Why::NotCompared)]);
    let mut edited = cart();
    edited.files[0].text_hash ^= 1;
    let found = outcomes(&genome(ran()), &edited, &bundle(MAPPED, true));
    assert_eq!(found, [Err(Why::Edited)]);
}

#[test]
fn two_functions_of_one_text_are_never_one() {
    let mut twice = MAPPED.to_vec();
    twice[0] = ("e=>e;", Some((2, 0)));
    let mut ran = vec![bundled("function t", "1)}"), bundled("e=>e;", "e;")];
    ran[1].place.flags = 0;
    let found = outcomes(&genome(ran), &cart(), &bundle(&twice, true));
    assert_eq!(found, [Err(Why::Ambiguous), Err(Why::Ambiguous)]);
}

#[test]
fn of_a_bundle_only_what_begins_in_it_can_be_said_not_to_have_run() {
    let states = |mappings: &[(&str, Option<(u32, u32)>)]| {
        let ran = genome(vec![bundled("async function n", "}")]);
        let matching = laid(&ran, &cart(), &bundle(mappings, true));
        let states = cart().definitions.into_iter().zip(matching.states);
        let named = states.map(|(definition, known)| (definition.qualified, known.state));
        named.collect::<std::collections::BTreeMap<_, _>>()
    };
    let all = states(MAPPED);
    assert_eq!(all["add"], State::Ran);
    assert_eq!(all["sum"], State::NeverRan);
    assert_eq!(all["sum.<arrow>"], State::NeverRan);
    let without = |gone: &[&str]| {
        let mappings = MAPPED.iter().filter(|(text, _)| !gone.contains(text));
        states(&mappings.copied().collect::<Vec<_>>())
    };
    // A part of it is there, within another.
    let folded = without(&["e=>e+1"]);
    assert_eq!(folded["sum.<arrow>"], State::NotVisible(Blindness::Inlined));
    assert_eq!(folded["sum"], State::NeverRan);
    let absent = State::NotInBuild(Absence::NoText);
    assert_eq!(without(&["e=>e+1", "1)}"])["sum.<arrow>"], absent);
}

#[test]
fn what_may_be_a_function_that_ran_is_not_said_not_to_have_run() {
    // A wrapper that begins where `add` begins and ends in another: nothing else stands for `add`.
    let ran = genome(vec![bundled("async function n", "1)}")]);
    let matching = laid(&ran, &cart(), &bundle(MAPPED, true));
    let add = cart()
        .definitions
        .iter()
        .position(|it| it.qualified == "add");
    let state = matching.states[add.unwrap()].state;
    assert_eq!(state, State::NotVisible(Blindness::Ambiguous));
}

const BASE: Source = Source {
    path: "src/base.ts",
    text: "class Base {\n  #shown(a) { return [a].map(x => x) }\n  get #most() { return 1 }\n  static { Base.made = 1 }\n}\n",
    language: Language::JavaScript,
};

fn base() -> Catalog {
    let mut builder = Builder::new();
    let file = BASE.file(&mut builder);
    let class =
        builder.definition(BASE.definition(file, Kind::Class, "Base", "class Base", "}\n}"));
    let members = [
        (Kind::Method, "Base.#shown", "#shown", "x) }"),
        (Kind::Getter, "Base.#most", "get #most", "1 }"),
        (Kind::StaticBlock, "Base.<static>", "static {", "1 }"),
    ];
    for (kind, name, head, tail) in members {
        builder.definition(Definition {
            parent: Some(class),
            ..BASE.definition(file, kind, name, head, tail)
        });
    }
    builder.finish()
}

/// As tsc has it: what it moves begins with nothing of the original, and ends with the original's brace.
const MOVED: &str = "_Base_shown = function _Base_shown(a) { return [a].map(x => x); }, \
_Base_most_get = function _Base_most_get() { return 1; };(() => { Base.made = 1; })();";

fn moved(mappings: &[(&str, u32, u32)]) -> Maps {
    let mut builder = sourcemap::SourceMapBuilder::new(None);
    for &(at, line, column) in mappings {
        let made = MOVED.find(at).unwrap() as u32;
        let source = Some("/app/src/base.ts");
        let raw = builder.add(0, made, line, column, source, None, false);
        builder.set_source_contents(raw.src_id, Some(BASE.text));
    }
    let mut json = Vec::new();
    builder.into_sourcemap().to_writer(&mut json).unwrap();
    let map = Map::parse(&json, MOVED, str::to_owned, hash).unwrap();
    let mut maps = Maps::default();
    maps.add(hash(MOVED.as_bytes()), map);
    maps
}

#[test]
fn private_methods_and_static_blocks_are_found_where_a_compiler_has_moved_them() {
    let made = Source {
        path: "dist/base.js",
        text: MOVED,
        language: Language::JavaScript,
    };
    let function = |name: &str, head: &str, tail: &str| {
        let mut info = script(&made, MOVED, head, tail);
        info.raw_name = name.into();
        if name == "(anonymous)" {
            info.place.flags |= name_flags::ANONYMOUS;
        }
        info
    };
    let ran = |shown: &str| {
        genome(vec![
            function(shown, "function _Base_shown", "; }"),
            function("_Base_most_get", "function _Base_most", "; }"),
            function("(anonymous)", "() => { Base", "; }"),
        ])
    };
    let whole = [
        ("return [a]", 1, 14),
        ("}, _Base_most", 1, 37),
        ("return 1", 2, 16),
        ("};(()", 2, 25),
        ("Base.made", 3, 11),
        ("})();", 3, 25),
    ];
    let found = |name: &str, maps: &Maps| outcomes(&ran(name), &base(), maps);
    let all = ["Base.#shown", "Base.#most", "Base.<static>"].map(|name| Ok(name.to_owned()));
    assert_eq!(found("_Base_shown", &moved(&whole)), all);
    assert_eq!(found("_Base_shown_1", &moved(&whole)), all);
    // A helper within the method, by another name; and functions that end elsewhere.
    for name in ["_loop_1", "shown", "_Base_other", "(anonymous)"] {
        assert_eq!(
            found(name, &moved(&whole))[0],
            Err(Why::NoMapping),
            "{name}"
        );
    }
    let mut cut = whole;
    (cut[1].2, cut[5].2) = (36, 23);
    let cut = found("_Base_shown", &moved(&cut));
    assert_eq!(cut[0], Err(Why::NoMapping));
    assert_eq!(cut[2], Err(Why::NoMapping));
}

#[test]
fn what_a_compiler_puts_around_a_class_is_generated() {
    let made = Source {
        path: "dist/base.js",
        text: MOVED,
        language: Language::JavaScript,
    };
    let ran = |column: u32, flags: u16| {
        let mut info = script(&made, MOVED, "() => { Base", "; }");
        info.place.flags = flags;
        let maps = moved(&[("Base.made", 1, 14), ("})();", 4, column)]);
        outcomes(&genome(vec![info]), &base(), &maps)
    };
    assert_eq!(ran(0, name_flags::ANONYMOUS), [Err(Why::Generated)]);
    assert_eq!(ran(0, 0), [Err(Why::NoMapping)]);
}

const SHOP: Source = Source {
    path: "shop.py",
    text: "@memo\ndef add(a):\n    return a\n\ndef late(b):\n    f = lambda: 1; g = lambda: 2\n    return f, g\n",
    language: Language::Python,
};

const SERVER: Source = Source {
    path: "lib/server.py",
    text: "def serve():\n    pass\n",
    language: Language::Python,
};

fn shop() -> Catalog {
    let mut builder = Builder::new();
    let file = SHOP.file(&mut builder);
    builder.definition(SHOP.definition(file, Kind::Function, "add", "@memo\ndef add", "return a"));
    builder.definition(SHOP.definition(file, Kind::Function, "late", "def late", "f, g"));
    for at in ["lambda: 1", "lambda: 2"] {
        let name = "late.<locals>.<lambda>";
        builder.definition(SHOP.definition(file, Kind::Closure, name, at, at));
    }
    builder.finish()
}

#[test]
fn python_is_matched_by_its_name_and_the_line_of_its_first_decorator() {
    let ran = vec![python("add", 1, 3, 0), python("late", 5, 7, 0)];
    let found = outcomes(&genome(ran), &shop(), &Maps::default());
    assert_eq!(found, [Ok("add".into()), Ok("late".into())]);
}

#[test]
fn one_function_at_another_line_and_the_whole_file_is_doubted() {
    let ran = vec![python("add", 1, 3, 0), python("late", 6, 8, 0)];
    let found = outcomes(&genome(ran), &shop(), &Maps::default());
    assert_eq!(found, [Err(Why::Edited), Err(Why::Edited)]);
}

#[test]
fn what_python_makes_for_annotations_puts_nothing_in_doubt() {
    let names = [
        "__annotate__",
        "add.__annotate__",
        "<generic parameters of add>",
        "add.gone",
    ];
    let states = names.map(|name| {
        let matching = laid(
            &genome(vec![python(name, 2, 2, 0)]),
            &shop(),
            &Maps::default(),
        );
        (matching.outcomes[0], matching.states[0].state)
    });
    let made = (Outcome::Unmatched(Why::Generated), State::NeverRan);
    let doubt = State::NotVisible(Blindness::Ambiguous);
    assert_eq!(
        states,
        [made, made, made, (Outcome::Unmatched(Why::NotFound), doubt)]
    );
}

#[test]
fn two_lambdas_of_one_line_cannot_be_told_apart() {
    let ran = vec![python(
        "late.<locals>.<lambda>",
        6,
        6,
        name_flags::ANONYMOUS,
    )];
    let found = outcomes(&genome(ran), &shop(), &Maps::default());
    assert_eq!(found, [Err(Why::Ambiguous)]);
}

#[test]
fn class_bodies_and_modules_have_a_rate_of_their_own() {
    let ran = vec![
        python("add", 1, 3, 0),
        python("<module>", 1, 7, name_flags::MODULE),
        python("Cart", 5, 7, name_flags::CLASS_BODY),
        python("late.<locals>.<listcomp>", 6, 6, name_flags::ANONYMOUS),
    ];
    let matching = laid(&genome(ran), &shop(), &Maps::default());
    let rate = |matched, ran| Rate { matched, ran };
    assert_eq!(matching.rates.written, rate(1, 1));
    assert_eq!(matching.rates.raw, rate(1, 4));
    assert_eq!(matching.rates.bodies, rate(0, 3));
}

#[test]
fn what_is_not_found_in_the_tree_counts_against_the_rate_and_what_is_of_others_does_not() {
    let mut other = python("f", 1, 1, name_flags::THIRD_PARTY);
    other.path = "/usr/lib/python3/dist-packages/x.py".into();
    let mut standard = python("g", 1, 1, name_flags::STANDARD_LIBRARY);
    standard.path = "/usr/lib/python3/json.py".into();
    let ran = vec![
        python("add", 1, 3, 0),
        python("gone", 2, 3, 0),
        other,
        standard,
    ];
    let matching = laid(&genome(ran), &shop(), &Maps::default());
    assert_eq!(matching.rates.written, Rate { matched: 1, ran: 2 });
    let whys: Vec<_> = matching.rates.unmatched.iter().collect();
    let written: u64 = whys.iter().map(|(_, count)| count.written).sum();
    assert_eq!((whys.len(), written), (3, 1));
}

/// A method of Java as its virtual machine names what it compiled.
fn compiled(name: &str) -> FunctionInfo {
    FunctionInfo {
        raw_name: format!("int {name}"),
        language: Language::Java,
        path: "[jit]".into(),
        build_id: String::new(),
        ..function(name, ExitStrategy::None)
    }
}

#[test]
fn compiled_java_is_matched_by_class_and_method_and_not_where_these_leave_it_open() {
    const TILL: Source = Source {
        path: "src/shop/Till.java",
        text: "class Till { int sum() { return 1; } int add(int a) { return 1; } int add(long a) { return 1; } class Part { int of() { return 1; } } }",
        language: Language::Java,
    };
    let catalog = |twice: bool| {
        let mut builder = Builder::new();
        let file = TILL.file(&mut builder);
        for (name, head) in [
            ("Till.sum", "int sum"),
            ("Till.add", "int add(int"),
            ("Till.add", "int add(long"),
            ("Till.Part.of", "int of"),
        ] {
            builder.definition(TILL.definition(file, Kind::Method, name, head, "}"));
        }
        if twice {
            let other = Source {
                path: "test/shop/Till.java",
                ..TILL
            };
            let file = other.file(&mut builder);
            builder.definition(other.definition(file, Kind::Method, "Till.sum", "int sum", "}"));
        }
        builder.finish()
    };
    let found = |name: &str, twice: bool| {
        let found = outcomes(
            &genome(vec![compiled(name)]),
            &catalog(twice),
            &Maps::default(),
        );
        found.into_iter().next().unwrap()
    };
    assert_eq!(found("shop.Till.sum()", false), Ok("Till.sum".into()));
    assert_eq!(
        found("shop.Till$Part.of()", false),
        Ok("Till.Part.of".into())
    );
    for (name, why) in [
        ("shop.Till.add(int)", Why::Ambiguous),
        ("shop.Till.lambda$sum$0(int)", Why::Ambiguous),
        ("shop.Till$1.run()", Why::Ambiguous),
        ("shop.Till$$Lambda$2/0x00007f.run()", Why::Generated),
        ("shop.Till.<init>()", Why::Generated),
        ("other.Till.sum()", Why::OutOfTree),
        ("Tills.sum()", Why::OutOfTree),
        ("java.util.Till.sum()", Why::StandardLibrary),
        ("stub", Why::Jit),
    ] {
        assert_eq!(found(name, false), Err(why), "{name}");
    }
    assert_eq!(found("shop.Till.sum()", true), Err(Why::Ambiguous));
}

fn image() -> (Builder, FileId) {
    let mut builder = Builder::new();
    let file = builder.file(File {
        root: None,
        path: "/usr/bin/shop".into(),
        language: Language::Native,
        content: [2; 32],
        text_hash: 0,
        build_id: "abcd".into(),
        bytes: 0,
        lines: 0,
        calls: 0,
        resolved: 0,
    });
    (builder, file)
}

fn native(file: FileId, name: &str, offset: u64, source: Option<(&str, u32)>) -> Definition {
    Definition {
        file,
        parent: None,
        kind: Kind::Native,
        name: name.into(),
        qualified: name.into(),
        ordinal: 0,
        flags: Flags::default(),
        body_hash: 0,
        span: Span::default(),
        native: Some(Native {
            raw_name: name.into(),
            address: offset,
            file_offset: offset,
            size: 16,
            source: source.map(|(source, _)| source.to_owned()),
            line: source.map(|(_, line)| line),
            column: None,
            found_by: FoundBy::Symbols,
        }),
    }
}

fn ran_native(build: &str, offset: u64) -> FunctionInfo {
    FunctionInfo {
        build_id: build.into(),
        path: "/usr/bin/shop".into(),
        file_offset: offset,
        ..function("whatever", ExitStrategy::Return)
    }
}

#[test]
fn native_code_is_matched_by_build_and_offset_and_never_by_its_name() {
    let (mut builder, file) = image();
    builder.definition(native(file, "serve", 0x1000, None));
    let ran = vec![
        ran_native("abcd", 0x1000),
        ran_native("abcd", 0x1004),
        ran_native("ffff", 0x1000),
    ];
    let found = outcomes(&genome(ran), &builder.finish(), &Maps::default());
    let expect = [Ok("serve".into()), Err(Why::NotFound), Err(Why::Edited)];
    assert_eq!(found, expect);
}

fn states_of(genome: &Genome, catalog: &Catalog) -> Vec<State> {
    let matching = laid(genome, catalog, &Maps::default());
    matching.states.iter().map(|known| known.state).collect()
}

#[test]
fn a_function_never_ran_only_if_its_probe_could_have_seen_it() {
    let never = states_of(&genome(vec![python("add", 1, 3, 0)]), &shop());
    assert_eq!(never[..2], [State::Ran, State::NeverRan]);
    let no_probe = states_of(&genome(vec![ran_native("abcd", 1)]), &shop());
    assert_eq!(no_probe[0], State::NotVisible(Blindness::NoProbe));
    let edited = states_of(&genome(vec![python("late", 6, 8, 0)]), &shop());
    assert_eq!(edited[0], State::NotVisible(Blindness::Edited));
    let ambiguous = vec![python("late.<locals>.<lambda>", 6, 6, 0)];
    let ambiguous = states_of(&genome(ambiguous), &shop());
    let either = State::NotVisible(Blindness::Ambiguous);
    // It may be either of the two, and cannot be any other.
    let never = State::NeverRan;
    assert_eq!(ambiguous, [never, never, either, either]);
}

/// States of `late` and of `serve` of another file, when `add` ran and a probe has told this.
fn told(probe: &str, path: &str, why: u64) -> [State; 2] {
    let mut builder = Builder::new();
    let (shop, server) = (SHOP.file(&mut builder), SERVER.file(&mut builder));
    builder.definition(SHOP.definition(shop, Kind::Function, "add", "@memo\ndef add", "return a"));
    builder.definition(SHOP.definition(shop, Kind::Function, "late", "def late", "f, g"));
    builder.definition(SERVER.definition(server, Kind::Function, "serve", "def serve", "pass"));
    let mut ran = genome(vec![python("add", 1, 3, 0)]);
    ran.blind_spots.push(BlindSpot {
        probe: probe.into(),
        what: Unseen::told(path, why).text(),
    });
    let states = states_of(&ran, &builder.finish());
    assert_eq!(states[0], State::Ran);
    [states[1], states[2]]
}

#[test]
fn what_may_have_run_before_its_probe_or_outside_of_it_is_not_said_not_to_have_run() {
    let not_visible = State::NotVisible;
    let never = State::NeverRan;
    let before = not_visible(Blindness::Before);
    assert_eq!(
        told("python", "/app/shop.py", unseen::BEFORE),
        [before, never]
    );
    assert_eq!(
        told("python", "/app/lib/server.py", unseen::BEFORE),
        [never, before]
    );
    let excluded = not_visible(Blindness::Excluded);
    assert_eq!(
        told("python", "/app/lib/", unseen::EXCLUDED),
        [never, excluded]
    );
    assert_eq!(
        told("python", "/elsewhere/lib/server.py", unseen::EXCLUDED),
        [never, excluded]
    );
    assert_eq!(
        told("python", "/app/other.py", unseen::EXCLUDED),
        [never; 2]
    );
    let unwatched = not_visible(Blindness::Unwatched);
    assert_eq!(told("python", "", unseen::UNWATCHED), [unwatched; 2]);
    assert_eq!(told("node", "", unseen::UNWATCHED), [never; 2]);
}

#[test]
fn a_function_of_which_every_call_was_lost_has_run() {
    let mut ran = genome(vec![python("add", 1, 3, 0)]);
    let late = ran.functions.insert(python("late", 5, 7, 0));
    assert_eq!(states_of(&ran, &shop())[1], State::NeverRan);
    ran.losses.push(Loss {
        class: LossClass::Enter,
        cpu: None,
        func: Some(late),
        count: 3,
    });
    assert_eq!(states_of(&ran, &shop())[1], State::Ran);
}

#[test]
fn a_function_of_a_source_that_no_executable_has_is_not_in_this_build() {
    const SOURCE: Source = Source {
        path: "serve.c",
        text: "int serve() { }\nint unused() { }\nint small() { }\n",
        language: Language::C,
    };
    let sources = |builder: &mut Builder| {
        let file = SOURCE.file(builder);
        for name in ["serve", "unused", "small"] {
            let head = format!("int {name}");
            builder.definition(SOURCE.definition(file, Kind::Function, name, &head, "}"));
        }
    };
    let (mut builder, file) = image();
    let serve = builder.definition(native(file, "serve", 0x1000, Some(("/app/serve.c", 1))));
    let small = builder.definition(native(file, "small", 0, Some(("/app/serve.c", 3))));
    builder.piece(crate::catalog::Piece {
        of: small,
        kind: crate::catalog::PieceKind::Inlined,
        address: 0x1004,
        file_offset: 0x1004,
        size: 4,
        host: Some(serve),
    });
    sources(&mut builder);
    let found = states_of(&genome(vec![ran_native("abcd", 0x1000)]), &builder.finish());
    let expect = [
        State::Ran,
        State::NotInBuild(Absence::NoCode),
        State::NotVisible(Blindness::Inlined),
    ];
    assert_eq!(found[2..], expect);
    let mut builder = Builder::new();
    sources(&mut builder);
    let found = states_of(&genome(vec![ran_native("abcd", 0x1000)]), &builder.finish());
    assert_eq!(found[0], State::NotVisible(Blindness::NoExecutable));
}

/// States of `serve` and `unused` of a source beside an executable with these functions.
fn beside(natives: &[(&str, Option<(&str, u32)>)]) -> [State; 2] {
    const SOURCE: Source = Source {
        path: "serve.c",
        text: "int serve() { }\nint unused() { }\n",
        language: Language::C,
    };
    let (mut builder, image) = image();
    for (at, (name, place)) in (1u64..).zip(natives) {
        builder.definition(native(image, name, at << 12, *place));
    }
    let file = SOURCE.file(&mut builder);
    for name in ["serve", "unused"] {
        let head = format!("int {name}");
        builder.definition(SOURCE.definition(file, Kind::Function, name, &head, "}"));
    }
    let other = Source {
        path: "other.c",
        text: "int main() { }\n",
        language: Language::C,
    };
    let file = other.file(&mut builder);
    builder.definition(other.definition(file, Kind::Function, "main", "int main", "}"));
    let states = states_of(&genome(vec![ran_native("abcd", 0x1000)]), &builder.finish());
    let of_serve = states.len() - 3;
    [states[of_serve], states[of_serve + 1]]
}

#[test]
fn code_without_lines_may_be_that_of_a_source_without_any() {
    let no_lines = State::NotVisible(Blindness::NoLines);
    let absent = State::NotInBuild(Absence::NoCode);
    let main = ("main", Some(("/app/other.c", 1)));
    // Nothing was compiled with -g.
    assert_eq!(beside(&[("main", None), ("serve", None)]), [no_lines; 2]);
    // One of two files was.
    assert_eq!(beside(&[main, ("serve", None)]), [no_lines; 2]);
    assert_eq!(beside(&[main, ("serve.constprop.0", None)]), [no_lines; 2]);
    // The other one is not there at all: what has no lines is the C library's.
    assert_eq!(beside(&[main, ("_start", None)]), [absent; 2]);
    // Debug information of the file says what it has.
    let serve = ("serve", Some(("/app/serve.c", 1)));
    assert_eq!(beside(&[serve, ("unused", None)]), [State::Ran, absent]);
}

#[test]
fn of_functions_that_begin_in_one_line_the_column_or_the_name_tells_which_it_is() {
    const SOURCE: Source = Source {
        path: "serve.cc",
        text: "int a() { return [](int n) { return n; }(1) + [](int n) { return -n; }(2); } int b() { return 0; }\n",
        language: Language::Cpp,
    };
    const FOREIGN: Source = Source {
        path: "serve.cc",
        text: "int a() { const char *e = \"\u{e9}\"; return [](int n) { return n; }(1) + [](int n) { return -n; }(2); } int b() { return 0; }\n",
        language: Language::Cpp,
    };
    let in_text = |source: &Source, name: &str, column: Option<u32>| {
        let (mut builder, image) = image();
        let mut code = native(image, name, 0x1000, Some(("/app/serve.cc", 1)));
        if let Some(native) = &mut code.native {
            native.column = column;
        }
        builder.definition(code);
        let file = source.file(&mut builder);
        let mut add = |kind, name: &str, head: &str, tail: &str| {
            builder.definition(source.definition(file, kind, name, head, tail));
        };
        add(Kind::Function, "a", "int a", "(2); }");
        add(Kind::Closure, "{lambda#1}", "[](int n) { return n", "; }");
        add(Kind::Closure, "{lambda#2}", "[](int n) { return -n", "; }");
        add(Kind::Function, "b", "int b", "; }");
        let catalog = builder.finish();
        let states = states_of(&genome(vec![ran_native("abcd", 0x1000)]), &catalog);
        let [_, rest @ ..] = &*states else {
            panic!("no states");
        };
        let at = |wanted| rest.iter().position(|state| *state == wanted);
        match at(State::Ran) {
            Some(at) => format!("{at}"),
            None => {
                let doubtful = State::NotVisible(Blindness::Ambiguous);
                let doubtful = rest.iter().filter(|state| **state == doubtful);
                format!("one of {}", doubtful.count())
            }
        }
    };
    let found = |name: &str, column| in_text(&SOURCE, name, column);
    let lambda = "a()::{lambda(int)#1}::operator()(int) const";
    assert_eq!(found(lambda, Some(18)), "1");
    assert_eq!(found(lambda, Some(19)), "1");
    assert_eq!(found(lambda, Some(47)), "2");
    assert_eq!(found(lambda, Some(48)), "2");
    assert_eq!(found("operator()", Some(47)), "2");
    assert_eq!(found(lambda, None), "one of 2");
    assert_eq!(found("operator()", None), "one of 4");
    assert_eq!(found("a()", None), "0");
    assert_eq!(found("b()", None), "3");
    // Columns of compilers count bytes: where other letters come before it none tells.
    assert_eq!(in_text(&FOREIGN, lambda, Some(43)), "one of 2");
}

#[test]
fn a_function_of_an_executable_is_found_only_if_the_sources_have_it() {
    const SOURCE: Source = Source {
        path: "serve.c",
        text: "int serve() { }\n\n\nMAKE(small)\n",
        language: Language::C,
    };
    let places = [
        (0x1000, Some(("/app/serve.c", 1))),
        (0x2000, Some(("/app/serve.c", 4))),
        (0x3000, Some(("/usr/include/other.h", 1))),
        (0x4000, None),
    ];
    let rates = |with_sources: bool| {
        let (mut builder, file) = image();
        for (offset, place) in places {
            builder.definition(native(file, &format!("f{offset}"), offset, place));
        }
        if with_sources {
            let file = SOURCE.file(&mut builder);
            let serve = SOURCE.definition(file, Kind::Function, "serve", "int serve", "}");
            builder.definition(serve);
        }
        let ran = places.map(|(offset, _)| ran_native("abcd", offset));
        let genome = genome(ran.to_vec());
        laid(&genome, &builder.finish(), &Maps::default()).rates
    };
    let with = rates(true);
    assert_eq!((with.written.matched, with.written.ran), (1, 2));
    assert_eq!((with.raw.matched, with.raw.ran), (4, 4));
    assert_eq!(with.unmatched[&Why::NotFound].written, 1);
    // Without any sources the executable is all there is.
    let without = rates(false);
    assert_eq!((without.written.matched, without.written.ran), (4, 4));
}

#[test]
fn calls_that_only_one_side_knows_are_told_with_how_sure_that_is() {
    let mut catalog = shop();
    let edge = |caller, callee| Edge {
        caller: DefId(caller),
        callee: DefId(callee),
        how: How::Scope,
        at: 1,
        line: 6,
        column: 0,
    };
    catalog.edges = vec![edge(1, 0), edge(1, 2)];
    let ran = genome(vec![
        python("add", 1, 3, 0),
        python("late", 5, 7, 0),
        python("late.<locals>.<lambda>", 6, 6, 0),
    ]);
    let matching = laid(&ran, &catalog, &Maps::default());
    let overlay = overlay(&ran, &catalog, &matching);
    let found: Vec<_> = overlay
        .found
        .iter()
        .map(|found| (found.caller.0, found.callee.0))
        .collect();
    assert_eq!(found, [(0, 1)]);
    assert_eq!(overlay.found[0].metrics.calls, 1);
    let untaken: Vec<_> = overlay
        .untaken
        .iter()
        .map(|untaken| (untaken.edge.callee.0, untaken.sure))
        .collect();
    // Which of the lambdas ran is not known: that `late` never called the first cannot be said.
    assert_eq!(untaken, [(0, true), (2, false)]);
}
