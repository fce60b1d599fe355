//! The repository as the rules see it: files with their text, and the packages of the workspace.
use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::tokens::{Token, tokens};
use crate::cmd;

/// All there is to check.
#[derive(Debug, Default)]
pub(super) struct Repo {
    /// Text files, tracked or about to be, by path.
    pub(super) files: Vec<File>,
    /// Packages of the workspace.
    pub(super) packages: Vec<Package>,
    /// Names under `[workspace.dependencies]`.
    pub(super) shared_dependencies: Vec<String>,
}

/// A text file.
#[derive(Debug)]
pub(super) struct File {
    /// Path from the root of the repository.
    pub(super) path: String,
    /// Content.
    pub(super) text: String,
}

/// A package of the workspace.
#[derive(Debug)]
pub(super) struct Package {
    /// Name.
    pub(super) name: String,
    /// Its folder, from the root of the repository.
    pub(super) folder: String,
    /// Names of its dependencies, as written in its manifest.
    pub(super) dependencies: Vec<Dependency>,
}

/// A dependency of a package.
#[derive(Debug)]
pub(super) struct Dependency {
    /// Name in the manifest.
    pub(super) name: String,
    /// Under `[dev-dependencies]`: tests may be its only users.
    pub(super) dev: bool,
}

impl File {
    /// Whether it is Rust source.
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The tokens of Rust source, without those of tests.
    pub(super) fn tokens(&self) -> Vec<Token> {
        if self.is_tests() {
            return Vec::new();
        }
        tokens(&self.text)
    }

    /// Whether it is a test module in a file of its own.
    pub(super) fn is_tests(&self) -> bool {
        self.path.ends_with("/tests.rs")
            || self.path.contains("/src/") && self.path.contains("/tests/")
    }

    /// Lines of Rust source before its tests.
    pub(super) fn lines_of_code(&self) -> usize {
        let lines = self.text.lines();
        lines.take_while(|line| *line != "#[cfg(test)]").count()
    }
}

impl Repo {
    /// Reads what git knows or would take.
    pub(super) fn read() -> Result<Self> {
        let list = cmd::output(cmd::command("git").args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
        ]))?;
        let files = list.lines().filter_map(read_text).collect();
        let metadata = cmd::output(cmd::cargo().args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
            "--locked",
        ]))?;
        let metadata: Value =
            serde_json::from_str(&metadata).context("reading `cargo metadata`")?;
        let manifest =
            fs::read_to_string(cmd::root().join("Cargo.toml")).context("reading Cargo.toml")?;
        Ok(Self {
            files,
            packages: packages(&metadata),
            shared_dependencies: shared_dependencies(&manifest),
        })
    }

    /// A repository of made-up files.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.into(),
            text: text.into(),
        };
        Self {
            files: files.iter().map(file).collect(),
            ..Self::default()
        }
    }

    /// Rust sources under a folder (with its closing slash).
    pub(super) fn rust_under<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a File> {
        self.files
            .iter()
            .filter(move |file| file.is_rust() && file.path.starts_with(folder))
    }

    /// The text of a file, empty if there is none.
    pub(super) fn text(&self, path: &str) -> &str {
        self.files
            .iter()
            .find(|file| file.path == path)
            .map_or("", |file| &file.text)
    }
}

/// `None` for what is not text, or gone.
fn read_text(path: &str) -> Option<File> {
    let text = fs::read_to_string(cmd::root().join(path)).ok()?;
    Some(File {
        path: path.to_owned(),
        text,
    })
}

fn packages(metadata: &Value) -> Vec<Package> {
    let root = metadata
        .get("workspace_root")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let list = metadata.get("packages").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|package| self::package(package, root))
        .collect()
}

fn package(package: &Value, root: &str) -> Option<Package> {
    let manifest = package.get("manifest_path")?.as_str()?;
    let folder = manifest
        .strip_prefix(root)?
        .trim_start_matches('/')
        .strip_suffix("/Cargo.toml")?;
    let dependencies = package.get("dependencies")?.as_array()?;
    Some(Package {
        name: package.get("name")?.as_str()?.to_owned(),
        folder: folder.to_owned(),
        dependencies: dependencies.iter().filter_map(dependency).collect(),
    })
}

fn dependency(dependency: &Value) -> Option<Dependency> {
    let name = dependency
        .get("rename")
        .and_then(Value::as_str)
        .or(dependency.get("name")?.as_str())?;
    Some(Dependency {
        name: name.to_owned(),
        dev: dependency.get("kind").and_then(Value::as_str) == Some("dev"),
    })
}

/// The keys of one table: cargo itself does not tell them.
fn shared_dependencies(manifest: &str) -> Vec<String> {
    manifest
        .lines()
        .skip_while(|line| *line != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_the_shared_table_are_found() {
        let manifest = "[workspace]\na = 1\n[workspace.dependencies]\n# why\nanyhow = \"1\"\naya = { version = \"1\" }\n\n[profile.dev]\ndebug = 1\n";
        assert_eq!(shared_dependencies(manifest), ["anyhow", "aya"]);
    }

    #[test]
    fn this_repository_can_be_read() {
        let repo = Repo::read().unwrap();
        assert!(
            repo.packages
                .iter()
                .any(|package| package.folder == "xtask")
        );
        assert!(repo.shared_dependencies.contains(&"anyhow".to_owned()));
        assert!(
            repo.text("xtask/src/tidy/repo.rs")
                .contains("this_repository_can_be_read")
        );
    }
}
