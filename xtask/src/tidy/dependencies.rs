//! Every dependency is used: each shared one by a package, each package's one by its own sources.
use super::repo::{Dependency, Package};
use super::tokens::Token;
use super::{Finding, Repo};

/// Names each dependency that nothing uses.
pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let unshared = repo
        .shared_dependencies
        .iter()
        .filter(|name| !depended_on(repo, name))
        .map(|name| Finding {
            path: "Cargo.toml".into(),
            line: 0,
            message: format!("no package depends on `{name}`"),
        });
    let unused = repo.packages.iter().flat_map(|package| {
        package
            .dependencies
            .iter()
            .filter(|dependency| !used(repo, package, dependency))
            .map(|dependency| Finding {
                path: format!("{}/Cargo.toml", package.folder),
                line: 0,
                message: format!("no source of {} uses `{}`", package.name, dependency.name),
            })
    });
    unshared.chain(unused).collect()
}

fn depended_on(repo: &Repo, name: &str) -> bool {
    repo.packages.iter().any(|package| {
        package
            .dependencies
            .iter()
            .any(|dependency| dependency.name == name)
    })
}

/// Tests do not count for what is more than a dev-dependency.
fn used(repo: &Repo, package: &Package, dependency: &Dependency) -> bool {
    let word = dependency.name.replace('-', "_");
    let folder = format!("{}/", package.folder);
    repo.rust_under(&folder).any(|file| {
        if dependency.dev {
            file.text.contains(renamed(&word))
        } else {
            names_crate(&file.tokens(), renamed(&word))
        }
    })
}

/// Whether a path begins with `word`: a module or field of that name is another thing.
fn names_crate(list: &[Token], word: &str) -> bool {
    let pairs = list.iter().zip(list.iter().skip(1)).enumerate();
    pairs
        .filter(|(_, (token, next))| token.text == word && next.text == "::")
        .any(|(place, _)| {
            place
                .checked_sub(1)
                .and_then(|before| list.get(before))
                .is_none_or(|token| token.text != "::")
        })
}

/// Crates whose library has another name than their package.
fn renamed(word: &str) -> &str {
    match word {
        "perf_event2" => "perf_event",
        "scalpel_probe" => "scalpel",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(source: &str, dev: bool, messages: &[&str]) {
        let mut repo = Repo::of(&[("a/src/lib.rs", source)]);
        repo.shared_dependencies = vec!["serde-json".into()];
        repo.packages = vec![Package {
            name: "a".into(),
            folder: "a".into(),
            dependencies: vec![Dependency {
                name: "serde-json".into(),
                dev,
            }],
        }];
        let found: Vec<_> = check(&repo)
            .into_iter()
            .map(|finding| finding.message)
            .collect();
        assert_eq!(found, messages);
    }

    #[test]
    fn a_dependency_named_in_a_path_is_used() {
        finds("use serde_json::Value;", false, &[]);
        finds("fn f() { serde_json::to_string(x) }", false, &[]);
    }

    #[test]
    fn a_dependency_in_comments_or_tests_only_is_not() {
        finds(
            "// serde_json",
            false,
            &["no source of a uses `serde-json`"],
        );
        finds(
            "#[cfg(test)] mod t { use serde_json::x; }",
            false,
            &["no source of a uses `serde-json`"],
        );
    }

    #[test]
    fn a_module_of_the_same_name_is_not() {
        let source = "mod serde_json; use crate::serde_json::x;";
        finds(source, false, &["no source of a uses `serde-json`"]);
    }

    #[test]
    fn a_dev_dependency_may_be_used_by_tests() {
        finds("#[cfg(test)] mod t { use serde_json::x; }", true, &[]);
        finds("", true, &["no source of a uses `serde-json`"]);
    }

    #[test]
    fn a_shared_dependency_without_a_package_is_told() {
        let mut repo = Repo::of(&[]);
        repo.shared_dependencies = vec!["gone".into()];
        assert_eq!(
            check(&repo).first().unwrap().message,
            "no package depends on `gone`"
        );
    }
}
