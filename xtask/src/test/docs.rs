//! The documents: rustdoc without a warning, and no document shows a command that `--help` does not know.
use std::fs;

use anyhow::Result;
use clap::CommandFactory;

use super::counts::Counts;
use crate::cmd;

/// rustdoc and the commands of the documents; two checks.
pub(super) fn run() -> Result<Counts> {
    cmd::run(
        cmd::cargo()
            .args(["doc", "--locked", "--no-deps", "--document-private-items"])
            .args([
                "--workspace",
                "--exclude",
                "scalpel-bpf",
                "--exclude",
                "xtask",
            ])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    let mut counts = Counts::passed();
    counts += commands()?;
    Ok(counts)
}

fn commands() -> Result<Counts> {
    cmd::run(cmd::cargo().args(["build", "--locked", "--quiet", "--package", "scalpel-user"]))?;
    let mut wrong = 0;
    for document in documents()? {
        let text = fs::read_to_string(&document)?;
        for shown in shown(&text) {
            for missing in missing(&shown)? {
                wrong += 1;
                cmd::print(&format!("{}: `{shown}`: {missing}", document.display()));
            }
        }
    }
    Ok(if wrong == 0 {
        Counts::passed()
    } else {
        Counts::failed()
    })
}

fn documents() -> Result<Vec<std::path::PathBuf>> {
    let list = cmd::output(cmd::command("git").args(["ls-files", "*.md"]))?;
    Ok(list.lines().map(|path| cmd::root().join(path)).collect())
}

/// One command line of ours in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    /// Whether it is an xtask's; else it is the program's.
    xtask: bool,
    /// Its words up to `--`, a pipe or a comment.
    words: Vec<String>,
}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words.join(" "))
    }
}

/// The commands in the code blocks of a document.
fn shown(text: &str) -> Vec<Shown> {
    let mut in_block = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            found.extend(command(line));
        }
    }
    found
}

fn command(line: &str) -> Option<Shown> {
    let line = line
        .trim()
        .trim_start_matches("$ ")
        .trim_start_matches("sudo ");
    let xtask = ["./x ", "cargo xtask "]
        .iter()
        .find_map(|head| line.strip_prefix(head));
    let program = ["scalpel-ebpf ", "target/release/scalpel-ebpf "]
        .iter()
        .find_map(|head| line.strip_prefix(head));
    let words = xtask.or(program)?.split_whitespace();
    let words = words
        .take_while(|word| !["--", "|", "#", ">", "&"].contains(word))
        .map(str::to_owned)
        .collect();
    Some(Shown {
        xtask: xtask.is_some(),
        words,
    })
}

/// What of a command its `--help` does not know.
fn missing(shown: &Shown) -> Result<Vec<String>> {
    let names: Vec<&str> = shown
        .words
        .iter()
        .map(String::as_str)
        .take_while(|word| !word.starts_with('-'))
        .collect();
    let Some(name) = names.first() else {
        return Ok(Vec::new());
    };
    let (help, flags) = if shown.xtask {
        xtask_help(name, &shown.words)
    } else {
        (program_help(&names)?, shown.words.as_slice())
    };
    Ok(unknown_flags(&help, flags)
        .chain(help.is_empty().then(|| "no such command".to_owned()))
        .collect())
}

/// `record` hands its flags on: they are the program's.
fn xtask_help<'a>(name: &str, words: &'a [String]) -> (String, &'a [String]) {
    let mut command = crate::Cli::command();
    let help = command
        .find_subcommand_mut(name)
        .map_or_else(String::new, |task| task.render_long_help().to_string());
    if name != "record" {
        return (help, words);
    }
    (
        program_help(&["record"]).unwrap_or_default() + "\n  --yes",
        words,
    )
}

/// The help of the longest prefix of `names` that is a command; the rest are arguments.
fn program_help(names: &[&str]) -> Result<String> {
    let program = cmd::target().join("debug/scalpel-ebpf");
    for length in (1..=names.len()).rev() {
        let names = names.get(..length).unwrap_or_default();
        let output = cmd::command(&program).args(names).arg("--help").output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
    }
    Ok(String::new())
}

fn unknown_flags<'a>(help: &'a str, words: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let flags = words
        .iter()
        .filter(|word| word.starts_with('-') && word.len() > 1);
    flags
        .map(|flag| flag.split('=').next().unwrap_or_default())
        .filter(|flag| !knows(help, flag))
        .map(|flag| format!("no flag `{flag}`"))
}

fn knows(help: &str, flag: &str) -> bool {
    let known = help.split(|character: char| !(character.is_alphanumeric() || character == '-'));
    known.into_iter().any(|word| word == flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_code_blocks_only() {
        let text = "scalpel-ebpf none\n```sh\n$ sudo scalpel-ebpf record -F 99 -- ls -l # why\n./x test --yes\nls\n```\n";
        let found: Vec<_> = shown(text)
            .iter()
            .map(|shown| (shown.xtask, shown.to_string()))
            .collect();
        assert_eq!(
            found,
            [
                (false, "record -F 99".to_owned()),
                (true, "test --yes".to_owned())
            ]
        );
    }

    fn flags(help: &str, words: &[&str], unknown: usize) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(unknown_flags(help, &words).count(), unknown);
    }

    #[test]
    fn a_flag_that_help_does_not_know_is_told() {
        let help = "  -F, --frequency <HZ>  how often\n      --pid <N>";
        flags(help, &["record", "-F", "99", "--pid=3"], 0);
        flags(help, &["record", "--pi", "-x"], 2);
    }

    #[test]
    fn an_xtask_that_does_not_exist_is_told() {
        let gone = Shown {
            xtask: true,
            words: vec!["gone".into()],
        };
        assert_eq!(missing(&gone).unwrap(), ["no such command"]);
        let test = Shown {
            xtask: true,
            words: vec!["test".into(), "--yes".into()],
        };
        assert_eq!(missing(&test).unwrap(), Vec::<String>::new());
    }
}
