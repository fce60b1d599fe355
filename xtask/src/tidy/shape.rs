//! The shape of a file: it says what it is for, it is short, and it speaks of the project alone.
use std::sync::LazyLock;

use regex::Regex;

use super::repo::File;
use super::{Finding, Repo};

/// Most lines of a source file before its tests.
const MOST_LINES: usize = 450;

/// Files that may be longer, each with what holds it together.
const LONGER: &[(&str, usize, &str)] = &[
    (
        "scalpel-user/src/stack/thread.rs",
        560,
        "the rules by which one stack grows and shrinks",
    ),
    (
        "scalpel-user/tests/attach/links.rs",
        560,
        "one promise of links after the other",
    ),
    (
        "probes/scope/tests/shapes/shape/copies.rs",
        490,
        "one danger of copied code after the other",
    ),
    (
        "tests/kernel/scope.rs",
        490,
        "one promise of a trace after the other",
    ),
    (
        "tests/kernel/lifecycle.rs",
        480,
        "one way to end after the other",
    ),
];

/// Marks of unfinished work, and absolute paths of somebody's machine. The words are cut, to be no finding here.
static FORBIDDEN: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    [
        (
            concat!(r"\b(TO", "DO|FIX", "ME|XX", r"X)\b"),
            "finish it, or file an issue",
        ),
        (
            concat!(r#"(^|[\s"'`(=:])/(ho"#, "me|Use", "rs|wo", r#"rk|root)/"#),
            "an absolute path of one machine",
        ),
    ]
    .into_iter()
    .filter_map(|(pattern, why)| Some((Regex::new(pattern).ok()?, why)))
    .collect()
});

/// Names each file that is out of shape.
pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    repo.files
        .iter()
        .flat_map(|file| {
            opening(file)
                .into_iter()
                .chain(length(file))
                .chain(words(file))
        })
        .collect()
}

fn opening(file: &File) -> Option<Finding> {
    let fixture = file.path.starts_with("tests/fixtures/");
    (file.is_rust() && !fixture && !file.is_tests() && !file.text.starts_with("//! ")).then(|| {
        Finding {
            path: file.path.clone(),
            line: 1,
            message: "a source opens with `//!`: what it is for and what it must not know".into(),
        }
    })
}

fn length(file: &File) -> Option<Finding> {
    let longer = LONGER.iter().find(|(path, ..)| *path == file.path);
    let most = longer.map_or(MOST_LINES, |(_, most, _)| *most);
    let lines = file.lines_of_code();
    (file.is_rust() && !file.is_tests() && lines > most).then(|| Finding {
        path: file.path.clone(),
        line: most + 1,
        message: format!("{lines} lines, of {most} allowed: split it by duty"),
    })
}

fn words(file: &File) -> Vec<Finding> {
    if file.path.ends_with(".lock")
        || file.path.starts_with("LICENSE")
        || file.path.ends_with(".svg")
    {
        return Vec::new();
    }
    let lines = file.text.lines().enumerate();
    lines
        .flat_map(|(number, text)| {
            FORBIDDEN
                .iter()
                .filter(move |(pattern, _)| pattern.is_match(text))
                .map(move |(_, why)| (number, *why))
        })
        .map(|(number, why)| Finding {
            path: file.path.clone(),
            line: number + 1,
            message: why.into(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::expect;
    use super::*;

    fn finds(path: &str, source: &str, lines: &[usize]) {
        let found: Vec<_> = lines.iter().map(|&line| (path, line)).collect();
        expect(check, &[(path, source)], &found);
    }

    #[test]
    fn a_source_opens_with_what_it_is_for() {
        finds("a/src/lib.rs", "//! Words.\nfn f() {}\n", &[]);
        finds("a/src/lib.rs", "fn f() {}\n", &[1]);
        finds("a/src/tests.rs", "fn f() {}\n", &[]);
        finds("README.md", "Words\n", &[]);
    }

    #[test]
    fn a_source_is_short() {
        let long = format!("//! Words.\n{}", "fn f() {}\n".repeat(MOST_LINES));
        finds("a/src/lib.rs", &long, &[MOST_LINES + 1]);
        let tested = format!("//! Words.\n#[cfg(test)]\nmod tests {{}}\n{long}");
        finds("a/src/lib.rs", &tested, &[]);
    }

    #[test]
    fn unfinished_work_is_told() {
        finds("README.md", &["one\nTO", "DO: two\n"].concat(), &[2]);
    }

    #[test]
    fn paths_of_one_machine_are_told() {
        finds("README.md", &["see /ho", "me/me/x\n"].concat(), &[1]);
        finds("README.md", &["see `/wo", "rk/x`\n"].concat(), &[1]);
        finds("README.md", "see /proc/PID/root/usr and /usr/lib/x\n", &[]);
    }
}
