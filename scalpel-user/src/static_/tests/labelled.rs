//! Texts whose calls are labelled by hand (`tests/truth/edges`): how many of the edges are right, and how many of the calls
//! they cover.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::catalog::{Catalog, Kept};
use crate::static_::build;

/// A line of a file.
type Line = (String, u32);

/// What the comments say.
#[derive(Default)]
struct Labels {
    /// The tag of the definition on a line.
    tags: BTreeMap<Line, String>,
    /// The tags of what the calls on a line reach.
    calls: BTreeMap<Line, BTreeSet<String>>,
}

impl Labels {
    fn read(folder: &Path, catalog: &Catalog) -> Self {
        let mut labels = Self::default();
        for file in &catalog.files {
            let text = fs::read_to_string(folder.join(&file.path)).unwrap();
            for (number, line) in (1u32..).zip(text.lines()) {
                labels.line((file.path.clone(), number), line);
            }
        }
        labels
    }

    fn line(&mut self, at: Line, text: &str) {
        let label = |mark: &str| text.rsplit_once(mark).map(|(_, label)| label.trim());
        let comment = ["//", "#"].iter().find_map(|comment| {
            label(&format!("{comment}:"))
                .map(|label| (label, ""))
                .or_else(|| label(&format!("{comment}=")).map(|calls| ("", calls)))
        });
        let Some((tag, calls)) = comment else {
            return;
        };
        let (tag, calls) = tag.split_once('=').unwrap_or((tag, calls));
        if !tag.trim().is_empty() {
            self.tags.insert(at.clone(), tag.trim().to_owned());
        }
        let calls: BTreeSet<String> = calls.split_whitespace().map(str::to_owned).collect();
        if !calls.is_empty() {
            self.calls.insert(at, calls);
        }
    }
}

/// Edges, of which so many are right, and labelled calls, of which so many are found.
struct Score {
    edges: usize,
    wrong: Vec<String>,
    calls: usize,
    found: usize,
}

fn score(language: &str) -> Score {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/truth/edges");
    let folder = home.join(language);
    let built = build(
        &[folder.canonicalize().unwrap()],
        &[],
        &Kept::default(),
        &|| false,
    )
    .unwrap();
    let catalog = built.kept.catalog;
    let labels = Labels::read(&folder, &catalog);
    let known: BTreeSet<&String> = labels.tags.values().collect();
    for called in labels.calls.values().flatten() {
        assert!(
            known.contains(called),
            "{language}: nothing is tagged {called}"
        );
    }
    let mut score = Score {
        edges: 0,
        wrong: Vec::new(),
        calls: labels.calls.values().map(BTreeSet::len).sum(),
        found: 0,
    };
    let mut seen = BTreeSet::new();
    for edge in catalog.edges.iter().filter(|edge| !edge.how.is_possible()) {
        let place = |id: crate::catalog::DefId| {
            let definition = &catalog.definitions[id.index()];
            let path = catalog.files[definition.file.index()].path.clone();
            (path, definition)
        };
        let (path, _) = place(edge.caller);
        let (to, callee) = place(edge.callee);
        let tag = labels.tags.get(&(to, callee.span.name.line));
        let site = (path, edge.line);
        let is_right = tag.is_some_and(|tag| {
            labels
                .calls
                .get(&site)
                .is_some_and(|calls| calls.contains(tag))
        });
        score.edges += 1;
        if !is_right {
            let how = edge.how.word();
            score.wrong.push(format!(
                "{}:{} -> {} ({how})",
                site.0, site.1, callee.qualified
            ));
        } else if seen.insert((site, tag.cloned())) {
            score.found += 1;
        }
    }
    score
}

/// At least 95 % of the edges are right, and at least `recall` of the labelled calls are found, in per cent.
#[track_caller]
fn check(language: &str, recall: usize) {
    let score = score(language);
    let right = score.edges - score.wrong.len();
    println!(
        "{language}: {right} of {} edges are right, {} of {} labelled calls are found; wrong: {:?}",
        score.edges, score.found, score.calls, score.wrong
    );
    assert!(
        score.edges > 0 && right * 100 >= score.edges * 95,
        "{:?}",
        score.wrong
    );
    assert!(
        score.found * 100 >= score.calls * recall,
        "only {} of {} labelled calls are found",
        score.found,
        score.calls
    );
}

#[test]
fn labelled_calls_of_c() {
    check("c", 56);
}

#[test]
fn labelled_calls_of_cpp() {
    check("cpp", 36);
}

#[test]
fn labelled_calls_of_go() {
    check("go", 65);
}

#[test]
fn labelled_calls_of_java() {
    check("java", 60);
}

#[test]
fn labelled_calls_of_javascript() {
    check("javascript", 75);
}

#[test]
fn labelled_calls_of_python() {
    check("python", 68);
}

#[test]
fn labelled_calls_of_rust() {
    check("rust", 53);
}

#[test]
fn labelled_calls_of_typescript() {
    check("typescript", 68);
}
