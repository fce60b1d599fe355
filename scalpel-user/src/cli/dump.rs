//! `dump`: where the threads of a process are.

use clap::Args;

/// `dump`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Nothing is stopped: a sleeping thread is read where it sleeps, a running one is sampled once.

Examples:
  sudo scalpel-ebpf dump -p 4711
  sudo scalpel-ebpf dump -p 4711 --merge        equal stacks once, with their number
  sudo scalpel-ebpf dump -p 4711 --json | jq '.threads[].frames[0].function'")]
pub struct DumpArgs {
    /// Process to look at.
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: u32,
    /// Only this thread of it.
    #[arg(long, value_name = "TID", value_parser = clap::value_parser!(u32).range(1..))]
    pub tid: Option<u32>,
    /// Show equal stacks once, with the number of their threads.
    #[arg(long)]
    pub merge: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "merge")]
    pub json: bool,
}
