//! Native programs laid over what exists: of ripgrep and esbuild every function of their own that ran against their
//! sources; of SQLite without symbols what can be known against the same program before it was stripped.
//!
//! The figures of docs/match-rates.md: `cargo xtask test --only real`, where each test prints its own.
#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may stop at what it did not expect, and shows what it measured"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use scalpel_tests::child;
use scalpel_tests::fixture::{copy_program, target_directory};
use scalpel_tests::scalpel::{self, Record};
use scalpel_tests::suite::{Outcome, Skip, Suite};
use scalpel_tests::tests;
use serde_json::Value;
use tempfile::TempDir;

/// Of the user-written functions that ran, and of what has no name.
const LEAST_MATCHED: f64 = 0.9;
const MOST_UNKNOWN: f64 = 0.05;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "native":
        ripgrep_s_own_functions_are_found_in_its_sources,
        esbuild_without_symbols_is_found_in_its_sources,
        sqlite_without_symbols_has_the_starts_and_samples_of_the_one_with,
    );
}

/// Records a program's own functions and lays them over its sources. What is not found is told by kind.
fn check(program: &Path, sources: &Path, patterns: &[&str], line: &[&str]) -> Outcome {
    let folder = program.parent().context("a program lies in a folder")?;
    let exists = folder.join("static.genome");
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let (program, exists, sources) = (path(program), path(&exists), path(sources));
    scalpel::run(&[
        "genome", "build", "--src", &sources, "--exe", &program, "-o", &exists,
    ])?
    .expect_code(0)?;
    let mut record = Record::into(folder).args(["-F", "0", "--max-overhead", "off"]);
    for pattern in patterns {
        record = record.args(["-f", *pattern]);
    }
    let line: Vec<&str> = std::iter::once(&*program)
        .chain(line.iter().copied())
        .collect();
    child::run(record.command_line(&line)?)?.expect_code(0)?;
    let run = path(record.genome());
    let shown = scalpel::run(&["genome", "show", &run, &exists, "--json"])?.expect_code(0)?;
    let shown: Value = serde_json::from_str(&shown.stdout)?;
    let figures = Figures::of(&shown);
    println!("{program}: {figures:?}");
    let (matched, ran) = figures.matched;
    ensure!(ran > 100, "only {ran} functions ran: {figures:?}");
    ensure!(matched as f64 > LEAST_MATCHED * ran as f64, "{figures:#?}");
    ensure!(figures.unknown < MOST_UNKNOWN, "{figures:#?}");
    // Every one that is not found is one of a kind.
    let kinds: u64 = figures.not_found.values().sum();
    ensure!(kinds == ran - matched, "{figures:#?}");
    ensure!(!figures.not_found.contains_key("not found"), "{figures:#?}");
    Ok(())
}

#[derive(Debug)]
#[expect(dead_code, reason = "they are printed")]
struct Figures {
    matched: (u64, u64),
    raw: (u64, u64),
    unknown: f64,
    /// User-written functions that were not found, by kind.
    not_found: BTreeMap<&'static str, u64>,
    /// The first of each kind.
    examples: BTreeMap<&'static str, String>,
}

impl Figures {
    fn of(shown: &Value) -> Self {
        let pair = |rate: &str| {
            let number = |field: &str| shown[rate][field].as_u64().unwrap_or(0);
            (number("matched"), number("ran"))
        };
        let (mut not_found, mut examples) = (BTreeMap::new(), BTreeMap::new());
        for function in shown["functions"].as_array().into_iter().flatten() {
            let ran = function["events"].as_u64().unwrap_or(0) > 0;
            if ran && function["missing"] == true {
                let key = function["key"].as_str().unwrap_or_default();
                *not_found.entry(kind(key)).or_default() += 1;
                examples.entry(kind(key)).or_insert_with(|| key.to_owned());
            }
        }
        Self {
            matched: pair("match_rate"),
            raw: pair("raw_rate"),
            unknown: shown["unknown_share"].as_f64().unwrap_or(1.0),
            not_found,
            examples,
        }
    }
}

/// Why a function of a source file is at no definition of it, by what its name says of it.
fn kind(key: &str) -> &'static str {
    let derived = ["as core::", "as alloc::", "as std::", "$u20$as$u20$core"];
    if derived.iter().any(|part| key.contains(part)) {
        "a derive made it"
    } else if key.contains("{closure") {
        "a closure in the arguments of a macro"
    } else {
        "not found"
    }
}

