//! Go's own table of functions in stripped programs, against the symbols and the debug information of the same program
//! before it was stripped.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use scalpel_user::catalog::{Catalog, FoundBy, GapKind, Kept, Native, PieceKind};
use scalpel_user::function::Language;
use scalpel_user::image::{Image, ImageFunction, NameOrigin, NoDebugFiles};
use scalpel_user::static_;

use crate::build::{Workshop, has};

const PROGRAM: &str = "\
package main

import (
	\"fmt\"
	\"os\"
	\"strings\"
)

type Square struct{ side int }

func (s *Square) Area() int { return multiply(s.side, s.side) }

func multiply(a, b int) int { return a*b + add(a, b) }

func add(a, b int) int { return a + b }

//go:noinline
func Map[T any](all []T, f func(T) T) []T {
	out := make([]T, 0, len(all))
	for _, one := range all {
		out = append(out, f(one))
	}
	return out
}

//go:noinline
func work(n int) int {
	all := Map([]int{1, 2, n}, func(x int) int { return multiply(x, n) })
	return (&Square{n}).Area() + all[0] + len(strings.Repeat(\"x\", n))
}

func main() { fmt.Println(work(len(os.Args))) }
";

/// Other versions than the machine's own, tried where Go has fetched them already: each format of the table.
const VERSIONS: &[&str] = &["go1.21.13", "go1.24.4"];

fn workshop() -> Option<Workshop> {
    if !has("go") {
        return None;
    }
    let workshop = Workshop::new();
    workshop.source("a.go", PROGRAM);
    Some(workshop)
}

/// Functions by address: name, size, file, line.
type Known<'i> = BTreeMap<u64, &'i ImageFunction>;

fn go_functions<'i>(image: &'i Image<'_>, origin: NameOrigin) -> Known<'i> {
    let all = image.functions().iter();
    all.filter(|it| it.origin == origin && it.language == Language::Go)
        .map(|it| (it.vaddr, it))
        .collect()
}

/// What symbols call an instance of a generic function, the table calls by what all instances have in common; and it does
/// not tell by which convention a function is called.
fn common(name: &str) -> String {
    let name = name.replace('·', ".");
    let name = name
        .trim_end_matches(".abi0")
        .trim_end_matches(".abiinternal");
    match (name.find('['), name.rfind(']')) {
        (Some(open), Some(close)) => format!("{}[...]{}", &name[..open], &name[close + 1..]),
        _ => name.to_owned(),
    }
}

/// Not the linker's marks of places in code, nor what the C library and compiler bring to a program that their linker links.
fn is_function_of_go(name: &str) -> bool {
    let is_mark =
        name.starts_with("go:textfips") || name == "runtime.text" || name == "runtime.etext";
    name.contains('.') && !is_mark && !name.ends_with(".cold")
}

#[track_caller]
fn check(whole: &[u8], stripped: &[u8]) {
    let (truth, found) = (
        Image::parse(whole, "a", &NoDebugFiles).unwrap(),
        Image::parse(stripped, "s", &NoDebugFiles).unwrap(),
    );
    assert!(found.is_go());
    assert!(
        !found.build_id().is_empty(),
        "without one no run can be matched"
    );
    let (truth, found) = (
        go_functions(&truth, NameOrigin::Symtab),
        go_functions(&found, NameOrigin::GoTable),
    );
    assert!(truth.len() > 1500, "{} functions", truth.len());
    let mut missing = Vec::new();
    for (vaddr, known) in &truth {
        match found.get(vaddr) {
            Some(it) => {
                let names = known.raw_names().map(common).collect::<Vec<_>>();
                assert!(names.contains(&common(&it.raw_name)), "{names:?} {it:?}");
                // The table may count the filling behind a function to it, never another function.
                assert!(it.size >= known.size, "{known:?} {it:?}");
            }
            None => missing.push(&*known.raw_name),
        }
    }
    missing.retain(|name| is_function_of_go(name));
    assert_eq!(missing, [""; 0], "of {}", truth.len());
    let strangers = found.keys().filter(|vaddr| !truth.contains_key(vaddr));
    assert_eq!(strangers.count(), 0);
}

#[test]
fn stripping_leaves_every_function_with_name_and_range() {
    let Some(workshop) = workshop() else { return };
    for (whole, stripped) in [
        ("", "-ldflags=-s"),
        ("-buildmode=pie", "-buildmode=pie -ldflags=-s"),
    ] {
        workshop
            .run(&format!("go build {whole} -o a a.go"))
            .run(&format!("go build {stripped} -o s a.go"));
        // The linker lays both out alike, but for addresses of data.
        check(&workshop.bytes("a"), &workshop.bytes("s"));
        workshop.run("strip -o t a");
        let mut bytes = workshop.bytes("t");
        let id = |bytes: &[u8]| Image::parse(bytes, "a", &NoDebugFiles).unwrap().build_id();
        assert_eq!(id(&bytes), id(&workshop.bytes("a")));
        check(&workshop.bytes("a"), &bytes);
        crate::files::drop_section_headers(&mut bytes);
        check(&workshop.bytes("a"), &bytes);
    }
}

#[test]
fn a_table_behind_code_of_c_is_found_where_the_runtime_is_told() {
    let Some(workshop) = workshop() else { return };
    for mode in ["exe", "pie"] {
        workshop
            .run(&format!(
                "go build -buildmode={mode} -ldflags=-linkmode=external -o a a.go"
            ))
            .run("strip -o s a");
        check(&workshop.bytes("a"), &workshop.bytes("s"));
    }
}

#[test]
fn the_tables_of_older_versions_are_read() {
    let Some(workshop) = workshop() else { return };
    for version in VERSIONS {
        let there = Command::new("go")
            .arg("version")
            .env("GOTOOLCHAIN", version)
            .env("GOPROXY", "off")
            .output()
            .unwrap();
        if !there.status.success() {
            println!("skipped: {version} was not fetched on this machine");
            continue;
        }
        workshop
            .run(&format!("env GOTOOLCHAIN={version} go build -o a a.go"))
            .run("strip -o s a");
        check(&workshop.bytes("a"), &workshop.bytes("s"));
    }
}

fn catalog(workshop: &Workshop, name: &str) -> Catalog {
    let built = static_::build(&[], &[workshop.path(name)], &Kept::default(), &|| false);
    built.unwrap().kept.catalog
}

fn named<'c>(catalog: &'c Catalog, name: &str) -> &'c Native {
    let found = catalog
        .definitions
        .iter()
        .find(|it| common(&it.name) == name);
    found
        .unwrap_or_else(|| panic!("no {name}"))
        .native
        .as_ref()
        .unwrap()
}

