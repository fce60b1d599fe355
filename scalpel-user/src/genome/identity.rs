//! Which functions of several builds or runs are one function, and how sure that is.
//!
//! A name is not an identity: one file can have a name twice, and in minified code a name means another function in the
//! next build. Only what can be shown to be one function is taken for one; the rest stays apart.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::function::{FunctionInfo, Language};

/// How a function of one build relates to the one of another that it was taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The same code, as far as hashes or builds tell.
    #[default]
    Same,
    /// The same function by name and place, and its code is another.
    Edited,
    /// The same function by name; whether its code changed is not known.
    Unsure,
    /// There are others of its name, and nothing tells which of them it is.
    NotComparable,
}

impl Change {
    /// Short stable word for tables and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Edited => "edited",
            Self::Unsure => "unsure",
            Self::NotComparable => "not-comparable",
        }
    }
}

/// A function, and the runs that it was seen in.
#[derive(Clone, Debug)]
pub struct Member {
    /// The function.
    pub info: Arc<FunctionInfo>,
    /// Numbers of runs, rising.
    pub runs: Vec<u32>,
}

/// Functions that are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Places in the list that was asked about, rising.
    pub members: Vec<usize>,
    /// The least sure of what made them one.
    pub change: Change,
}

/// Texts with a function that starts beyond this column are minified: nobody writes such lines.
const MINIFIED_COLUMN: u32 = 500;

/// Finds the functions that are one; sorted by their first members.
pub fn unify(members: &[Member]) -> Vec<Unit> {
    let mut by_name: BTreeMap<(Language, &str, &str), Vec<usize>> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        let info = &member.info;
        let name = (info.language, &*info.module, &*info.name);
        by_name.entry(name).or_default().push(at);
    }
    let minified = minified_texts(members);
    let mut units: Vec<Unit> = by_name
        .into_values()
        .flat_map(|alike| of_one_name(members, &alike, &minified))
        .collect();
    units.sort_by_key(|unit| unit.members.first().copied());
    units
}

fn minified_texts(members: &[Member]) -> Vec<u64> {
    let far = |member: &&Member| {
        let column = member.info.place.column;
        column.is_some_and(|column| column > MINIFIED_COLUMN)
    };
    let mut texts: Vec<u64> = members
        .iter()
        .filter(far)
        .map(|member| member.info.place.text_hash)
        .collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

/// A function at one place of one build, in whichever runs.
#[derive(Debug)]
struct Site<'a> {
    info: &'a FunctionInfo,
    members: Vec<usize>,
    runs: Vec<u32>,
}

impl Site<'_> {
    fn position(&self) -> (u64, u32) {
        let line = self.info.line.unwrap_or(0);
        let start = self.info.place.range.map(|(start, _)| u64::from(start));
        (start.unwrap_or(self.info.file_offset), line)
    }
}

/// The whole text or image that a function is part of; `None` = not known, as for Python.
fn build(info: &FunctionInfo) -> Option<String> {
    if info.place.text_hash != 0 {
        return Some(format!("{:016x}", info.place.text_hash));
    }
    let is_image = info.place.body_hash == 0 && !info.build_id.is_empty();
    is_image.then(|| info.build_id.clone())
}

/// Whether all functions of its text or image are listed, whether they ran or not.
fn is_listed_whole(info: &FunctionInfo) -> bool {
    let is_image = info.place.body_hash == 0;
    build(info).is_some() && (is_image || info.language == Language::JavaScript)
}

fn of_one_name(members: &[Member], alike: &[usize], minified: &[u64]) -> Vec<Unit> {
    let sites = sites(members, alike);
    let mut union = Union::over(sites.len());
    let versions = versions(&sites);
    let longest = versions.iter().max_by_key(|version| version.len());
    for version in &versions {
        if let Some(reference) = longest.filter(|reference| *reference != version) {
            align(&sites, reference, version, minified, &mut union);
        }
    }
    union.units(&sites)
}

/// Functions of the same build at the same place are one, however many runs tell of them.
fn sites<'a>(members: &'a [Member], alike: &[usize]) -> Vec<Site<'a>> {
    let mut sites: Vec<Site<'a>> = Vec::new();
    let with_info = alike.iter().filter_map(|&at| Some((at, members.get(at)?)));
    for (at, member) in with_info {
        let info = &*member.info;
        match sites.iter_mut().find(|site| same_site(site.info, info)) {
            Some(site) => {
                site.members.push(at);
                site.runs.extend(&member.runs);
            }
            None => sites.push(Site {
                info,
                members: vec![at],
                runs: member.runs.clone(),
            }),
        }
    }
    sites
}

fn same_site(a: &FunctionInfo, b: &FunctionInfo) -> bool {
    a.build_id == b.build_id
        && a.file_offset == b.file_offset
        && a.line == b.line
        && a.place.range == b.place.range
        && a.place.body_hash == b.place.body_hash
        && (!a.build_id.is_empty() || a.path == b.path)
}

