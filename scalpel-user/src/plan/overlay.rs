//! `genome show`, `merge`, `match`, `diff`, `check`, `query` and `cover`, decided.

use std::path::PathBuf;

use super::{PlanError, some_unless_zero};
use crate::cli::{
    CheckArgs, CoverArgs, CoverFormatArg, DiffArgs, MatchArgs, MergeArgs, OverlayArgs, QueryArgs,
};

/// What ran, laid over what exists.
#[derive(Clone, Debug, PartialEq)]
pub enum OverlayPlan {
    /// Match rates, states, calls.
    Show(LayPlan),
    /// Functions that never ran.
    Cover(CoverPlan),
    /// Limits.
    Check(LayPlan, Minima),
    /// Many files into one.
    Merge {
        /// Files to read.
        files: Vec<PathBuf>,
        /// File to write.
        output: PathBuf,
    },
    /// The same, and every function is looked for among what exists.
    Match {
        /// Files to read.
        files: Vec<PathBuf>,
        /// File to write.
        output: PathBuf,
    },
    /// Two recordings compared.
    Diff {
        /// To compare with.
        base: PathBuf,
        /// To judge.
        new: PathBuf,
        /// Growth that counts, as a share.
        threshold: f64,
        /// Growth that counts, as a share of all own time.
        least_share: f64,
        /// As JSON.
        json: bool,
        /// Most functions; `None` = all.
        limit: Option<usize>,
    },
    /// SQL.
    Query {
        /// File.
        file: PathBuf,
        /// One SELECT.
        sql: String,
        /// As JSON.
        json: bool,
    },
}

/// What to lay over what, and how to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayPlan {
    /// Files to read.
    pub files: Vec<PathBuf>,
    /// As JSON.
    pub json: bool,
    /// Most rows of a list; `None` = all.
    pub limit: Option<usize>,
}

/// How to tell what never ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoverPlan {
    /// What to lay over what.
    pub lay: LayPlan,
    /// Format.
    pub format: CoverFormatArg,
    /// File to write; `None`: stdout.
    pub output: Option<PathBuf>,
}

/// What must be reached, as shares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Minima {
    /// Match rate.
    pub least_match: Option<f64>,
    /// Share of the functions that could be seen and that ran.
    pub least_coverage: Option<f64>,
    /// Share without a name.
    pub most_unknown: Option<f64>,
}

pub(super) fn lay(args: OverlayArgs) -> LayPlan {
    LayPlan {
        files: args.files,
        json: args.json,
        limit: some_unless_zero(args.limit),
    }
}

const ENDINGS: [(&str, CoverFormatArg); 6] = [
    ("html", CoverFormatArg::Html),
    ("info", CoverFormatArg::Lcov),
    ("json", CoverFormatArg::Json),
    ("lcov", CoverFormatArg::Lcov),
    ("txt", CoverFormatArg::Text),
    ("xml", CoverFormatArg::Cobertura),
];

pub(super) fn cover(args: CoverArgs) -> Result<OverlayPlan, PlanError> {
    let of_name = |path: &PathBuf| {
        let ending = path.extension().unwrap_or_default();
        let known = ENDINGS.iter().find(|(known, _)| ending == *known);
        known.map(|(_, format)| *format).ok_or_else(|| {
            PlanError::Missing(format!(
                "the name {} tells no format: give --format",
                path.display()
            ))
        })
    };
    let format = match (args.overlay.json, args.format, &args.output) {
        (true, ..) => CoverFormatArg::Json,
        (false, Some(format), _) => format,
        (false, None, Some(path)) => of_name(path)?,
        (false, None, None) => CoverFormatArg::Text,
    };
    Ok(OverlayPlan::Cover(CoverPlan {
        lay: lay(args.overlay),
        format,
        output: args.output,
    }))
}

pub(super) fn check(args: CheckArgs) -> Result<OverlayPlan, PlanError> {
    let minima = Minima {
        least_match: args.min_match.map(|percent| percent / 100.0),
        least_coverage: args.min_coverage.map(|percent| percent / 100.0),
        most_unknown: args.max_unknown.map(|percent| percent / 100.0),
    };
    if minima == Minima::default() {
        return Err(PlanError::Missing(
            "what to check: give --min-match, --min-coverage or --max-unknown".into(),
        ));
    }
    Ok(OverlayPlan::Check(lay(args.overlay), minima))
}

pub(super) fn merge(args: MergeArgs) -> OverlayPlan {
    OverlayPlan::Merge {
        files: args.files,
        output: args.output,
    }
}

pub(super) fn match_(args: MatchArgs) -> OverlayPlan {
    OverlayPlan::Match {
        files: args.files,
        output: args.output,
    }
}

pub(super) fn diff(args: DiffArgs) -> OverlayPlan {
    OverlayPlan::Diff {
        base: args.base,
        new: args.new,
        threshold: args.threshold / 100.0,
        least_share: args.min_share / 100.0,
        json: args.json,
        limit: some_unless_zero(args.limit),
    }
}

pub(super) fn query(args: QueryArgs) -> OverlayPlan {
    OverlayPlan::Query {
        file: args.file,
        sql: args.sql,
        json: args.json,
    }
}
