//! Documents and code change together: ARCHITECTURE.md names every room, FORMAT.md every versioned layout,
//! and links lead somewhere.
use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::{Finding, Repo};

const MAP: &str = "ARCHITECTURE.md";
const FORMAT: &str = "FORMAT.md";
const MOST_LINES: usize = 200;

static LINK: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\]\(([^)#\s]+)[^)]*\)").ok());
static VERSION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"const ([A-Z_]*VERSION): u\d+ = (\d+);").ok());

/// Names what a document lacks.
pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    [
        missing_rooms(repo),
        missing_versions(repo),
        length(repo),
        dead_links(repo),
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
}