fn ripgrep_s_own_functions_are_found_in_its_sources() -> Outcome {
    let built = target_directory().join("tools/bin/rg");
    if !built.exists() {
        return Err(Skip::because(
            "there is no ripgrep: `cargo xtask test --only real` builds it",
        ));
    }
    let sources = of_registry("ripgrep-")?;
    let folder = TempDir::with_prefix("scalpel-native-")?;
    let program = folder.path().join("rg");
    copy_program(&built, &program)?;
    let place = scalpel_tests::fixture::workspace().join("scalpel-common");
    let place = place.to_string_lossy();
    let line = [
        "--no-config",
        "-n",
        "-i",
        "-C2",
        r"\bevents?\b.*[a-z]{4}",
        &place,
    ];
    check(&program, &sources, &["*"], &line)
}

fn esbuild_without_symbols_is_found_in_its_sources() -> Outcome {
    let built = target_directory().join("tools/bin/esbuild");
    let sources = target_directory().join("real/esbuild");
    if !built.exists() || !sources.exists() {
        return Err(Skip::because(
            "there is no esbuild: `cargo xtask test --only real` builds it",
        ));
    }
    let sources = PathBuf::from(fs::read_to_string(sources)?.trim());
    let folder = TempDir::with_prefix("scalpel-native-")?;
    let program = folder.path().join("esbuild");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&program).arg(&built);
    child::run(strip)?.expect_code(0)?;
    fs::write(folder.path().join("a.ts"), ENTRY)?;
    fs::write(folder.path().join("b.ts"), IMPORTED)?;
    let entry = folder.path().join("a.ts");
    let output = format!("--outfile={}", folder.path().join("out.js").display());
    let line = [
        &*entry.to_string_lossy(),
        "--bundle",
        "--minify",
        "--sourcemap",
        &output,
    ];
    check(
        &program,
        &sources,
        &["github.com/evanw/esbuild/*", "main.*"],
        &line,
    )
}

