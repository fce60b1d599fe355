//! Sampling at 99 Hz of PostgreSQL under pgbench: what BPF programs and collector take of the target's CPU time.
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use scalpel_tests::real::postgres::Server;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::scalpel::Record;
use serde_json::Value;

use super::results::Section;
use super::usage::{family, memory_mib, threads_ns};
use crate::{apt, cmd};

/// Clients of pgbench, each with a backend.
const CLIENTS: &str = "32";
/// A window of the recording, once all backends are there and what is read at the beginning is read.
const SETTLES: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_secs(30);

/// Both, in turn, `rounds` times.
pub(super) fn run(rounds: usize) -> Result<Section> {
    let programs = Programs::default();
    let server = Server::start(&programs)?;
    server.run("pgbench", &["-i", "-q", "-s", "10", "postgres"])?;
    let mut section = Section {
        title: "Sampling: PostgreSQL under pgbench",
        about: format!(
            "99 samples a second of a PostgreSQL server with all its processes, under {CLIENTS} clients of `pgbench` (TPC-B, no \
fsync). A window of {} s of the recording, {} s after it began: CPU time of the collector's threads, and of the BPF programs as the \
kernel accounts it for a tenth of the time (`kernel.bpf_stats_enabled`), as a share of the CPU time of all processes of the \
server in the window. *From the first to the last*: everything that the collector used, attaching, naming and writing \
included, against the server's CPU time in the window. What sampling itself costs in the kernel is in the server's time, \
for perf's process as well. The programs run at each switch of a thread of the server, which {CLIENTS} clients on few processors \
make very many of; perf asks for none of that here.",
            WINDOW.as_secs(),
            SETTLES.as_secs(),
        ),
        unit: "% of the server's CPU time, or MiB",
        ..Section::default()
    };
    for round in 1..=rounds {
        cmd::say(format_args!("sampling: round {round} of {rounds}"));
        ours(&server, &mut section)?;
        if apt::exists("perf") {
            perf(&server, &mut section)?;
        }
    }
    for (row, target) in [(SUM, "< 0.5"), (MEMORY, "< 100")] {
        if let Some(row) = section.rows.iter_mut().find(|other| other.name == row) {
            row.target = target;
        }
    }
    server.stop()?;
    Ok(section)
}

const SUM: &str = "scalpel: BPF programs and collector";
const MEMORY: &str = "scalpel: most memory, MiB";

fn ours(server: &Server<'_>, section: &mut Section) -> Result<()> {
    let summary = server.folder().join("summary.json");
    let begun = Instant::now();
    let mut recording = Record::into(server.folder())
        .args(["--mode", "sample", "-s", "--summary"])
        .args([summary.as_os_str()])
        .attach(server.pid())?;
    let collector = recording.running().pid();
    let load = Load::start(server)?;
    std::thread::sleep(SETTLES);
    let (target, own) = window(server, collector)?;
    let memory = memory_mib(collector, "VmHWM")?;
    let recorded = recording.stop()?;
    let lasted = begun.elapsed();
    load.end()?;
    ensure!(
        matches!(recorded.ended.code(), 0 | 5),
        "{}",
        recorded.ended.stderr
    );
    let summary: Value = serde_json::from_str(&std::fs::read_to_string(&summary)?)?;
    let number = |path: &str| summary.pointer(path).and_then(Value::as_f64);
    let programs = number("/overhead/programs_ns").context("no programs_ns in the summary")?;
    let all = number("/overhead/collector_cpu_ns").context("no collector_cpu_ns")?;
    let programs = programs * WINDOW.as_secs_f64() / lasted.as_secs_f64();
    let percent = |ns: f64| 100.0 * ns / target;
    section.add("scalpel: BPF programs", percent(programs));
    section.add("scalpel: collector, while it records", percent(own));
    section.add(SUM, percent(programs + own));
    section.add(
        "scalpel: collector, from the first to the last",
        percent(all),
    );
    section.add(MEMORY, memory);
    Ok(())
}

fn perf(server: &Server<'_>, section: &mut Section) -> Result<()> {
    let load = Load::start(server)?;
    std::thread::sleep(SETTLES);
    let pids: Vec<String> = family(server.pid())?.iter().map(u32::to_string).collect();
    let mut perf = cmd::command("perf");
    perf.args(["record", "-q", "-F", "99", "-g", "-o"])
        .arg(server.folder().join("perf.data"))
        .args(["-p", &pids.join(",")]);
    let mut perf = Other(perf.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    std::thread::sleep(Duration::from_secs(3));
    let (target, own) = window(server, perf.0.id())?;
    let memory = memory_mib(perf.0.id(), "VmHWM")?;
    kill_process(pid_of(&perf.0)?, Signal::INT)?;
    perf.0.wait()?;
    load.end()?;
    section.add("perf record -F 99 -g: its process", 100.0 * own / target);
    section.add("perf record -F 99 -g: most memory, MiB", memory);
    Ok(())
}

/// CPU time in ns of the server's processes and of `tracer` in a window.
fn window(server: &Server<'_>, tracer: u32) -> Result<(f64, f64)> {
    let pids = family(server.pid())?;
    let used = || pids.iter().map(|&pid| threads_ns(pid)).sum::<Result<u64>>();
    let (target, own) = (used()?, threads_ns(tracer)?);
    std::thread::sleep(WINDOW);
    let (target, own) = (used()? - target, threads_ns(tracer)? - own);
    ensure!(target > 0, "the server did nothing");
    Ok((target as f64, own as f64))
}

/// pgbench at work.
struct Load<'a> {
    _server: &'a Server<'a>,
    client: scalpel_tests::child::Running,
}

impl<'a> Load<'a> {
    fn start(server: &'a Server<'a>) -> Result<Self> {
        let args = ["-n", "-c", CLIENTS, "-T", "100000", "postgres"];
        Ok(Self {
            client: server.start_client("pgbench", &args)?,
            _server: server,
        })
    }

    /// It does not end by itself, and its backends go with it.
    fn end(mut self) -> Result<()> {
        ensure!(self.client.is_alive()?, "pgbench ended by itself");
        Ok(())
    }
}

/// Ends with us.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn pid_of(child: &Child) -> Result<Pid> {
    Pid::from_raw(i32::try_from(child.id())?).context("no pid")
}
