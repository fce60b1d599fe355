//! `doctor`: what works here.

use clap::Args;

/// `doctor`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Exits with 1 if something blocks recording.

Examples:
  sudo scalpel-ebpf doctor
  sudo scalpel-ebpf doctor -p 4711      this process too: sandbox, shadow stack, Go, namespaces")]
pub struct DoctorArgs {
    /// Look at this process too.
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