const ENTRY: &str = "import { add, type Pair } from './b';
enum Color { Red, Green }
export class Till { #sum = 0; static of(p: Pair) { return new Till().put(add(p)); }
  put(n: number) { this.#sum += n; return this; } get sum() { return this.#sum; } }
export const all = async () => { for await (const x of (async function* () { yield 1; })()) console.log(x, Color.Red); };
console.log(Till.of({ a: 1, b: 2 }).sum);
";
const IMPORTED: &str = "export interface Pair { a: number; b: number }
export const add = ({ a, b }: Pair): number => a + b;
";

/// The folder of a crate that cargo has unpacked: its newest one.
fn of_registry(name: &str) -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    let registries = fs::read_dir(home.join("registry/src"))?.flatten();
    let crates =
        registries.flat_map(|registry| fs::read_dir(registry.path()).into_iter().flatten());
    let folders = crates.flatten().map(|entry| entry.path());
    let versions = folders.filter(|path| {
        let rest = path
            .file_name()
            .and_then(|file| file.to_str()?.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    versions
        .max()
        .ok_or_else(|| Skip::because(format!("cargo has no {name}* unpacked")))
}

/// Runs the SQL of a file, as often as it is told to.
const DRIVER: &str = "\
#include <stdio.h>
#include <stdlib.h>
#include \"sqlite3.h\"
static int row(void *sum, int n, char **v, char **c) { (void)c; for (int i = 0; i < n; i++) *(long *)sum += v[i] ? atol(v[i]) : 1; return 0; }
int main(int n, char **v) {
    static char sql[1 << 20];
    long sum = 0, times = n > 1 ? atol(v[1]) : 1;
    FILE *file = n > 2 ? fopen(v[2], \"r\") : 0;
    if (!file) return 2;
    sql[fread(sql, 1, sizeof sql - 1, file)] = 0;
    for (long i = 0; i < times; i++) {
        sqlite3 *db; char *error = 0;
        if (sqlite3_open(\":memory:\", &db) || sqlite3_exec(db, sql, row, &sum, &error)) { fprintf(stderr, \"%s\\n\", error); return 1; }
        sqlite3_close(db);
    }
    printf(\"%ld\\n\", sum);
    return 0;
}
";

fn sqlite_without_symbols_has_the_starts_and_samples_of_the_one_with() -> Outcome {
    let folder = TempDir::with_prefix("scalpel-native-")?;
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    fs::write(path("driver.c"), DRIVER)?;
    fs::write(path("work.sql"), crate::sqlite::work(1500)?)?;
    let (whole, stripped) = sqlite(folder.path())?;
    let symbols = symbols(&whole)?;
    let starts = starts(&stripped, &path("static.genome"))?;
    let recovered = symbols.keys().filter(|at| starts.contains_key(at)).count();
    let false_starts = starts.keys().filter(|at| !symbols.contains_key(at)).count();
    println!(
        "SQLite: {recovered} of {} starts recovered, {false_starts} false",
        symbols.len()
    );
    ensure!(symbols.len() > 1000, "{} symbols", symbols.len());
    ensure!(
        recovered * 100 > symbols.len() * 99,
        "{recovered} of {}",
        symbols.len()
    );
    ensure!(
        false_starts * 100 < symbols.len(),
        "{false_starts} of {}",
        symbols.len()
    );

    // Samples of the stripped program, by the symbols of the other.
    let record = Record::into(folder.path()).args(["-F", "1997"]);
    let (program, work) = (path("sqlite.stripped"), path("work.sql"));
    let line = [program.as_str(), "200", &work];
    child::run(record.command_line(&line)?)?.expect_code(0)?;
    let report = scalpel::run(&["report", &record.genome().to_string_lossy(), "--json"])?;
    let report: Value = serde_json::from_str(&report.expect_code(0)?.stdout)?;
    let (mut right, mut all) = (0, 0);
    let mut wrong = BTreeMap::new();
    for function in report["functions"].as_array().into_iter().flatten() {
        let name = function["name"].as_str().unwrap_or_default();
        let Some((_, offset)) = name.split_once("sqlite.stripped+0x") else {
            continue;
        };
        let samples = function["samples"].as_u64().unwrap_or(0);
        let offset = u64::from_str_radix(offset, 16)?;
        all += samples;
        if symbols.contains_key(&offset) {
            right += samples;
        } else {
            wrong.insert(offset, samples);
        }
    }
    println!(
        "SQLite: {right} of {all} samples are in a function of the symbol table, wrong {wrong:x?}"
    );
    ensure!(all > 200, "only {all} samples in the program");
    ensure!(right * 100 >= all * 99, "{right} of {all}: {wrong:x?}");
    Ok(())
}

/// The program with symbols, and the same without.
fn sqlite(folder: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let compiled = target_directory().join("real/sqlite3.o");
    if !compiled.exists() {
        return Err(Skip::because(
            "there is no SQLite: `cargo xtask test --only real` compiles it",
        ));
    }
    let whole = folder.join("sqlite");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-I"])
        .arg(of_registry("libsqlite3-sys-")?.join("sqlite3"))
        .arg(folder.join("driver.c"))
        .arg(compiled)
        .arg("-o")
        .arg(&whole)
        .args(["-lpthread", "-lm", "-ldl"]);
    child::run(cc)?.expect_code(0)?;
    let stripped = folder.join("sqlite.stripped");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&stripped).arg(&whole);
    child::run(strip)?.expect_code(0)?;
    Ok((whole, stripped))
}

/// Functions of the symbol table by file offset: those of the program, not what the C library's start files bring, and
/// without parts that were moved away from their functions.
fn symbols(program: &Path) -> anyhow::Result<BTreeMap<u64, String>> {
    use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
    const START_FILES: [&str; 6] = [
        "_init",
        "_fini",
        "_start",
        "deregister_tm_clones",
        "register_tm_clones",
        "frame_dummy",
    ];
    let bytes = fs::read(program)?;
    let file = object::File::parse(&*bytes)?;
    let offset = |vaddr: u64| {
        let segment = file.segments().find(|segment| {
            (segment.address()..segment.address() + segment.size()).contains(&vaddr)
        })?;
        Some(vaddr - segment.address() + segment.file_range().0)
    };
    let functions = file.symbols().filter(|symbol| {
        symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0
    });
    let named =
        functions.filter_map(|symbol| Some((offset(symbol.address())?, symbol.name().ok()?)));
    let own = named.filter(|(_, name)| !START_FILES.contains(name) && !name.contains(".cold"));
    Ok(own
        .map(|(offset, name)| (offset, name.to_owned()))
        .collect())
}

/// Functions that are known of a program without symbols, by file offset.
fn starts(program: &Path, exists: &str) -> anyhow::Result<BTreeMap<u64, String>> {
    let program = program.to_string_lossy();
    scalpel::run(&["genome", "build", "--exe", &program, "-o", exists])?.expect_code(0)?;
    let query = "select n.file_offset, d.name from static_native n join static_definitions d on d.id = n.definition \
                 where n.found_by = 'eh-frame'";
    let rows = scalpel::run(&["genome", "query", exists, query, "--json"])?.expect_code(0)?;
    let rows: Value = serde_json::from_str(&rows.stdout)?;
    let rows = rows.as_array().context("no rows")?.iter();
    let start = |row: &Value| {
        Some((
            row["file_offset"].as_u64()?,
            row["name"].as_str()?.to_owned(),
        ))
    };
    rows.map(|row| start(row).with_context(|| row.to_string()))
        .collect()
}