/// Which functions have copies in which: (copied, host).
fn copies(catalog: &Catalog) -> BTreeSet<(String, String)> {
    let name = |id: scalpel_user::catalog::DefId| common(&catalog.definitions[id.index()].name);
    let inlined = catalog
        .pieces
        .iter()
        .filter(|piece| piece.kind == PieceKind::Inlined);
    inlined
        .filter_map(|piece| Some((name(piece.of), name(piece.host?))))
        .collect()
}

#[test]
fn lines_and_inlined_copies_are_those_of_the_debug_information() {
    let Some(workshop) = workshop() else { return };
    workshop.run("go build -o a a.go").run("strip -o s a");
    let (truth, found) = (catalog(&workshop, "a"), catalog(&workshop, "s"));
    let gaps: Vec<GapKind> = found.gaps.iter().map(|gap| gap.kind).collect();
    assert_eq!(gaps, [], "nothing is missing of Go's functions");
    let work = named(&found, "main.work");
    assert_eq!(work.found_by, FoundBy::Pclntab);
    let source = work.source.as_deref().unwrap();
    assert!(source.ends_with("/a.go"), "{source}");
    assert_eq!(work.line, Some(27));
    assert_eq!(named(&found, "main.work.func1").line, Some(28));
    assert_eq!(named(&found, "main.Map[...]").line, Some(18));

    let places = |catalog: &Catalog| -> BTreeMap<u64, (Option<String>, Option<u32>)> {
        let natives = catalog
            .definitions
            .iter()
            .filter_map(|it| it.native.as_ref());
        let placed = natives.filter(|it| it.address != 0 && it.source.is_some());
        placed
            .map(|it| (it.address, (it.source.clone(), it.line)))
            .collect()
    };
    let (placed, same) = (places(&truth), places(&found));
    let told: Vec<_> = placed
        .iter()
        .filter(|(at, place)| place.1.is_some() && same.contains_key(at))
        .collect();
    assert!(told.len() > 1000, "{}", told.len());
    let differ: Vec<_> = told
        .iter()
        .filter(|(at, place)| same.get(at) != Some(place))
        .map(|(at, place)| (place, same.get(at)))
        .collect();
    assert!(
        differ.is_empty(),
        "{} of {}: {:?}",
        differ.len(),
        told.len(),
        &differ[..3.min(differ.len())]
    );

    let (truth, found) = (copies(&truth), copies(&found));
    assert!(truth.len() > 2000, "{}", truth.len());
    for pair in [
        ("main.add", "main.work.func1"),
        ("main.multiply", "main.work"),
        ("main.(*Square).Area", "main.work"),
        ("main.multiply", "main.work.func1"),
    ] {
        let pair = (pair.0.to_owned(), pair.1.to_owned());
        assert!(found.contains(&pair) && truth.contains(&pair), "{pair:?}");
    }
    let missing: Vec<_> = truth.difference(&found).collect();
    let strange: Vec<_> = found.difference(&truth).collect();
    assert!(
        missing.len() * 100 <= truth.len() && strange.len() * 100 <= truth.len(),
        "of {}: {} missing {missing:?}, {} strange {strange:?}",
        truth.len(),
        missing.len(),
        strange.len()
    );
}
