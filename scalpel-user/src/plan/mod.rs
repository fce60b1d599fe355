//! What was typed -> what will be done. Pure: no file, clock, process or environment is looked at.
//!
//! Everything that one flag decides about another is decided here, once, so that a plan can be carried
//! out without looking at the command line again.

mod export;
mod fleeting;
mod graph;
mod overlay;
mod record;
mod returns;
mod scope;
mod target;
mod trigger;
pub mod words;

use std::path::PathBuf;

use clap_complete::Shell;

use crate::cli::{
    BuildArgs, ByArg, Cli, ColorArg, Command, GenomeCommand, ListArgs, ListKind, ReplayArgs,
    ReportArgs, SortArg, TreeArg,
};
use crate::event::{Pid, Tid};

pub use export::{CallsPart, ExportPlan};
pub use fleeting::{StatPlan, TopPlan};
pub use graph::{GraphPlan, GraphSource};
pub use overlay::{CoverPlan, LayPlan, Minima, OverlayPlan};
pub use record::{
    Attach, Choice, Destination, Exits, Measurement, Mode, Outputs, ProbeMode, RecordPlan, Runtimes,
};
pub use scope::{DecodePlan, LivePlan, ScopePlan, TraceView};
pub use target::{CommandLine, Target};
pub use trigger::Trigger;
use words::Pattern;

/// What will be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Record.
    Record(Box<RecordPlan>),
    /// Count, and show it at once.
    Stat(Box<StatPlan>),
    /// Show a recording while it is made.
    Top(Box<TopPlan>),
    /// Show a recording.
    Report(ReportPlan),
    /// Show one function between its callers and callees.
    Graph(Box<GraphPlan>),
    /// Write a recording for another program.
    Export(Box<ExportPlan>),
    /// Show or rebuild a recorded stream.
    Replay(ReplayPlan),
    /// Show the instructions of calls or of a trace.
    Scope(ScopePlan),
    /// Show the stacks of a process.
    Dump(DumpPlan),
    /// Lay what ran over what exists, and compare.
    Overlay(OverlayPlan),
    /// Find what exists.
    Build(BuildPlan),
    /// Be the guardian of another `scope`.
    Guardian,
    /// Read executables for another process of ours, without rights.
    Reader,
    /// Have the kernel account for programs, for another process of ours that has no right to.
    Meter,
    /// List.
    List(ListPlan),
    /// Examine this host, and a process.
    Doctor {
        /// Process to examine too.
        pid: Option<Pid>,
        /// As JSON.
        json: bool,
    },
    /// Print a completion script.
    Completions(Shell),
    /// Write the manual pages.
    Man(PathBuf),
}

/// How to talk to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voice {
    /// -1 quiet, 0 normal, 1 and 2 more.
    pub level: i8,
    /// When to colour.
    pub color: ColorArg,
}

/// Format of what goes to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// JSON.
    Json,
    /// CSV.
    Csv,
}

/// `report`, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportPlan {
    /// Recording to show.
    pub file: PathBuf,
    /// Format.
    pub format: Format,
    /// Order; `None` = what the recording has.
    pub sort: Option<SortArg>,
    /// What a row stands for.
    pub by: ByArg,
    /// Tree instead of rows.
    pub tree: Option<TreeArg>,
    /// What single calls took instead of sums.
    pub per_call: bool,
    /// What functions returned, too.
    pub returned: bool,
    /// Only these functions.
    pub func: Option<Pattern>,
    /// Only what these processes did.
    pub process: Option<String>,
    /// Most rows; `None` = all.
    pub limit: Option<usize>,
    /// Write a page here instead.
    pub html: Option<PathBuf>,
    /// Single calls in it.
    pub calls: CallsPart,
}

/// `dump`, decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpPlan {
    /// Process.
    pub pid: Pid,
    /// Only this thread.
    pub tid: Option<Tid>,
    /// Equal stacks once.
    pub merge: bool,
    /// As JSON.
    pub json: bool,
}

