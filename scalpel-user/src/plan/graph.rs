//! `graph`, decided.

use std::path::PathBuf;

use super::words::Pattern;
use super::{PlanError, RecordPlan, fleeting, pattern, some_unless_zero};
use crate::cli::{GraphArgs, SortArg};

/// `graph`, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphPlan {
    /// The function.
    pub func: Pattern,
    /// Where from.
    pub source: GraphSource,
    /// Only calls that these led to.
    pub caller: Option<Pattern>,
    /// Levels each way; `None` = all.
    pub depth: Option<usize>,
    /// What took less is summed up.
    pub min_ns: u64,
    /// What weighs; `None` = CPU time with callees.
    pub sort: Option<SortArg>,
    /// Most nodes of a tree; `None` = all.
    pub limit: Option<usize>,
}

/// Where a graph comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphSource {
    /// A recording.
    File(PathBuf),
    /// One that is made for it.
    Live(Box<RecordPlan>),
}

pub(super) fn plan(args: GraphArgs) -> Result<GraphPlan, PlanError> {
    let func = pattern("FUNC", Some(args.func))?;
    let is_live = !args.target.pid.is_empty()
        || args.target.comm.is_some()
        || !args.target.command.is_empty();
    let source = if is_live {
        let duration = args.duration.map(|time| time.0);
        GraphSource::Live(Box::new(fleeting::watching(args.target, duration)?))
    } else {
        GraphSource::File(args.file)
    };
    Ok(GraphPlan {
        func: func.ok_or_else(|| PlanError::Missing("which function".into()))?,
        source,
        caller: pattern("--caller", args.caller)?,
        depth: args.depth.map(|levels| levels as usize),
        min_ns: args.min_time.map_or(0, |time| {
            u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX)
        }),
        sort: args.sort,
        limit: some_unless_zero(args.limit),
    })
}
