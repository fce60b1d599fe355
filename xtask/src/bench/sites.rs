//! How many functions of real binaries have a cheap site, and a safe exit. Nothing is attached.
use std::path::PathBuf;

use anyhow::{Context, Result};
use scalpel_tests::real::node;
use scalpel_tests::real::programs::Programs;

use super::results::Section;
use crate::cmd;

/// Files of the unpacked packages, then files of the system.
const UNPACKED: &[&str] = &[
    "usr/lib/postgresql/15/bin/postgres",
    "usr/bin/redis-check-rdb",
    "usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
];
const SYSTEM: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
];

/// The table is the example's own.
pub(super) fn run() -> Result<Section> {
    let programs = Programs::default();
    let mut files = UNPACKED
        .iter()
        .map(|path| programs.find(path))
        .collect::<Result<Vec<PathBuf>>>()?;
    files.extend(
        SYSTEM
            .iter()
            .map(PathBuf::from)
            .filter(|path| path.exists()),
    );
    files.push(node::find()?);
    files.extend(
        [cmd::tools().join("bin/rg")]
            .into_iter()
            .filter(|path| path.exists()),
    );
    let example = cmd::target().join("release/examples/image_stats");
    let printed = cmd::output(cmd::command(example).args(&files))?;
    let mut section = Section {
        title: "Cheap sites and safe exits",
        about: ABOUT.into(),
        unit: "% of the functions",
        ..Section::default()
    };
    for line in printed.lines().skip(1) {
        let (name, functions, shares) =
            shares(line).with_context(|| format!("not a line of image_stats: {line}"))?;
        for (what, share) in WHAT.iter().zip(shares) {
            section.add(&format!("{name} ({functions} functions): {what}"), share);
        }
    }
    Ok(section)
}

const ABOUT: &str = "By `image_stats`, from the files alone. A site is *cheap* where the kernel emulates the instruction \
instead of single-stepping it. A return probe is *safe* where the exit table proves it; *among C++* is the same \
function in a process that has C++ or Rust images beside this one.";

const WHAT: [&str; 4] = [
    "cheap at the symbol",
    "cheap site",
    "safe exit",
    "safe exit among C++",
];

/// `name functions 1.0 % 2.0 % 3.0 % 4.0 % ...`.
fn shares(line: &str) -> Option<(&str, u64, Vec<f64>)> {
    let mut words = line.split_whitespace();
    let (name, functions) = (words.next()?, words.next()?.parse().ok()?);
    let shares: Vec<f64> = words
        .filter(|word| *word != "%")
        .take(WHAT.len())
        .filter_map(|word| word.parse().ok())
        .collect();
    (shares.len() == WHAT.len()).then_some((name, functions, shares))
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn a_line_of_the_example_is_read() {
        let line = "libc.so.6   3000  40.0 %  71.0 %  99.0 %  12.5 %   1.0  20.0";
        assert_eq!(
            shares(line),
            Some(("libc.so.6", 3000, vec![40.0, 71.0, 99.0, 12.5]))
        );
        assert_eq!(shares("file functions entry"), None);
    }
}