/// `genome build`, decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildPlan {
    /// Folders of sources.
    pub sources: Vec<PathBuf>,
    /// Executables.
    pub executables: Vec<PathBuf>,
    /// File to write.
    pub output: PathBuf,
}

/// `replay`, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayPlan {
    /// Stream to read.
    pub file: PathBuf,
    /// Only this process.
    pub pid: Option<Pid>,
    /// Only this thread.
    pub tid: Option<Tid>,
    /// From this many ns after the start.
    pub from_ns: u64,
    /// Up to this many ns after the start.
    pub to_ns: u64,
    /// Only calls of these functions, and below.
    pub func: Option<Pattern>,
    /// Outermost levels shown.
    pub depth: Option<u32>,
    /// Most calls; `None` = all.
    pub limit: Option<usize>,
    /// Write a genome here instead.
    pub output: Option<PathBuf>,
}

/// `list`, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ListPlan {
    /// What to list, and where.
    pub what: Listing,
    /// Which of it; `None` = all.
    pub pattern: Option<Pattern>,
    /// As JSON.
    pub json: bool,
}

/// What to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Functions.
    Functions(Place),
    /// Probe sites, with how ends would be seen.
    Sites(Place, Exits),
    /// Processes.
    Processes,
}

/// Where to look for functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file.
    File(PathBuf),
    /// What a process has mapped: its main program, or the files that match one of the globs.
    Process(Pid, Vec<String>),
}

/// What was typed cannot be meant.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A pattern does not parse.
    #[error("{flag} `{text}`: {reason}")]
    Pattern {
        /// Flag it was given with.
        flag: &'static str,
        /// What was typed.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two flags contradict each other.
    #[error("{0}")]
    Conflict(String),
    /// Something is missing.
    #[error("{0}")]
    Missing(String),
}

/// Decides what will be done.
pub fn plan(cli: Cli) -> Result<(Plan, Voice), PlanError> {
    let voice = Voice {
        level: if cli.global.quiet {
            -1
        } else {
            i8::try_from(cli.global.verbose).unwrap_or(i8::MAX)
        },
        color: cli.global.color,
    };
    let plan = match cli.command {
        Command::Record(args) => Plan::Record(Box::new(record::plan(*args)?)),
        Command::Stat(args) => Plan::Stat(Box::new(fleeting::stat(*args)?)),
        Command::Top(args) => Plan::Top(Box::new(fleeting::top(*args)?)),
        Command::Report(args) => Plan::Report(report(args)?),
        Command::Graph(args) => Plan::Graph(Box::new(graph::plan(*args)?)),
        Command::Export(args) => Plan::Export(Box::new(export::plan(args)?)),
        Command::Replay(args) => Plan::Replay(replay(args)?),
        Command::Scope(args) => Plan::Scope(scope::plan(*args)?),
        Command::Dump(args) => Plan::Dump(DumpPlan {
            pid: Pid(args.pid),
            tid: args.tid.map(Tid),
            merge: args.merge,
            json: args.json,
        }),
        Command::Cover(args) => Plan::Overlay(overlay::cover(args)?),
        Command::Genome(args) => genome(args.command)?,
        Command::Guardian => Plan::Guardian,
        Command::Reader => Plan::Reader,
        Command::Meter => Plan::Meter,
        Command::List(args) => Plan::List(list(args)?),
        Command::Doctor(args) => Plan::Doctor {
            pid: args.pid.map(Pid),
            json: args.json,
        },
        Command::Completions(args) => Plan::Completions(args.shell),
        Command::Man(args) => Plan::Man(args.dir),
    };
    Ok((plan, voice))
}

