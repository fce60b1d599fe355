//! `scope`: what was typed -> what will be decoded.

use std::path::PathBuf;

use crate::cli::{DecodeArgs, ScopeArgs, ScopeCommand, SyntaxArg};

use super::PlanError;

/// `scope`, decided.
#[derive(Clone, Debug, PartialEq)]
pub enum ScopePlan {
    /// Decode a recorded trace.
    Decode(DecodePlan),
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

pub(super) fn plan(args: ScopeArgs) -> Result<ScopePlan, PlanError> {
    match args.command {
        Some(ScopeCommand::Decode(args)) => decode(args).map(ScopePlan::Decode),
        None => Err(PlanError::Missing(
            "what to show: `scope decode FILE`".into(),
        )),
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
        view: match (args.json, args.full) {
            (true, _) => TraceView::Json,
            (_, true) => TraceView::Full,
            _ => TraceView::Tree,
        },
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
    numbers
        .try_into()
        .map_err(|_: Vec<u16>| PlanError::Pattern {
            flag: "--processor",
            reason: "it is FAMILY/MODEL/STEPPING, as in 6/85/4".into(),
            text,
        })
}
