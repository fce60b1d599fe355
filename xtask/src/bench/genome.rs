//! The genome at size: very many nodes written and merged, the time from Ctrl-C to the finished file, a page of a million
//! calls, and a million lines of real code read.
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use scalpel_tests::scalpel::{self, Record, Recording};
use serde_json::Value;
use tempfile::TempDir;

use super::results::Section;
use super::target;
use crate::probes::node;
use crate::{apt, cmd, test};

/// The most contexts that one recording keeps.
const CAP: u64 = 1 << 20;

/// So many genomes of so many nodes are merged.
const MERGED: u64 = 10;

/// Calls that make contexts up to the cap: five a walk, of which some two are new.
const CALLS_TO_THE_CAP: u64 = 3_000_000;

/// The most calls that a page shows one by one.
const CALLS_OF_A_PAGE: u64 = 1_000_000;

/// How long the collector may catch up with the last calls before it is interrupted: nothing waits then but the end.
const CATCH_UP: Duration = Duration::from_secs(5);

/// How often what a process takes is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Crates of the workspace's own dependencies, some with C; all are there once this has been built.
const CRATES: [&str; 10] = [
    "libsqlite3-sys",
    "capstone-sys",
    "tree-sitter-cpp",
    "tokio",
    "rustix",
    "object",
    "gimli",
    "regex-automata",
    "syn",
    "clap_builder",
];

/// Packages of the Node.js tests.
const PACKAGES: [&str; 6] = ["typescript", "rxjs", "zod", "date-fns", "three", "prettier"];

/// All of it, `rounds` times each.
pub(super) fn run(rounds: usize, yes: bool) -> Result<Vec<Section>> {
    apt::ensure(&["chromium"], "the page in a browser", yes)?;
    let folder = tempfile::tempdir_in(cmd::target())?;
    Ok(vec![
        nodes(&folder, rounds)?,
        page(&folder, rounds)?,
        sources(&folder, rounds)?,
    ])
}

/// What a process took.
struct Taken {
    seconds: f64,
    peak_mib: f64,
    stdout: String,
}

/// Runs a command to its end.
fn taken(command: &mut Command) -> Result<Taken> {
    let begin = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{command:?}"))?;
    let mut peak = 0;
    let status = loop {
        peak = peak.max(peak_kib(child.id()));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(LOOK);
    };
    let seconds = begin.elapsed().as_secs_f64();
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(status.success(), "{command:?} ended with {status}: {said}");
    Ok(Taken {
        seconds,
        peak_mib: peak as f64 / 1024.0,
        stdout: String::from_utf8(output.stdout)? + &said,
    })
}

/// The most memory that a process has had so far; 0 once it has ended.
fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

fn mib(path: &Path) -> Result<f64> {
    Ok(fs::metadata(path)?.len() as f64 / f64::from(1 << 20))
}

fn collector() -> Result<Command> {
    Ok(cmd::command(scalpel::program()?))
}

