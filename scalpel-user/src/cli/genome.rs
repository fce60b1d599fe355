//! `genome`: what exists beside what ran.

use clap::{Args, Subcommand};

use super::build::BuildArgs;
use super::overlay::{CheckArgs, DiffArgs, MatchArgs, MergeArgs, QueryArgs, ShowArgs};

/// `genome`.
#[derive(Args, Clone, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct GenomeArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: GenomeCommand,
}

/// The commands of `genome`.
#[derive(Clone, Debug, Subcommand)]
pub enum GenomeCommand {
    /// Find what exists in source trees and executables: functions, and the calls that text or code prove.
    Build(BuildArgs),
    /// Lay what ran over what exists: match rates, states, calls that only one side knows.
    Show(ShowArgs),
    /// Put the recordings of several files, and what exists, into one.
    Merge(MergeArgs),
    /// The same, and look for every function that ran among what exists; the result is kept in the file.
    Match(MatchArgs),
    /// Compare two recordings: calls, own and total time, with noise bounds; exit code 1 if something got worse.
    Diff(DiffArgs),
    /// Check match rate, coverage and unknown share against limits; exit code 1 if one is not met.
    Check(CheckArgs),
    /// Ask a genome in SQL, read-only.
    Query(QueryArgs),
}
