//! Who may name whom among the rooms of `scalpel-user/src`: stages never name each other.
use super::tokens::{Token, heads, starts_with};
use super::{Finding, Repo};

const HOME: &str = "scalpel-user/src/";

/// The words that all share.
const WORDS: [&str; 6] = ["catalog", "event", "function", "input", "rooted", "tree"];

/// The rooms, and the rooms that each may name beside the shared words and itself. `*` = all.
const ROOMS: &[(&str, &[&str])] = &[
    ("catalog", &[]),
    ("event", &[]),
    ("function", &[]),
    ("input", &[]),
    ("rooted", &[]),
    ("tree", &[]),
    ("kernel", &[]),
    ("image", &[]),
    // The held child of `record -- CMD` needs unsafe code, which lives in `kernel/spawn.rs`.
    ("target", &["kernel"]),
    ("symbol", &[]),
    ("unwind", &[]),
    ("probe", &["target"]),
    ("decode", &[]),
    ("order", &[]),
    ("stack", &[]),
    ("log", &[]),
    ("source", &["log"]),
    ("maps", &[]),
    ("matching", &["genome", "maps"]),
    ("genome", &[]),
    ("static_", &["image"]),
    ("lay", &["genome", "maps", "matching", "output", "static_"]),
    ("doubt", &["genome"]),
    ("report", &["genome", "doubt", "matching"]),
    ("sink", &["genome", "doubt", "report"]),
    ("caps", &[]),
    ("plan", &["caps", "cli", "image", "target"]),
    ("host", &["caps"]),
    ("privilege", &[]),
    ("doctor", &["caps", "image", "kernel", "output", "target"]),
    ("output", &[]),
    ("sandbox", &[]),
    ("survey", &["image", "plan", "sandbox", "symbol", "target"]),
    ("cli", &["output", "plan"]),
    ("commands", &["*"]),
    ("exit", &["*"]),
    ("record", &["*"]),
    ("scope", &["*"]),
    ("stacks", &["*"]),
    ("session", &["*"]),
    ("lib", &["*"]),
    ("main", &["*"]),
];

/// Names each use of a room that its user must not know.
pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repo.rust_under(HOME) {
        let modules = modules(file.path.strip_prefix(HOME).unwrap_or_default());
        let Some(room) = modules.first() else {
            continue;
        };
        let Some((_, may)) = ROOMS.iter().find(|(name, _)| name == room) else {
            findings.push(finding(
                &file.path,
                0,
                format!("the room `{room}` is not in the table of rooms"),
            ));
            continue;
        };
        for (named, line) in named(&file.tokens(), modules.len()) {
            if !allowed(room, may, &named) {
                findings.push(finding(
                    &file.path,
                    line,
                    format!("`{room}` must not name `{named}`"),
                ));
            }
        }
    }
    findings
}

fn finding(path: &str, line: usize, message: String) -> Finding {
    Finding {
        path: path.to_owned(),
        line,
        message,
    }
}

/// `kernel/ring.rs` -> `[kernel, ring]`, `kernel/mod.rs` -> `[kernel]`.
fn modules(path: &str) -> Vec<&str> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let parts: Vec<_> = stem.split('/').collect();
    match parts.as_slice() {
        [rest @ .., "mod"] => rest.to_vec(),
        all => all.to_vec(),
    }
}

fn allowed(room: &str, may: &[&str], named: &str) -> bool {
    let is_room = ROOMS.iter().any(|(name, _)| *name == named);
    !is_room
        || named == room
        || WORDS.contains(&named)
        || may.contains(&"*")
        || may.contains(&named)
}

/// Rooms named in a file whose module path is `depth` long, with lines.
fn named(list: &[Token], depth: usize) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for start in 0..list.len() {
        let rest = list.get(start..).unwrap_or_default();
        let Some(path) = from_root(rest, depth) else {
            continue;
        };
        found.extend(
            heads(path)
                .into_iter()
                .map(|head| (head.text.clone(), head.line)),
        );
    }
    found
}

/// What follows the name of the crate's root at the head of `list`: `crate::`, the crate's own name, or as many
/// `super::` as lead there.
fn from_root(list: &[Token], depth: usize) -> Option<&[Token]> {
    if starts_with(list, &["crate", "::"]) || starts_with(list, &["scalpel_user", "::"]) {
        return list.get(2..);
    }
    let up = ["super", "::"].repeat(depth);
    starts_with(list, &up)
        .then(|| list.get(up.len()..))
        .flatten()
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
    fn stages_name_the_shared_words() {
        finds(
            "scalpel-user/src/decode.rs",
            "use crate::{event::Event, tree};",
            &[],
        );
        finds(
            "scalpel-user/src/stack/mod.rs",
            "use crate::event::Event; use self::build::Builder;",
            &[],
        );
    }

    #[test]
    fn stages_do_not_name_each_other() {
        finds(
            "scalpel-user/src/decode.rs",
            "use crate::order::Order;",
            &[1],
        );
        finds(
            "scalpel-user/src/stack/build.rs",
            "\nuse crate::{event::Event, order::{Order}};",
            &[2],
        );
        finds(
            "scalpel-user/src/stack/build.rs",
            "fn f() { crate::genome::write() }",
            &[1],
        );
        finds(
            "scalpel-user/src/log/read.rs",
            "use super::super::genome::Genome;",
            &[1],
        );
        finds("scalpel-user/src/order.rs", "use super::decode;", &[1]);
        finds(
            "scalpel-user/src/order.rs",
            "m!(scalpel_user::decode::x);",
            &[1],
        );
    }

    #[test]
    fn a_room_may_name_its_own_modules() {
        finds(
            "scalpel-user/src/kernel/ring.rs",
            "use super::sys; use crate::kernel::lease;",
            &[],
        );
    }

    #[test]
    fn reports_may_name_the_genome_and_not_the_kernel() {
        finds(
            "scalpel-user/src/report/table.rs",
            "use crate::genome::Genome;\nuse crate::kernel::Kernel;",
            &[2],
        );
    }

    #[test]
    fn the_wiring_may_name_all_and_tests_may_too() {
        finds(
            "scalpel-user/src/session.rs",
            "use crate::{decode, kernel, order};",
            &[],
        );
        finds(
            "scalpel-user/src/order.rs",
            "#[cfg(test)] mod tests { use crate::decode; }",
            &[],
        );
    }

    #[test]
    fn a_room_that_is_not_in_the_table_is_told() {
        finds("scalpel-user/src/utils.rs", "", &[0]);
    }
}
