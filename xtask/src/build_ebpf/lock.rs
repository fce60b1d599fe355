//! The part of Cargo.lock that one package depends on. What other packages pull in must not make the object stale.
use std::collections::{BTreeMap, BTreeSet};

/// The records of `root`'s dependencies, all levels, in a fixed order.
pub(super) fn closure(lock: &str, root: &str) -> String {
    let packages = packages(lock);
    let mut wanted = BTreeSet::new();
    let mut next = vec![root.to_owned()];
    while let Some(name) = next.pop() {
        let found = packages
            .range(name.clone()..)
            .take_while(|(key, _)| belongs(key, &name));
        for (_, record) in found {
            if wanted.insert(*record) {
                next.extend(dependencies(record));
            }
        }
    }
    wanted.into_iter().collect::<Vec<_>>().join("\n")
}

/// Records by `name version`.
fn packages(lock: &str) -> BTreeMap<String, &str> {
    let records = lock.split("[[package]]").skip(1);
    records
        .filter_map(|record| {
            Some((
                format!("{} {}", field(record, "name")?, field(record, "version")?),
                record.trim(),
            ))
        })
        .collect()
}

/// A dependency is written as `name`, or as `name version` where several versions are locked.
fn belongs(key: &str, dependency: &str) -> bool {
    key == dependency
        || key
            .strip_prefix(dependency)
            .is_some_and(|rest| rest.starts_with(' '))
}

fn field<'a>(record: &'a str, name: &str) -> Option<&'a str> {
    record.lines().find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix(" = \"")?
            .strip_suffix('"')
    })
}

fn dependencies(record: &str) -> impl Iterator<Item = String> {
    let list = record
        .split_once("dependencies = [")
        .map_or("", |(_, list)| list);
    list.lines().filter_map(|line| {
        Some(
            line.trim()
                .strip_prefix('"')?
                .strip_suffix("\",")?
                .to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
[[package]]
name = "a"
version = "1.0.0"
dependencies = [
 "b",
 "c 2.0.0",
]

[[package]]
name = "b"
version = "1.0.0"

[[package]]
name = "bb"
version = "1.0.0"

[[package]]
name = "c"
version = "1.0.0"

[[package]]
name = "c"
version = "2.0.0"
dependencies = [
 "a",
]
"#;

    #[test]
    fn the_closure_has_what_is_depended_on_in_the_locked_version_and_nothing_else() {
        let closure = closure(LOCK, "a");
        assert_eq!(closure.matches("name = ").count(), 3);
        assert!(closure.contains("name = \"b\"\n") && closure.contains("version = \"2.0.0\""));
    }
}