/// What existed side by side: the sites of one build, or of one run where builds are not known. By place.
fn versions(sites: &[Site<'_>]) -> Vec<Vec<usize>> {
    let mut versions: BTreeMap<(Option<String>, u32), Vec<usize>> = BTreeMap::new();
    for (at, site) in sites.iter().enumerate() {
        match build(site.info) {
            Some(build) => versions.entry((Some(build), 0)).or_default().push(at),
            None => {
                for run in &site.runs {
                    let version = versions.entry((None, *run)).or_default();
                    if version.last() != Some(&at) {
                        version.push(at);
                    }
                }
            }
        }
    }
    let mut versions: Vec<Vec<usize>> = versions.into_values().collect();
    for version in &mut versions {
        version.sort_by_key(|at| sites.get(*at).map(Site::position));
    }
    versions
}

/// Pairs the sites of two versions: first those with a body that both have once, then the rest in order.
fn align(
    sites: &[Site<'_>],
    reference: &[usize],
    version: &[usize],
    minified: &[u64],
    union: &mut Union,
) {
    let info = |at: usize| sites.get(at).map(|site| site.info);
    let body = |at: usize| info(at).map_or(0, |info| info.place.body_hash);
    let once = |list: &[usize], hash: u64| list.iter().filter(|at| body(**at) == hash).count() == 1;
    let is_sure = |at: usize| {
        let hash = body(at);
        hash != 0 && once(reference, hash) && once(version, hash)
    };
    for &there in version.iter().filter(|at| is_sure(**at)) {
        let here = reference.iter().find(|at| body(**at) == body(there));
        here.iter()
            .for_each(|here| union.join(**here, there, Change::Same));
    }
    let rest = |list: &[usize]| -> Vec<usize> {
        list.iter().copied().filter(|at| !is_sure(*at)).collect()
    };
    let (here, there) = (rest(reference), rest(version));
    let is_minified = |at: &usize| {
        info(*at).is_some_and(|info| minified.binary_search(&info.place.text_hash).is_ok())
    };
    if here.len() != there.len() || here.iter().chain(&there).any(is_minified) {
        here.iter().chain(&there).for_each(|at| union.doubt(*at));
        return;
    }
    for (here, there) in here.into_iter().zip(there) {
        match info(here).zip(info(there)).and_then(|(a, b)| change(a, b)) {
            Some(change) => union.join(here, there, change),
            None => [here, there].into_iter().for_each(|at| union.doubt(at)),
        }
    }
}

/// What a pair in order is; `None` = not to be taken for one.
fn change(a: &FunctionInfo, b: &FunctionInfo) -> Option<Change> {
    let bodies = (a.place.body_hash, b.place.body_hash);
    // A list of what ran may be short of some: the line has to agree.
    if !(is_listed_whole(a) && is_listed_whole(b)) && a.line != b.line {
        return None;
    }
    Some(match bodies {
        (0, _) | (_, 0) if a.size != b.size => Change::Edited,
        (0, _) | (_, 0) => Change::Unsure,
        (a, b) if a == b => Change::Same,
        _ => Change::Edited,
    })
}

/// Union-find over the sites of one name.
struct Union {
    parents: Vec<usize>,
    changes: Vec<Change>,
}

impl Union {
    fn over(sites: usize) -> Self {
        Self {
            parents: (0..sites).collect(),
            changes: vec![Change::Same; sites],
        }
    }

    fn root(&self, mut at: usize) -> usize {
        while let Some(&parent) = self.parents.get(at).filter(|parent| **parent != at) {
            at = parent;
        }
        at
    }

    fn join(&mut self, a: usize, b: usize, change: Change) {
        let (a, b) = (self.root(a), self.root(b));
        let (first, second) = (a.min(b), a.max(b));
        let weaker = self.changes.get(second).copied().unwrap_or_default();
        self.parents
            .get_mut(second)
            .into_iter()
            .for_each(|parent| *parent = first);
        let known = self.changes.get_mut(first);
        known
            .into_iter()
            .for_each(|known| *known = change.max(weaker).max(*known));
    }

    fn doubt(&mut self, at: usize) {
        let root = self.root(at);
        let known = self.changes.get_mut(root);
        known
            .into_iter()
            .for_each(|known| *known = Change::NotComparable);
    }

    fn units(&self, sites: &[Site<'_>]) -> Vec<Unit> {
        let mut units: BTreeMap<usize, Unit> = BTreeMap::new();
        for (at, site) in sites.iter().enumerate() {
            let root = self.root(at);
            let unit = units.entry(root).or_insert_with(|| Unit {
                members: Vec::new(),
                change: self.changes.get(root).copied().unwrap_or_default(),
            });
            unit.members.extend(&site.members);
        }
        let mut units: Vec<Unit> = units.into_values().collect();
        units
            .iter_mut()
            .for_each(|unit| unit.members.sort_unstable());
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{ExitStrategy, SourcePlace};
    use crate::genome::tests::function;

    /// A function at `line` of the text `text` with the body `body`, seen in run `run`; 0 = not known.
    fn member(name: &str, run: u32, line: u32, text: u64, body: u64) -> Member {
        let info = FunctionInfo {
            language: Language::JavaScript,
            line: Some(line),
            build_id: format!("{:x}", if text == 0 { body } else { text }),
            file_offset: line.into(),
            place: SourcePlace {
                text_hash: text,
                body_hash: body,
                ..SourcePlace::default()
            },
            ..function(name, ExitStrategy::Probe)
        };
        Member {
            info: Arc::new(info),
            runs: vec![run],
        }
    }

    fn check(members: &[Member], expect: &[(&[usize], Change)]) {
        let units: Vec<Unit> = expect
            .iter()
            .map(|(members, change)| Unit {
                members: members.to_vec(),
                change: *change,
            })
            .collect();
        assert_eq!(unify(members), units);
    }

    #[test]
    fn one_place_of_one_build_is_one_function_in_every_run() {
        check(
            &[member("f", 0, 3, 7, 1), member("f", 1, 3, 7, 1)],
            &[(&[0, 1], Change::Same)],
        );
    }

    #[test]
    fn two_functions_of_one_name_in_one_build_are_never_one() {
        check(
            &[member("f", 0, 3, 7, 1), member("f", 1, 9, 7, 1)],
            &[(&[0], Change::Same), (&[1], Change::Same)],
        );
    }

    #[test]
    fn a_function_that_moved_is_the_same_and_one_with_another_body_is_edited() {
        check(
            &[member("f", 0, 3, 7, 1), member("f", 1, 5, 8, 1)],
            &[(&[0, 1], Change::Same)],
        );
        check(
            &[member("f", 0, 3, 7, 1), member("f", 1, 5, 8, 2)],
            &[(&[0, 1], Change::Edited)],
        );
    }

    #[test]
    fn functions_of_one_name_are_paired_by_their_bodies_before_their_order() {
        check(
            &[
                member("f", 0, 1, 7, 1),
                member("f", 0, 2, 7, 2),
                member("f", 1, 1, 8, 2),
                member("f", 1, 2, 8, 3),
            ],
            &[(&[0, 3], Change::Edited), (&[1, 2], Change::Same)],
        );
    }

    #[test]
    fn where_a_build_has_more_of_a_name_what_is_left_over_stays_apart() {
        check(
            &[
                member("f", 0, 1, 7, 1),
                member("f", 0, 2, 7, 2),
                member("f", 1, 1, 8, 3),
            ],
            &[
                (&[0], Change::NotComparable),
                (&[1], Change::NotComparable),
                (&[2], Change::NotComparable),
            ],
        );
    }

    #[test]
    fn in_minified_code_a_name_alone_means_nothing() {
        let minified = |run, text, body| {
            let mut member = member("a", run, 1, text, body);
            Arc::make_mut(&mut member.info).place.column = Some(90_000);
            member
        };
        check(
            &[minified(0, 7, 1), minified(1, 8, 2)],
            &[(&[0], Change::NotComparable), (&[1], Change::NotComparable)],
        );
        check(
            &[minified(0, 7, 1), minified(1, 8, 1)],
            &[(&[0, 1], Change::Same)],
        );
    }

    #[test]
    fn where_only_what_ran_is_known_order_is_no_proof() {
        // Python: two functions of one name, of which each run saw another.
        check(
            &[member("f", 0, 3, 0, 1), member("f", 1, 9, 0, 2)],
            &[(&[0], Change::NotComparable), (&[1], Change::NotComparable)],
        );
        check(
            &[member("f", 0, 3, 0, 1), member("f", 1, 3, 0, 2)],
            &[(&[0, 1], Change::Edited)],
        );
        let python = |run, line, text, body| {
            let mut member = member("f", run, line, text, body);
            Arc::make_mut(&mut member.info).language = Language::Python;
            member
        };
        check(
            &[python(0, 3, 7, 1), python(1, 9, 8, 2)],
            &[(&[0], Change::NotComparable), (&[1], Change::NotComparable)],
        );
    }

    #[test]
    fn of_a_native_function_without_a_hash_only_the_size_tells_an_edit() {
        let native = |run, build: &str, size| {
            let mut member = member("f", run, 3, 0, 0);
            let info = Arc::make_mut(&mut member.info);
            (info.build_id, info.size) = (build.into(), size);
            member
        };
        check(
            &[native(0, "aa", 64), native(1, "bb", 64)],
            &[(&[0, 1], Change::Unsure)],
        );
        check(
            &[native(0, "aa", 64), native(1, "bb", 80)],
            &[(&[0, 1], Change::Edited)],
        );
    }
}
