//! Documents and code change together: ARCHITECTURE.md names every room, FORMAT.md every versioned layout,
//! links lead somewhere, and the tests that a page about hazards names are there.
use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::{Finding, Repo};

const MAP: &str = "ARCHITECTURE.md";
const FORMAT: &str = "FORMAT.md";
const HAZARDS: &str = "docs/hazards.md";
const MOST_LINES: usize = 200;

static LINK: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\]\(([^)#\s]+)[^)]*\)").ok());
static CODE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"`([^`]+)`").ok());
static VERSION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"const ([A-Z_]*VERSION): u\d+ = (\d+);").ok());

/// Names what a document lacks.
pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    [
        missing_rooms(repo),
        missing_versions(repo),
        length(repo),
        dead_links(repo),
        missing_tests(repo),
    ]
    .concat()
}

fn finding(path: &str, line: usize, message: String) -> Finding {
    Finding {
        path: path.to_owned(),
        line,
        message,
    }
}

fn missing_rooms(repo: &Repo) -> Vec<Finding> {
    let map = repo.text(MAP);
    let rooms: BTreeSet<&str> = repo
        .rust_under("scalpel-user/src/")
        .filter_map(|file| {
            file.path
                .strip_prefix("scalpel-user/src/")?
                .split(['/', '.'])
                .next()
        })
        .filter(|room| !["lib", "main"].contains(room))
        .collect();
    let packages = repo.packages.iter().map(|package| package.folder.as_str());
    let missing = rooms
        .into_iter()
        .chain(packages)
        .filter(|name| !map.contains(&format!("`{name}")));
    missing
        .map(|name| finding(MAP, 0, format!("does not tell of `{name}`")))
        .collect()
}

/// FORMAT.md shows each version constant with the number it has in the source.
fn missing_versions(repo: &Repo) -> Vec<Finding> {
    let format = repo.text(FORMAT);
    let sources = ["scalpel-common/src/", "scalpel-user/src/"]
        .into_iter()
        .flat_map(|folder| repo.rust_under(folder));
    sources
        .flat_map(|file| {
            VERSION
                .iter()
                .flat_map(|pattern| pattern.captures_iter(&file.text))
        })
        .filter_map(|found| Some((found.get(1)?.as_str(), found.get(2)?.as_str())))
        .filter(|(name, number)| !format.contains(&format!("`{name}` = {number}")))
        .map(|(name, number)| finding(FORMAT, 0, format!("does not say \"`{name}` = {number}\"")))
        .collect()
}

fn length(repo: &Repo) -> Vec<Finding> {
    let lines = repo.text(MAP).lines().count();
    let long = lines > MOST_LINES;
    long.then(|| {
        finding(
            MAP,
            MOST_LINES + 1,
            format!("{lines} lines, of {MOST_LINES} allowed"),
        )
    })
    .into_iter()
    .collect()
}

fn dead_links(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repo.files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in file.text.lines().enumerate() {
            let targets = LINK
                .iter()
                .flat_map(|pattern| pattern.captures_iter(line))
                .filter_map(|found| found.get(1));
            for target in targets
                .map(|target| target.as_str())
                .filter(|target| !leads_somewhere(repo, folder, target))
            {
                findings.push(finding(
                    &file.path,
                    number + 1,
                    format!("the link to {target} is dead"),
                ));
            }
        }
    }
    findings
}

/// Tests that the page about hazards names, `family::sentence` or a function's name, are somewhere in the sources.
fn missing_tests(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in repo.text(HAZARDS).lines().enumerate() {
        let named = CODE
            .iter()
            .flat_map(|pattern| pattern.captures_iter(line))
            .filter_map(|found| found.get(1).map(|name| name.as_str()));
        for name in named.filter(|name| is_test(name) && !exists(repo, name)) {
            findings.push(finding(
                HAZARDS,
                number + 1,
                format!("there is no test {name}"),
            ));
        }
    }
    findings
}

/// Names of tests are sentences.
fn is_test(name: &str) -> bool {
    const FEWEST_WORDS: usize = 4;
    let sentence = name.rsplit("::").next().unwrap_or(name);
    let is_sentence = sentence.split(['_', ' ']).count() >= FEWEST_WORDS;
    is_sentence
        && (name.contains("::") || sentence.chars().all(|c| c == '_' || c.is_alphanumeric()))
}

