//! The Node.js probe beside coverage tools and a sampling profiler, on code that does nothing but call, on a real parser, and
//! on a server under load.
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::results::Section;
use crate::cmd;
use crate::probes::{node, python};

/// Calls of one round of `calls.js`.
const CALLS: f64 = 3_000_000.0;

const PROGRAMS: [(&str, &str); 4] = [
    ("3 million calls", "calls.js"),
    ("TypeScript parses lib.dom.d.ts", "typescript.js"),
    ("start of Node.js", START),
    ("Express, 1,000 requests", EXPRESS),
];

/// nyc looks at no package outside of the program's folder: it would have nothing to do there.
const EXPRESS: &str = "express.js";
const START: &str = "start.js";
const NYC: &str = "istanbul (nyc)";

/// How a program runs.
struct Way {
    name: &'static str,
    /// What stands before the program: options of Node.js, or a tool of the packages with its own.
    tool: &'static [&'static str],
    ours: Option<&'static str>,
}

const fn way(name: &'static str, tool: &'static [&'static str]) -> Way {
    Way {
        name,
        tool,
        ours: None,
    }
}

const fn ours(name: &'static str, mode: &'static str) -> Way {
    Way {
        name,
        tool: &[],
        ours: Some(mode),
    }
}

const WAYS: [Way; 7] = [
    way("plain", &[]),
    way("A/A: plain once more", &[]),
    ours("scalpel, each call, drained", "call"),
    ours("scalpel, counts", "count"),
    way(
        "c8",
        &[
            "c8/bin/c8.js",
            "--exclude-node-modules=false",
            "--reporter=none",
            "node",
        ],
    ),
    way("node --cpu-prof", &["--cpu-prof"]),
    way(
        NYC,
        &[
            "nyc/bin/nyc.js",
            "--silent",
            "--exclude-node-modules=false",
            "--exclude=",
            "node",
        ],
    ),
];

/// What all ways share.
struct Bench {
    node: PathBuf,
    probe: PathBuf,
    packages: PathBuf,
    collector: PathBuf,
    folder: TempDir,
}

/// Each way in turn, `rounds` times.
pub(super) fn run(rounds: usize) -> Result<Vec<Section>> {
    let bench = Bench {
        node: node::newest_enough()?,
        probe: node::build()?,
        packages: node::packages()?,
        collector: python::collector()?,
        folder: tempfile::tempdir()?,
    };
    bench.fill()?;
    let mut section = Section {
        title: "Node.js",
        about: ABOUT.into(),
        unit: "ms",
        ..Section::default()
    };
    for round in 1..=rounds {
        cmd::say(format_args!("node: round {round} of {rounds}"));
        for way in &WAYS {
            for (what, program) in PROGRAMS {
                if program == EXPRESS && way.name == NYC {
                    continue;
                }
                // A start is short, and scatters by more than the probe adds to it.
                let times = if program == START { 5 } else { 1 };
                for _ in 0..times {
                    let told = bench.launch(way, program)?;
                    section.add(&format!("{what}: {}", way.name), told.cpu_ms);
                    if let Some(wall) = told.wall_ms {
                        section.add(&format!("{what}, wall time: {}", way.name), wall);
                    }
                }
            }
        }
    }
    finish(&mut section);
    Ok(vec![section, bench.recorded(rounds)?])
}

/// Express through `record` itself: nothing in between is a stand-in.
const RECORDED: [(&str, Option<&str>); 4] = [
    ("plain", None),
    ("A/A: plain once more", None),
    ("recorded, each call", Some("call")),
    ("recorded, counts", Some("count")),
];

const ABOUT_RECORDED: &str = "The same server under `scalpel-ebpf record --no-kernel` (release build): 10,000 requests of five \
kinds by a client in a process of its own that keeps 20 under way, after a warm-up of 2,000; microseconds of wall time a \
request. Collector and client share the machine's processors with the server.";

const ABOUT: &str = "The same program plain, with the probe (raw TSC, a stand-in for the collector drains the lanes), and \
with each peer, in turn; CPU time of the process with all of its threads, as the program tells it. Calls and parsing are \
without the loading; the start is everything up to the first line of a program. The server's client is a process of its own \
that keeps 20 requests of five kinds under way, after a warm-up; where processors are shared, its wall time is theirs too. \
What a tool writes in the end is left out.";

impl Bench {
    /// Programs and their one package in a folder of their own: nyc looks at no other.
    fn fill(&self) -> Result<()> {
        let library = self.folder.path().join("node_modules/typescript/lib");
        fs::create_dir_all(&library)?;
        for name in ["typescript.js", "lib.dom.d.ts"] {
            let from = self.packages.join("node_modules/typescript/lib").join(name);
            // It names a source map that its package has not: nyc would leave such a file as it is.
            let text = fs::read_to_string(from)?.replace("//# sourceMappingURL=", "// ");
            fs::write(library.join(name), text)?;
        }
        for (_, name) in PROGRAMS {
            fs::copy(
                node::folder().join("bench").join(name),
                self.folder.path().join(name),
            )?;
        }
        Ok(())
    }

    /// The server's throughput, with and without.
    fn recorded(&self, rounds: usize) -> Result<Section> {
        cmd::build_release("scalpel-user", &["--bin", "scalpel-ebpf"])?;
        let mut section = Section {
            title: "Node.js: Express, recorded",
            about: ABOUT_RECORDED.into(),
            unit: "us a request",
            base: "plain",
            ..Section::default()
        };
        let mut lost = BTreeSet::new();
        for round in 1..=rounds {
            cmd::say(format_args!("recorded: round {round} of {rounds}"));
            for (name, mode) in RECORDED {
                // Milliseconds a thousand are microseconds each.
                let told = self.serve(mode)?;
                section.add(name, told.wall_ms.context("no wall time")?);
                lost.extend(told.lost);
            }
        }
        let lost: Vec<_> = lost.into_iter().collect();
        section.remarks.push(format!(
            "Lost, as the recordings' summaries tell it: {}.",
            lost.join("; ")
        ));
        Ok(section)
    }

    fn serve(&self, mode: Option<&str>) -> Result<Told> {
        let mut command = match mode {
            None => Command::new(&self.node),
            Some(mode) => {
                let recorder = cmd::target().join("release/scalpel-ebpf");
                let mut command = Command::new(std::path::absolute(recorder)?);
                command
                    .args([
                        "record",
                        "--no-kernel",
                        "--max-loss",
                        "100",
                        "--probe-mode",
                        mode,
                    ])
                    .args(["-o", "run.genome", "--"])
                    .arg(&self.node)
                    .env(
                        "SCALPEL_PROBES",
                        std::path::absolute(crate::probes::home())?,
                    );
                command
            }
        };
        command.arg(EXPRESS);
        self.ended(command)
    }

    fn launch(&self, way: &Way, program: &str) -> Result<Told> {
        let mut command = self.command(way);
        command.arg(program);
        self.ended(command)
    }

    /// Runs a program of the folder to its end.
    fn ended(&self, mut command: Command) -> Result<Told> {
        command
            .current_dir(self.folder.path())
            .env("SCALPEL_PACKAGES", self.folder.path())
            .env("NODE_PATH", self.packages.join("node_modules"))
            .stdin(Stdio::null());
        let output = command.output().with_context(|| format!("{command:?}"))?;
        let err = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("{command:?}: {err}");
        }
        told(&err).with_context(|| format!("{command:?} told no time: {err}"))
    }

    fn command(&self, way: &Way) -> Command {
        let mut command = if way.tool.is_empty() {
            under_collector(&self.collector, way.ours)
        } else {
            Command::new(&self.node)
        };
        if way.tool.is_empty() {
            command.arg(&self.node);
        }
        if way.ours.is_some() {
            let preload = self.probe.join("preload.js");
            command.env(
                "NODE_OPTIONS",
                format!("--require \"{}\"", preload.display()),
            );
        }
        for word in way.tool {
            if word.ends_with(".js") {
                command.arg(self.packages.join("node_modules").join(word));
            } else if *word == "node" {
                command.arg(&self.node);
            } else {
                command.arg(word);
            }
        }
        command
    }
}

