//! Java without a probe, against labels: every method that the virtual machine says it has compiled is laid over the source, where
//! its mark stands. All is compiled at its first call, so that nothing depends on samples or on what is warm.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and says what it skipped"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use scalpel_user::catalog::{Kept, Outcome, Why};
use scalpel_user::event::Pid;
use scalpel_user::function::FunctionTable;
use scalpel_user::maps::Maps;
use scalpel_user::symbol::jit_functions;
use scalpel_user::{matching, static_};

/// The map is written when the virtual machine ends.
const OPTIONS: [&str; 7] = [
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:+DumpPerfMapAtExit",
    "-Xcomp",
    "-Xbatch",
    "-XX:CompileCommand=quiet",
    "-XX:CompileCommand=compileonly,Shapes*::*",
    "-XX:CompileCommand=dontinline,Shapes*::*",
];

/// What ran and was compiled, and what it says of itself; nothing where there is no Java.
fn ran(folder: &Path) -> Option<(FunctionTable, BTreeSet<String>)> {
    let compiled = Command::new("javac")
        .args(["-d", ".", "Shapes.java"])
        .current_dir(folder)
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        println!("skipped: there is no javac");
        return None;
    }
    let child = Command::new("java")
        .args(OPTIONS)
        .arg("-cp")
        .arg(folder)
        .args(["Shapes", "3"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid(child.id());
    let ended = child.wait_with_output().unwrap();
    if !ended.status.success() {
        println!("skipped: this Java writes no map at its end");
        return None;
    }
    let mut table = FunctionTable::new();
    for function in jit_functions(pid, pid, None) {
        if function.info.name.starts_with("Shapes") {
            table.insert((*function.info).clone());
        }
    }
    drop(fs::remove_file(format!("/tmp/perf-{pid}.map")));
    let told = String::from_utf8(ended.stdout).unwrap();
    let marks = told.lines().filter_map(|line| line.rsplit_once(' '));
    Some((table, marks.map(|(mark, _)| mark.to_owned()).collect()))
}

/// The mark in a line, and whether nothing but its compiled name tells which one it is.
fn mark_of_line(line: &str) -> Option<(&str, bool)> {
    let (_, rest) = line.split_once("hit(\"")?;
    let (mark, _) = rest.split_once('"')?;
    Some((mark, line.contains("//= ambiguous")))
}

/// `Item.cost` of `Shapes$Item.cost(int)`, `most` of `Shapes.most(java.util.List)`, `Item.Item` of `Shapes$Item.<init>(int)`.
fn mark_of_name(name: &str) -> String {
    let path = name.split('(').next().unwrap_or_default();
    let path = path.trim_start_matches("Shapes").replace('$', ".");
    let path = path.trim_start_matches('.');
    match path.strip_suffix(".<init>") {
        Some(class) => format!("{class}.{}", class.rsplit('.').next().unwrap_or_default()),
        None => path.to_owned(),
    }
}

#[test]
fn methods_that_java_compiled_are_those_that_their_marks_name() {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/truth/native/java/Shapes.java");
    let text = fs::read_to_string(&source).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("Shapes.java"), &text).unwrap();
    let Some((functions, ran)) = ran(folder.path()) else {
        return;
    };
    let roots = [folder.path().to_owned()];
    let catalog = static_::build(&roots, &[], &Kept::default(), &|| false);
    let catalog = catalog.unwrap().kept.catalog;
    let matches = matching::find(&functions, &catalog, &Maps::default());
    let lines: Vec<&str> = text.lines().collect();
    let mut found = BTreeSet::new();
    for (id, info) in functions.iter() {
        match matches.outcomes[&id] {
            Outcome::Matched(definition) => {
                let definition = catalog.definition(definition).unwrap();
                let line = lines.get(definition.span.start.line as usize - 1);
                let there = line.and_then(|line| mark_of_line(line));
                let mark = mark_of_name(&info.name);
                match there {
                    Some((there, _)) => assert_eq!(there, mark, "{}", info.name),
                    None => assert!(["hit", "main"].contains(&&*mark), "{}", info.name),
                }
                found.insert(mark);
            }
            Outcome::Unmatched(Why::Generated | Why::Ambiguous) => {}
            Outcome::Unmatched(why) => panic!("{}: {}", info.name, why.word()),
        }
    }
    let open: BTreeSet<&str> = lines
        .iter()
        .filter_map(|line| mark_of_line(line))
        .filter_map(|(mark, is_open)| is_open.then_some(mark))
        .collect();
    let all = ran.iter().map(String::as_str);
    let wanted: BTreeSet<&str> = all.filter(|mark| !open.contains(mark)).collect();
    let found: BTreeSet<&str> = found
        .iter()
        .map(String::as_str)
        .filter(|mark| !["hit", "main"].contains(mark))
        .collect();
    assert_eq!(found, wanted);
    println!(
        "Shapes.java: {} of {} that ran found, 0 false",
        found.len(),
        ran.len()
    );
}