fn exists(repo: &Repo, name: &str) -> bool {
    let (family, sentence) = name.rsplit_once("::").unwrap_or(("", name));
    let sources = repo.files.iter().filter(|file| file.path.ends_with(".rs"));
    if !sentence.contains(' ') {
        let function = format!("fn {sentence}(");
        return sources
            .filter(|file| family.is_empty() || file.path.contains(family))
            .any(|file| file.text.contains(&function));
    }
    let path = format!("tests/kernel/{family}.rs");
    let texts = sources.filter(|file| file.path == path);
    texts
        .flat_map(|file| file.text.split('"').skip(1).step_by(2))
        .any(|literal| makes(literal, sentence))
}

/// Whether the literal, with something in each of its `{}`, is the sentence.
fn makes(literal: &str, sentence: &str) -> bool {
    const FEWEST: usize = 12;
    let fixed: Vec<&str> = literal
        .split('{')
        .map(|part| part.rsplit_once('}').map_or(part, |(_, after)| after))
        .collect();
    let letters: usize = fixed.iter().map(|part| part.len()).sum();
    if letters < FEWEST.min(sentence.len()) {
        return false;
    }
    let (Some(first), Some(last)) = (fixed.first(), fixed.last()) else {
        return false;
    };
    let mut rest = sentence;
    for part in &fixed {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    sentence.starts_with(first) && sentence.ends_with(last)
}

fn leads_somewhere(repo: &Repo, folder: &str, target: &str) -> bool {
    if target.contains("://") {
        return true;
    }
    let path = joined(folder, target);
    let prefix = format!("{path}/");
    repo.files
        .iter()
        .any(|file| file.path == path || file.path.starts_with(&prefix))
}

/// `a/b` and `../c/d` -> `a/c/d`.
fn joined(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::super::expect;
    use super::*;

    #[test]
    fn every_room_is_on_the_map() {
        let order = ("scalpel-user/src/order.rs", "");
        expect(check, &[order, (MAP, "`order` puts")], &[]);
        expect(check, &[order, (MAP, "order")], &[(MAP, 0)]);
    }

    #[test]
    fn every_version_is_in_the_format() {
        let source = (
            "scalpel-common/src/event.rs",
            "pub const EVENT_VERSION: u16 = 2;",
        );
        expect(check, &[source, (FORMAT, "`EVENT_VERSION` = 2")], &[]);
        expect(
            check,
            &[source, (FORMAT, "`EVENT_VERSION` = 1")],
            &[(FORMAT, 0)],
        );
    }

    #[test]
    fn the_map_is_short() {
        expect(
            check,
            &[(MAP, &"line\n".repeat(MOST_LINES + 1))],
            &[(MAP, MOST_LINES + 1)],
        );
    }

    #[test]
    fn links_lead_somewhere() {
        let files = [
            (
                "docs/a.md",
                "[b](b.md) [c](https://c) [d](#d)\n[e](gone.md#x)",
            ),
            ("docs/b.md", ""),
            (
                "probes/c/README.md",
                "[b](../../docs/b.md) [d](../d)\n[e](../docs/b.md)",
            ),
            ("probes/d/README.md", ""),
        ];
        expect(
            check,
            &files,
            &[("docs/a.md", 2), ("probes/c/README.md", 2)],
        );
    }

    #[test]
    fn tests_that_a_page_names_are_there() {
        let source = (
            "tests/kernel/exits.rs",
            "format!(\"{what} survives --exits {exits}\"); fn a_handler_is_left_alone() {}",
        );
        let page = |text| (HAZARDS, text);
        let named = [
            "`exits::a handler survives --exits none`, `exits::a_handler_is_left_alone`",
            "`a_handler_is_left_alone` by `rt_sigaction` and `--exits none`",
        ];
        for text in named {
            expect(check, &[source, page(text)], &[]);
        }
        for text in [
            "`exits::a handler dies of --exits none`",
            "`call::a handler survives --exits none`",
            "`call::a_handler_is_left_alone`",
            "`a_handler_that_is_not_there`",
        ] {
            expect(check, &[source, page(text)], &[(HAZARDS, 1)]);
        }
    }
}
