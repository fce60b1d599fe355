//! What tool and guardian say to each other: one JSON object a line, orders in, reports out.
use serde::{Deserialize, Serialize};

use crate::pt::live::Pmu;
use crate::trace::Trace;

/// From the tool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Trace a process; the first order.
    Seize {
        /// The process.
        pid: u32,
        /// It has not executed its program yet: tell when the program's first instruction is next, and hold it there.
        held: bool,
    },
    /// Wait for calls, and record them.
    Arm(Arm),
    /// The program that began is not the one: wait for the next one.
    Next,
}

/// Which calls, and what of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Arm {
    /// Addresses where the function begins: one, or few where it exists more than once.
    pub entries: Vec<u64>,
    /// Ranges of addresses whose instructions are recorded; what runs elsewhere runs at full speed. None: everything.
    pub followed: Vec<(u64, u64)>,
    /// How many calls.
    pub calls: u64,
    /// The process is a Go program: it takes a stray SIGURG for its own.
    pub go: bool,
    /// How long one call may be stepped.
    pub budget_ns: u64,
    /// How many instructions of one call may be stepped.
    pub budget_steps: u64,
    /// What the processor records itself; none: calls are stepped.
    pub hardware: Option<Hardware>,
}

/// How a processor records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hardware {
    /// Intel PT, by this event source.
    Pt(Pmu),
    /// Branch records, sampled.
    Lbr,
}

/// From the guardian.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// The process is traced.
    Seized {
        /// Its threads.
        threads: usize,
    },
    /// The program's first instruction is next: the process is held until it is armed, or told to go on.
    Began,
    /// Calls are waited for.
    Armed {
        /// Threads that are watched.
        threads: usize,
    },
    /// A call was recorded.
    Call(Box<Call>),
    /// The last report.
    Ended {
        /// Why.
        why: End,
        /// Calls that were seen and not recorded, because another one was being recorded.
        passed: u64,
        /// Calls of which the first instruction was missed.
        late: u64,
    },
    /// It cannot be done; the last report.
    Refused {
        /// Whether somebody else, or with other rights, could.
        gate: Gate,
        /// What stands in the way.
        why: String,
    },
}

/// What stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gate {
    /// A right is missing, or the process is somebody else's.
    Permission,
    /// The process is not there.
    Gone,
    /// This machine or process cannot be scoped.
    System,
}

/// Why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// All calls that were asked for are recorded.
    Calls,
    /// The process ended.
    Exited,
    /// The process executed another program.
    Replaced,
    /// The tool said so, by its end.
    Asked,
}

/// One recorded call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The thread.
    pub tid: u32,
    /// When it was called, `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// When it returned, or the recording of it ended.
    pub end_ns: u64,
    /// What ran.
    pub trace: Trace,
}
