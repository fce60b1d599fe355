//! What attaching is asked for and what it answers. No logic.

use std::sync::Arc;
use std::time::Duration;

use super::super::calibrate::ProbeCosts;
use super::super::load::ProgramStats;
use super::super::uprobe_multi::ProbedFile;
use crate::event::{FuncId, Pid};
use crate::function::ExitStrategy;
use crate::input::Bound;

/// One function to probe.
#[derive(Clone, Debug)]
pub struct SiteRequest {
    /// Function; its number is the attach cookie.
    pub func: FuncId,
    /// The file it is in.
    pub file: Arc<ProbedFile>,
    /// File offset of the chosen site. The stack pointer there must be the one of the function's entry.
    pub offset: u64,
    /// The kernel single-steps the instruction at the site instead of emulating it: about ten times as dear in a VM.
    pub stepped: bool,
    /// How its end is to be seen.
    pub exit: ExitStrategy,
    /// File offsets of its `ret` instructions, for [`ExitStrategy::RetOffsets`].
    pub ret_offsets: Vec<u64>,
    /// Guess of how often it is called, relative to the others.
    pub heat: u8,
    /// The only process to watch, for files that strangers map too; `None` = whoever runs it, and the programs leave
    /// strangers alone at once.
    pub pid_filter: Option<Pid>,
}

/// Limits of an [`Attachments`](super::Attachments).
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Overhead allowed in percent of the targets' own work; `None` = no breaker.
    pub max_overhead_percent: Option<f64>,
    /// What a probe costs on this host.
    pub costs: ProbeCosts,
    /// About how many links to use. They close in parallel, but one after the other (60 to 100 ms each) when this
    /// process is killed: 16 are gone after about a second.
    pub max_links: usize,
    /// Most probes of the perf mechanism.
    pub max_perf_probes: usize,
    /// Whether the kernel's own pid filter can be trusted (`uprobe_multi`: from Linux 6.10; before, it compares threads
    /// and misses all but one). If not, filters are left to the programs, and strangers pay for a hit.
    pub trust_pid_filter: bool,
    /// How long a group is watched before the next goes in, when there is a breaker.
    pub settle: Duration,
    /// CPU time that a process of many uses in a tenth of a second, at least, if what is too dear is to be found in it before
    /// the others are attached to.
    pub pilot_works: Duration,
}

impl Default for AttachOptions {
    fn default() -> Self {
        Self {
            max_overhead_percent: None,
            costs: ProbeCosts::default(),
            max_links: 16,
            max_perf_probes: 500,
            trust_pid_filter: true,
            settle: Duration::from_millis(10),
            pilot_works: Duration::from_millis(2),
        }
    }
}

/// How far an attach is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Functions done (attached, refused or dropped).
    pub done: usize,
    /// Functions asked for.
    pub total: usize,
}

/// What an attach did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttachReport {
    /// Functions attached, also those that the breaker dropped again.
    pub attached: usize,
    /// Functions not attached, each with the reason.
    pub refused: Vec<(FuncId, String)>,
    /// Functions that the breaker dropped while others were still being attached.
    pub bounds: Vec<Bound>,
}

/// What was there to take off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetachReport {
    /// Functions that were still attached.
    pub functions: usize,
    /// Links closed.
    pub links: usize,
    /// How long it took.
    pub took: Duration,
    /// Sum over the call programs of the runs that the kernel skipped: lost events.
    pub recursion_misses: u64,
    /// The call programs one by one.
    pub programs: Vec<ProgramStats>,
}
