//! `scope`: the exact instructions of one region, live or recorded elsewhere.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `scope`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct ScopeArgs {
    /// What is done with a trace that is there already.
    #[command(subcommand)]
    pub command: Option<ScopeCommand>,
}

/// What is done with a trace that is there already.
#[derive(Clone, Debug, Subcommand)]
pub enum ScopeCommand {
    /// Decode a hardware trace that standard tools recorded, here or on another machine.
    Decode(DecodeArgs),
}

/// `scope decode`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf scope decode perf.data --symfs ./sysroot
  scalpel-ebpf scope decode trace-bundle/ --json > trace.json
  scalpel-ebpf scope decode pt.bin --image ./server@0x400000 --image ./jit.bin@0x7f0000000000

Reads perf.data with Intel PT or with branch stacks, LLDB trace bundles (the folder or its trace.json), and raw Intel PT.")]
pub struct DecodeArgs {
    /// The trace: a perf.data, a bundle's folder, or raw Intel PT.
    #[arg(value_name = "FILE|DIR")]
    pub trace: PathBuf,
    /// Code for a raw trace: an ELF file or plain bytes, and the address where it begins; may be repeated.
    #[arg(long, value_name = "FILE@ADDR")]
    pub image: Vec<String>,
    /// Folder to look for the programs and libraries in, by path and by build-id; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub symfs: Vec<PathBuf>,
    /// Only this thread.
    #[arg(long, value_name = "TID")]
    pub tid: Option<u32>,
    /// Processor that recorded a raw trace, for its errata: FAMILY/MODEL/STEPPING.
    #[arg(long, value_name = "F/M/S")]
    pub processor: Option<String>,
    /// Show each distinct instruction with how often it ran, in place of the folded call tree.
    #[arg(long, conflicts_with = "json")]
    pub full: bool,
    /// Dialect of the assembly.
    #[arg(long, value_name = "WHICH", default_value = "intel")]
    pub syntax: SyntaxArg,
    /// Print JSON: every step in order.
    #[arg(long)]
    pub json: bool,
}

/// Dialect of the assembly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SyntaxArg {
    /// `mov rax, [rdi]`
    #[default]
    Intel,
    /// `mov (%rdi), %rax`
    Att,
}
