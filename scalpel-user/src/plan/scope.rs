//! `scope`: what was typed -> what will be recorded or decoded.

use std::path::PathBuf;

use std::time::Duration;

use crate::cli::{DecodeArgs, FollowArg, LiveArgs, ScopeArgs, ScopeCommand, SyntaxArg, TierArg};
use crate::event::Pid;

use super::words::Pattern;
use super::{CommandLine, PlanError, Target, globs, pattern};

/// `scope`, decided.
#[derive(Clone, Debug, PartialEq)]
pub enum ScopePlan {
    /// Decode a recorded trace.
    Decode(DecodePlan),
    /// Record calls.
    Live(Box<LivePlan>),
}

/// `scope` of a process, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct LivePlan {
    /// What to watch: one process, or a command.
    pub target: Target,
    /// The function.
    pub func: Pattern,
    /// Globs over mapped files; empty = the main program.
    pub libs: Vec<String>,
    /// Calls to record.
    pub calls: u64,
    /// How to see the instructions.
    pub tier: TierArg,
    /// Which callees are recorded.
    pub follow: FollowArg,
    /// Longest time that one call is stepped.
    pub budget: Duration,
    /// Ends the watch, if it has not ended before.
    pub duration: Option<Duration>,
    /// Dialect of the assembly.
    pub syntax: SyntaxArg,
    /// How it is shown.
    pub view: TraceView,
    /// Where the full assembly goes too.
    pub output: Option<PathBuf>,
    /// Where a Chrome trace goes too.
    pub chrome: Option<PathBuf>,
}

/// `scope decode`, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodePlan {
    /// The trace.
    pub trace: PathBuf,
    /// Code of a raw trace: files, and where each begins.
    pub images: Vec<(PathBuf, Option<u64>)>,
    /// Folders to look for files in.
    pub symfs: Vec<PathBuf>,
    /// Only this thread.
    pub tid: Option<u32>,
    /// Family, model and stepping of the processor that recorded a raw trace.
    pub processor: Option<[u16; 3]>,
    /// Dialect of the assembly.
    pub syntax: SyntaxArg,
    /// How it is shown.
    pub view: TraceView,
}

/// How a trace is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceView {
    /// A folded call tree.
    Tree,
    /// Each distinct instruction once.
    Full,
    /// Every step, as JSON.
    Json,
}

/// What was typed behind `scope`.
pub(super) fn plan(args: ScopeArgs) -> Result<ScopePlan, PlanError> {
    match args.command {
        Some(ScopeCommand::Decode(args)) => decode(args).map(ScopePlan::Decode),
        None => live(args.live).map(|plan| ScopePlan::Live(Box::new(plan))),
    }
}

fn live(args: LiveArgs) -> Result<LivePlan, PlanError> {
    let mut command = args.cmd.into_iter();
    let target = match (args.pid, command.next()) {
        (Some(pid), _) => Target::Pids(vec![Pid(pid)]),
        (None, Some(program)) => Target::Command(CommandLine {
            program,
            args: command.collect(),
        }),
        (None, None) => {
            return Err(PlanError::Missing(
                "what to watch: --pid PID, or -- CMD; a recorded trace: `scope decode FILE`".into(),
            ));
        }
    };
    let func = pattern("--func", args.func)?;
    Ok(LivePlan {
        target,
        func: func.ok_or_else(|| PlanError::Missing("which function: --func NAME".into()))?,
        libs: globs("--lib", args.lib)?,
        calls: args.calls,
        tier: args.tier,
        follow: args.follow_calls,
        budget: args.budget.0,
        duration: args.duration.map(|time| time.0),
        syntax: args.syntax,
        view: view(args.json, args.full),
        output: args.output,
        chrome: args.chrome,
    })
}

fn view(json: bool, full: bool) -> TraceView {
    match (json, full) {
        (true, _) => TraceView::Json,
        (_, true) => TraceView::Full,
        _ => TraceView::Tree,
    }
}

fn decode(args: DecodeArgs) -> Result<DecodePlan, PlanError> {
    Ok(DecodePlan {
        images: args
            .image
            .into_iter()
            .map(image)
            .collect::<Result<_, _>>()?,
        processor: args.processor.map(processor).transpose()?,
        view: view(args.json, args.full),
        trace: args.trace,
        symfs: args.symfs,
        tid: args.tid,
        syntax: args.syntax,
    })
}

/// `FILE@ADDR`; without the address, where the file itself says. A name may hold `@`.
fn image(text: String) -> Result<(PathBuf, Option<u64>), PlanError> {
    let Some((file, addr)) = text.rsplit_once('@') else {
        return Ok((text.into(), None));
    };
    match number(addr) {
        Some(addr) if !file.is_empty() => Ok((file.into(), Some(addr))),
        _ => Err(PlanError::Pattern {
            flag: "--image",
            reason: "it is FILE@ADDR, as in ./server@0x400000".into(),
            text,
        }),
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn processor(text: String) -> Result<[u16; 3], PlanError> {
    let numbers: Vec<u16> = text
        .split('/')
        .map_while(|word| word.parse().ok())
        .collect();
    match numbers.as_slice() {
        &[family, model, stepping] => Ok([family, model, stepping]),
        _ => Err(PlanError::Pattern {
            flag: "--processor",
            reason: "it is FAMILY/MODEL/STEPPING, as in 6/85/4".into(),
            text,
        }),
    }
}
