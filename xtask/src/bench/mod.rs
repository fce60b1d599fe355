//! `cargo xtask bench`: ours, the peers and the floors in turn, on the same work, in one run.
//!
//! No figure is ever asserted: the page shows them with their spread, and the raw data lie beside it.
mod attach;
mod calls;
mod genome;
mod hours;
mod ingest;
mod lanes;
mod machine;
mod node;
mod numbers;
mod page;
mod pt;
mod python;
mod rates;
mod real;
mod results;
mod sampling;
mod scope;
mod sites;
mod symbols;
mod target;
mod tracer;
mod usage;
mod waits;

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::{apt, cmd, debs};
use results::Section;

/// What `bench` is given.
#[derive(Args)]
pub(crate) struct Options {
    /// Fewer rounds, to see that everything runs; writes nothing.
    #[arg(long)]
    quick: bool,
    /// Install missing peers without asking.
    #[arg(long)]
    yes: bool,
    /// Run only these parts and print them; writes nothing (repeatable).
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// So many rounds instead of each part's own number.
    #[arg(long, value_name = "N", conflicts_with = "quick")]
    rounds: Option<usize>,
    /// With --only: put what was measured in the place of what the page and its data have of these parts.
    #[arg(long, requires = "only", conflicts_with = "quick")]
    update: bool,
}

/// A section of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// One traced call, by first instruction and tracer.
    Calls,
    /// One counted call, with and without its times.
    Count,
    /// Functions with a cheap site and a safe exit, by binary.
    Sites,
    /// Rising call rates, with loss.
    Rates,
    /// Attach and detach of very many functions.
    Attach,
    /// From a recorded stream to a tree.
    Ingest,
    /// What an event in a lane costs, what reading it costs, and what small lanes lose.
    Lanes,
    /// Genomes of very many nodes, a page of a million calls, a million lines of code.
    Genome,
    /// Real servers under load, in each mode.
    Servers,
    /// Real programs from their first instruction to their last, in each mode.
    Commands,
    /// Sampling of PostgreSQL under pgbench beside perf.
    Sampling,
    /// What watching waits costs.
    Waits,
    /// Naming addresses of a large binary beside blazesym and perf.
    Symbols,
    /// Growth of memory and file over a quarter of an hour.
    Hours,
    /// The Node.js probe beside its peers.
    Node,
    /// Instruction scopes beside valgrind and gdb.
    Scope,
    /// Intel PT's decoding beside libipt's own.
    Pt,
    /// The Python probe beside profilers and coverage tools.
    Python,
}

/// Measures, prints, and (unless told otherwise) writes the page and its data.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut parts = Part::value_variants().iter();
    if parts.any(|part| wanted(options, *part) && part.attaches()) {
        prepare(options)?;
        if std::env::var_os(PROGRAM).is_none() {
            return again();
        }
    }
    let start = Instant::now();
    let mut sections = Vec::new();
    for &part in Part::value_variants()
        .iter()
        .filter(|part| wanted(options, **part))
    {
        for mut section in measure(part, options).with_context(|| format!("{part:?}"))? {
            if !options.only.is_empty() {
                section.measured = machine::moment(&part.name())?;
            }
            cmd::print(&section.page());
            sections.push(section);
        }
    }
    if options.update {
        update(&sections)?;
    }
    if !options.quick && options.only.is_empty() {
        write(&sections, start.elapsed().as_secs())?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Part {
    /// Whether it needs the collector's release build and the peers that attach; language probes run under a stand-in.
    const fn attaches(self) -> bool {
        !matches!(self, Self::Lanes | Self::Node | Self::Python)
    }

    /// As it is typed.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The release build, and what the other tracers need.
fn prepare(options: &Options) -> Result<()> {
    if !cmd::is_root() {
        bail!("the bench attaches probes: run it as root");
    }
    apt::ensure(&["bpftrace", "gdb", "gcc", "g++"], "the bench", options.yes)?;
    debs::download(debs::PROJECTS)?;
    cmd::build_release("scalpel-user", &["--bins", "--examples"])
}

/// Where the harness of the tests finds the program: the release build, for a bench.
const PROGRAM: &str = "SCALPEL_BIN";

/// Runs this again with [`PROGRAM`] set.
fn again() -> Result<ExitCode> {
    let mut command = cmd::command(std::env::current_exe()?);
    command
        .args(std::env::args_os().skip(1))
        .env(PROGRAM, cmd::target().join("release/scalpel-ebpf"));
    cmd::run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}

fn wanted(options: &Options, part: Part) -> bool {
    options.only.is_empty() || options.only.contains(&part)
}

fn measure(part: Part, options: &Options) -> Result<Vec<Section>> {
    let asked = options.rounds.or(options.quick.then_some(2));
    let rounds = |many: usize| asked.unwrap_or(many).max(1);
    let one = match part {
        Part::Calls => calls::run(rounds(5)),
        Part::Count => calls::counted(rounds(7)),
        Part::Sites => sites::run(),
        Part::Rates => rates::run(),
        Part::Attach => attach::run(rounds(3)),
        Part::Ingest => ingest::run(rounds(5)),
        Part::Lanes => return lanes::run(rounds(5)),
        Part::Genome => return genome::run(rounds(3), options.yes),
        Part::Servers => Ok(real::servers(rounds(3))),
        Part::Commands => real::commands(rounds(3), options.yes),
        Part::Sampling => sampling::run(rounds(3)),
        Part::Waits => waits::run(rounds(3)),
        Part::Symbols => symbols::run(rounds(5)),
        Part::Hours => hours::run(if options.quick { 2 } else { 16 }),
        Part::Node => return node::run(rounds(5)),
        Part::Scope => scope::run(rounds(7), options.yes),
        Part::Pt => pt::run(rounds(7), options.yes),
        Part::Python => return python::run(rounds(7), options.yes),
    };
    Ok(vec![one?])
}

/// Puts sections in their places on the page that there is.
fn update(sections: &[Section]) -> Result<()> {
    let (page, data) = (cmd::root().join(PAGE), cmd::root().join(DATA));
    let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let csv = fs::read_to_string(&data).with_context(|| data.display().to_string())?;
    fs::write(page, page::with_sections(&text, sections))?;
    fs::write(data, page::with_data(&csv, sections))?;
    Ok(())
}

const PAGE: &str = "docs/benchmarks.md";
const DATA: &str = "docs/data/benchmarks.csv";

fn write(sections: &[Section], seconds: u64) -> Result<()> {
    let mut page = format!("# Benchmarks\n\n{}\n", machine::about(seconds)?);
    let mut csv = String::from("section,what,round,value,unit\n");
    for section in sections {
        page += &section.page();
        page.push('\n');
        csv += &section.csv();
    }
    fs::create_dir_all(cmd::root().join("docs/data"))?;
    fs::write(cmd::root().join(PAGE), page.trim_end().to_owned() + "\n")?;
    fs::write(cmd::root().join(DATA), csv)?;
    Ok(())
}