fn under_collector(collector: &Path, mode: Option<&str>) -> Command {
    let mut command = Command::new(collector);
    command
        .args([
            "--quiet", "--tsc", "--slots", "1048576", "--lanes", "8", "--mode",
        ])
        .args([mode.unwrap_or("call"), "--"]);
    command
}

/// What a program says of itself.
#[derive(Debug, PartialEq)]
struct Told {
    cpu_ms: f64,
    wall_ms: Option<f64>,
    /// What the recording's summary says of losses.
    lost: Option<String>,
}

/// `{"ns":1234, ...}` in the last line that has it.
fn told(err: &str) -> Option<Told> {
    let line = err.lines().rfind(|line| line.starts_with("{\"ns\":"))?;
    let told: serde_json::Value = serde_json::from_str(line).ok()?;
    let ms = |key| told.get(key)?.as_f64().map(|ns| ns / 1e6);
    Some(Told {
        cpu_ms: ms("ns")?,
        wall_ms: ms("wall_ns"),
        lost: err
            .lines()
            .find_map(|line| line.strip_prefix("  lost "))
            .map(|lost| lost.trim().to_owned()),
    })
}

/// Ratios against plain, and what one event costs.
fn finish(section: &mut Section) {
    for (what, _) in PROGRAMS {
        for row in &mut section.rows {
            let Some((measured, way)) = row.name.split_once(": ") else {
                continue;
            };
            if measured.starts_with(what) && way != "plain" {
                row.base = Some(format!("{measured}: plain"));
            }
            if row.name == "3 million calls: scalpel, each call, drained" {
                row.target = "50 ns an event";
            } else if row.name == "start of Node.js: scalpel, each call, drained" {
                row.target = "< 10 ms more";
            }
            if row.name == "TypeScript parses lib.dom.d.ts: scalpel, counts" {
                row.target = "<= 1.3, below c8";
            }
        }
    }
    let median = |way: &str| {
        let name = format!("3 million calls: {way}");
        let row = section.rows.iter().find(|row| row.name == name)?;
        row.series.spread().map(|spread| spread.median)
    };
    if let (Some(ours), Some(plain)) = (median("scalpel, each call, drained"), median("plain")) {
        let event = (ours - plain) * 1e6 / (2.0 * CALLS);
        section.remarks.push(format!(
            "One event costs {event:.0} ns: the difference of the medians, by 6 million events."
        ));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_program_tells_is_found_among_what_tools_print() {
        let told = |err| super::told(err).map(|told| (told.cpu_ms, told.wall_ms));
        let err = "note\n{\"ns\":2e6}\n{\"ns\":3000000,\"wall_ns\":4500000,\"sum\":1}\nmore\n";
        assert_eq!(told(err), Some((3.0, Some(4.5))));
        assert_eq!(told("{\"ns\":2e6}"), Some((2.0, None)));
        assert_eq!(told("{\"wall_ns\":2e6}"), None);
    }
}