fn with_target(section: &mut Section, targets: &[(&str, &'static str)]) {
    for row in &mut section.rows {
        let target = targets.iter().find(|(name, _)| row.name.starts_with(name));
        row.target = target.map_or("", |(_, target)| target);
    }
}

fn nodes(folder: &TempDir, rounds: usize) -> Result<Section> {
    let mut section = Section {
        title: "Genomes of very many nodes",
        about: NODES.into(),
        unit: "s or MiB",
        ..Section::default()
    };
    for round in 1..=rounds {
        cmd::say(format_args!("genome: nodes, round {round} of {rounds}"));
        interrupted(folder, &mut section)?;
        many(folder, &mut section)?;
    }
    with_target(
        &mut section,
        &[("1e6 nodes: Ctrl-C to the finished file, s", "< 2")],
    );
    Ok(section)
}

/// A live recording of a program whose every walk is new, interrupted when it has as many contexts as it may.
fn interrupted(folder: &TempDir, section: &mut Section) -> Result<()> {
    let mut walker = Walker::start(CALLS_TO_THE_CAP)?;
    let record = Record::into(folder.path()).args(RECORD);
    let recording = record.attach(walker.child.id())?;
    walker.walk()?;
    std::thread::sleep(CATCH_UP);
    let (seconds, peak) = stopped(recording)?;
    walker.end()?;
    let genome = record.genome();
    let count = scalpel::run(&[
        "genome",
        "query",
        &genome.to_string_lossy(),
        "SELECT count(*) AS n FROM contexts",
        "--json",
    ])?;
    let rows: Value = serde_json::from_str(&count.expect_code(0)?.stdout)?;
    let contexts = rows.pointer("/0/n").and_then(Value::as_u64).unwrap_or(0);
    ensure!(contexts >= 1_000_000, "only {contexts} contexts came of it");
    section.add("1e6 nodes: Ctrl-C to the finished file, s", seconds);
    section.add("1e6 nodes: most memory of the collector, MiB", peak);
    section.add("1e6 nodes: size of the file, MiB", mib(genome)?);
    Ok(())
}

/// Options of a recording that sees every call.
const RECORD: [&str; 8] = [
    "-F",
    "0",
    "-f",
    "f??",
    "--max-overhead",
    "off",
    "--max-loss",
    "100",
];

/// Ctrl-C: seconds until the collector is gone, and the most memory it had.
fn stopped(mut recording: Recording) -> Result<(f64, f64)> {
    let pid = recording.running().pid();
    let looking = std::thread::spawn(move || {
        let mut peak = 0;
        loop {
            match peak_kib(pid) {
                0 => return peak,
                kib => peak = peak.max(kib),
            }
            std::thread::sleep(LOOK);
        }
    });
    let begin = Instant::now();
    let recorded = recording.stop()?;
    let seconds = begin.elapsed().as_secs_f64();
    let code = recorded.ended.code();
    ensure!(code == 0 || code == 5, "{}", recorded.ended.stderr);
    let peak = looking.join().unwrap_or(0);
    Ok((seconds, peak as f64 / 1024.0))
}

/// Genomes of the same functions and of other paths each, and all of them in one file.
fn many(folder: &TempDir, section: &mut Section) -> Result<()> {
    let example = cmd::target().join("release/examples/nodes");
    let mut merge = collector()?;
    merge.args(["genome", "merge"]);
    for seed in 1..=MERGED {
        let path = folder.path().join(format!("{seed}.genome"));
        let wrote = taken(
            cmd::command(&example)
                .args([CAP.to_string(), seed.to_string()])
                .arg(&path),
        )?;
        let told: Value = serde_json::from_str(wrote.stdout.trim())?;
        let seconds = told.get("seconds").and_then(Value::as_f64);
        if seed == 1 {
            section.add(
                "1e6 nodes: the file written from memory, s",
                seconds.context("no seconds")?,
            );
        }
        merge.arg(path);
    }
    let all = folder.path().join("all.genome");
    let merged = taken(merge.arg("-o").arg(&all))?;
    section.add("1e7 nodes: ten such files merged, s", merged.seconds);
    section.add("1e7 nodes: most memory, MiB", merged.peak_mib);
    section.add("1e7 nodes: size of the file, MiB", mib(&all)?);
    fs::remove_file(all)?;
    Ok(())
}

/// The program that walks.
struct Walker {
    child: Child,
}

impl Walker {
    fn start(calls: u64) -> Result<Self> {
        let program = target::compile("paths.c")?;
        let child = cmd::command(program)
            .arg(calls.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self { child })
    }

    /// Returns when all calls are made.
    fn walk(&mut self) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("no stdin")?;
        writeln!(stdin)?;
        let stdout = self.child.stdout.as_mut().context("no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.trim() == "done", "the program said {line:?}");
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

fn page(folder: &TempDir, rounds: usize) -> Result<Section> {
    let mut section = Section {
        title: "A page of a million calls",
        about: PAGE.into(),
        unit: "s or MB",
        ..Section::default()
    };
    let stream = folder.path().join("run.stream");
    let mut walker = Walker::start(CALLS_OF_A_PAGE)?;
    let keep = stream.to_string_lossy().into_owned();
    let record = Record::into(folder.path()).args(RECORD);
    let recording = record
        .args(["--keep-stream", &keep])
        .attach(walker.child.id())?;
    walker.walk()?;
    std::thread::sleep(CATCH_UP);
    stopped(recording)?;
    walker.end()?;
    let html = folder.path().join("run.html");
    for round in 1..=rounds {
        cmd::say(format_args!("genome: page, round {round} of {rounds}"));
        let wrote = taken(
            collector()?
                .arg("report")
                .arg(&stream)
                .arg("--html")
                .arg(&html),
        )?;
        section.add("written, s", wrote.seconds);
        section.add("size, MB", fs::metadata(&html)?.len() as f64 / 1e6);
        let drawn = cmd::output(
            cmd::command("node")
                .arg(cmd::root().join("xtask/bench/first_draw.mjs"))
                .arg("chromium")
                .arg(test::drivers_of_pages()?)
                .arg(&html)
                .arg("1"),
        )?;
        let drawn: Vec<f64> = serde_json::from_str(&drawn)?;
        let first = drawn.first().context("nothing was drawn")?;
        section.add("first draw in headless Chromium, s", first / 1000.0);
    }
    with_target(&mut section, &[("size", "< 10"), ("first draw", "< 3")]);
    Ok(section)
}

fn sources(folder: &TempDir, rounds: usize) -> Result<Section> {
    let roots = roots()?;
    let out = folder.path().join("static.genome");
    let mut section = Section {
        title: "Real code read",
        about: SOURCES.into(),
        unit: "s, MiB or M lines",
        ..Section::default()
    };
    let mut last = String::new();
    for round in 1..=rounds {
        cmd::say(format_args!("genome: sources, round {round} of {rounds}"));
        // What an earlier round kept would not be read again.
        drop(fs::remove_file(&out));
        let mut build = collector()?;
        build.args(["genome", "build", "-o"]).arg(&out);
        for root in &roots {
            build.arg("--src").arg(root);
        }
        let built = taken(&mut build)?;
        let lines = lines(&built.stdout).with_context(|| built.stdout.clone())?;
        section.add("lines, M", lines / 1e6);
        section.add("wall time, s", built.seconds);
        section.add(
            "wall time of a million lines, s",
            built.seconds * 1e6 / lines,
        );
        section.add("most memory, MiB", built.peak_mib);
        section.add("size of the file, MiB", mib(&out)?);
        last = built.stdout;
    }
    with_target(
        &mut section,
        &[
            ("wall time of a million", "< 25"),
            ("most memory", "< 1024"),
        ],
    );
    let named: Vec<String> = roots.iter().filter_map(|root| short(root)).collect();
    section.remarks.push(format!("Read: {}.", named.join(", ")));
    let said = last.split_once(": ").map_or(&*last, |(_, said)| said);
    let said: Vec<&str> = said.lines().map(str::trim).collect();
    section.remarks.push(format!("Said: {}.", said.join("; ")));
    Ok(section)
}

/// `... 5716 files (0 unchanged), 3002644 lines, ...`
fn lines(said: &str) -> Option<f64> {
    let (head, _) = said.split_once(" lines")?;
    head.rsplit(' ').next()?.parse().ok()
}

/// The last two names of a path; of a crate its own, as the folder around it is that of a registry.
fn short(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy();
    let parent = path.parent()?;
    let is_crate = parent.parent()?.ends_with("registry/src");
    let parent = parent.file_name()?.to_string_lossy();
    Some(if is_crate {
        name.into_owned()
    } else {
        format!("{parent}/{name}")
    })
}

/// Folders of code in Rust, C, C++, Go, TypeScript, JavaScript and Python that people use.
fn roots() -> Result<Vec<PathBuf>> {
    let mut roots = crates()?;
    let packages = node::packages()?.join("node_modules");
    roots.extend(PACKAGES.iter().map(|package| packages.join(package)));
    let go = cmd::output(cmd::command("go").args(["env", "GOROOT"]))?;
    roots.extend(["net", "go", "crypto"].map(|part| Path::new(go.trim()).join("src").join(part)));
    let python = "import sysconfig; print(sysconfig.get_paths()['stdlib'])";
    let python = cmd::output(cmd::command("python3").args(["-c", python]))?;
    roots.push(PathBuf::from(python.trim()));
    for root in &roots {
        ensure!(root.is_dir(), "{} is no folder", root.display());
    }
    Ok(roots)
}

fn crates() -> Result<Vec<PathBuf>> {
    let metadata = cmd::output(cmd::cargo().args(["metadata", "--locked", "--format-version=1"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata.get("packages").and_then(Value::as_array);
    let packages = packages.context("cargo tells no packages")?;
    let folder = |name: &str| {
        let named = |package: &&Value| package.get("name").and_then(Value::as_str) == Some(name);
        let package = packages.iter().find(named)?;
        let manifest = package.get("manifest_path").and_then(Value::as_str)?;
        Path::new(manifest).parent().map(Path::to_owned)
    };
    let mut folders = Vec::new();
    for name in CRATES {
        match folder(name) {
            Some(folder) => folders.push(folder),
            None => bail!("no package of ours is {name}"),
        }
    }
    Ok(folders)
}

const NODES: &str = "One recording keeps 1,048,576 contexts at most, and counts what is beyond them per function under \
`[folded]`; more nodes than that are in a file of many runs. *Ctrl-C*: a program makes three million calls along random paths \
through 64 functions, all probed with their ends; when it has made them, and the collector has had 5 s to catch up, it gets \
SIGINT, and the time is that until it has ended. *Written from memory*: `Genome::write` of a tree with 4,096 functions. \
*Merged*: `genome merge` of ten such files, of which no two have a path of more than one function in common.";

const PAGE: &str = "A stream of one million calls of the same program, one thread; `report run.stream --html`. *First draw*: from \
the navigation to the second frame after the page says that it has drawn, 1200 by 800, without a GPU.";

const SOURCES: &str =
    "`genome build --src` of folders with the code of others, in seven languages, from nothing.";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{lines, short};

    #[test]
    fn what_the_builder_says_is_read() {
        let said = "x.genome: 12 files (0 unchanged), 3002644 lines, 7 functions, 3 calls in 1.5 s\n1 of 2 call sites";
        assert_eq!(lines(said), Some(3_002_644.0));
        assert_eq!(lines("nothing"), None);
        assert_eq!(short(Path::new("/a/src/net")), Some("src/net".into()));
    }
}