fn report(args: ReportArgs) -> Result<ReportPlan, PlanError> {
    if args.tree.is_some() && (args.csv || args.by != ByArg::Function) {
        return Err(PlanError::Conflict(
            "--tree shows functions, as text or --json: leave out --csv and --by".into(),
        ));
    }
    Ok(ReportPlan {
        file: args.file,
        format: match (args.json, args.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Text,
        },
        sort: args.sort,
        by: args.by,
        tree: args.tree,
        per_call: args.per_call,
        returned: args.return_values,
        func: pattern("--func", args.func)?,
        process: args.process,
        limit: some_unless_zero(args.limit),
        html: args.html,
        calls: CallsPart::of(args.from, args.to, None)?,
    })
}

fn genome(command: GenomeCommand) -> Result<Plan, PlanError> {
    Ok(Plan::Overlay(match command {
        GenomeCommand::Build(args) => return Ok(Plan::Build(build(args))),
        GenomeCommand::Show(args) => OverlayPlan::Show(overlay::lay(args.overlay)),
        GenomeCommand::Check(args) => overlay::check(args)?,
        GenomeCommand::Merge(args) => overlay::merge(args),
        GenomeCommand::Match(args) => overlay::match_(args),
        GenomeCommand::Diff(args) => overlay::diff(args),
        GenomeCommand::Query(args) => overlay::query(args),
    }))
}

fn build(args: BuildArgs) -> BuildPlan {
    BuildPlan {
        sources: args.src,
        executables: args.exe,
        output: args.output,
    }
}

fn replay(args: ReplayArgs) -> Result<ReplayPlan, PlanError> {
    let part = CallsPart::of(args.from, args.to, args.tid.map(Tid))?;
    Ok(ReplayPlan {
        file: args.file,
        pid: args.pid.map(Pid),
        tid: part.tid,
        from_ns: part.from_ns,
        to_ns: part.to_ns,
        func: pattern("--func", args.func)?,
        depth: args.depth,
        limit: some_unless_zero(args.limit),
        output: args.output,
    })
}

fn list(args: ListArgs) -> Result<ListPlan, PlanError> {
    let mut rest = args.rest.into_iter();
    let what = match args.what {
        ListKind::Processes if args.pid.is_some() => {
            return Err(PlanError::Conflict(
                "`list processes` takes a PATTERN, not --pid".into(),
            ));
        }
        ListKind::Processes => Listing::Processes,
        ListKind::Functions => Listing::Functions(place(args.pid, args.lib, &mut rest)?),
        ListKind::Sites => Listing::Sites(place(args.pid, args.lib, &mut rest)?, args.exits.into()),
    };
    let pattern = pattern("PATTERN", rest.next())?;
    match rest.next() {
        Some(extra) => Err(PlanError::Conflict(format!(
            "one pattern is enough: what is `{extra}`?"
        ))),
        None => Ok(ListPlan {
            what,
            pattern,
            json: args.json,
        }),
    }
}

/// With `--pid` there is no FILE, and the first word is the pattern.
fn place(
    pid: Option<u32>,
    lib: Vec<String>,
    rest: &mut impl Iterator<Item = String>,
) -> Result<Place, PlanError> {
    match pid {
        Some(pid) => globs("--lib", lib).map(|lib| Place::Process(Pid(pid), lib)),
        None => rest
            .next()
            .map(|file| Place::File(file.into()))
            .ok_or_else(|| {
                PlanError::Missing("where to look: give a FILE, or a process with --pid".into())
            }),
    }
}

fn pattern(flag: &'static str, text: Option<String>) -> Result<Option<Pattern>, PlanError> {
    text.map(|text| {
        text.parse()
            .map_err(|reason| PlanError::Pattern { flag, text, reason })
    })
    .transpose()
}

fn globs(flag: &'static str, texts: Vec<String>) -> Result<Vec<String>, PlanError> {
    for text in &texts {
        if let Err(error) = globset::Glob::new(text) {
            let reason = error.kind().to_string();
            return Err(PlanError::Pattern {
                flag,
                text: text.clone(),
                reason,
            });
        }
    }
    Ok(texts)
}

const fn some_unless_zero(limit: usize) -> Option<usize> {
    if limit == 0 { None } else { Some(limit) }
}

#[cfg(test)]
mod tests;
