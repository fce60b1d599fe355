//! The collector's end of in-process probes: gives each process that says HELLO a segment of shared memory, and reads what
//! its threads write there.
//!
//! Three threads: one answers HELLOs, one reads the segments, one renews their leases. Everything that a process can write
//! (a name, an offset, a number, a frame) is hostile: it can be wrong in its own part of the result, and nowhere else.
//! Knows processes; must not know the kernel's stream, the session or the genome.

mod breaker;
mod clock;
mod cpu;
mod drain;
mod frames;
mod functions;
#[cfg(any(test, fuzzing))]
mod hostile;
mod lane;
mod layout;
mod lease;
mod memory;
mod names;
mod peer;
mod reader;
mod segment;
mod serve;
mod shared;
mod socket;
mod takeover;
mod wire;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use rustc_hash::FxHashSet;
use scalpel_common::segment::{clock as clock_number, modes};

use crate::event::{FuncId, Pid};
use crate::function::FunctionTable;
use crate::input::{Feed, Input};
use breaker::Off;
use clock::LaneClock;
use drain::Drain;
use frames::Frames;
use functions::Functions;
use lease::{LeaseClock, Renewal};
use segment::{Budget, Settings};
use serve::{Server, State};
use shared::{Sequences, Shared};
use socket::Socket;

pub use breaker::event_cost_ns;
pub use drain::ProbeReport;
pub use names::{NameRecord, parse as parse_name};
pub use socket::Place;
pub use takeover::{Takeover, is_in};
pub use wire::{Frame, FrameError, Hello, next as next_frame};

/// Memory for all segments where nothing else is asked for.
pub const DEFAULT_MEMORY: u64 = 256 << 20;

/// Smallest memory that is worth a recording.
pub const SMALLEST_MEMORY: u64 = layout::SMALLEST_BUDGET;

/// Probes cannot be listened to.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The socket could not be opened.
    #[error("the socket for probes cannot be opened")]
    Socket(#[source] io::Error),
    /// A thread could not be started.
    #[error("a thread for probes cannot be started")]
    Thread(#[source] io::Error),
}

/// What to listen to.
#[derive(Debug)]
pub struct Options {
    /// UUID of the recording.
    pub uuid: uuid::Uuid,
    /// Whose probes may take part, with their descendants.
    pub pids: Vec<Pid>,
    /// Where the socket will be.
    pub place: Place,
    /// User and group of the targets.
    pub owner: (u32, u32),
    /// Memory for all segments, in bytes.
    pub memory: u64,
    /// Bits of [`modes`].
    pub modes: u8,
    /// Settings for probes, by name.
    pub settings: Vec<(String, String)>,
    /// Functions that have an id already.
    pub functions: FunctionTable,
    /// Whose ends of threads the kernel's stream tells.
    pub ends_told_of: EndsTold,
}

/// For which processes somebody else tells when a thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndsTold {
    /// None.
    Nobody,
    /// The targets.
    Targets,
    /// The targets and all their descendants.
    All,
}

/// A recording's probes. Dropping it ends them.
#[derive(Debug)]
pub struct Probes {
    path: PathBuf,
    off: Off,
    stop_serving: Arc<AtomicBool>,
    stop_draining: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
    drain: Option<JoinHandle<ProbeReport>>,
    renewal: Option<Renewal>,
    takeovers: Vec<Takeover>,
}

impl Probes {
    /// Opens the socket and begins to listen.
    pub fn start(options: Options, session: SyncSender<(Feed, Input)>) -> Result<Self, ProbeError> {
        let socket = Socket::open(options.place, options.owner).map_err(ProbeError::Socket)?;
        let path = socket.path().to_owned();
        let clock = drain::lane_clock();
        let lease_clock = lease_clock(&clock);
        let leased = serve::Leased::default();
        let (peers, newcomers) = channel();
        let budget = Arc::new(Budget::new(options.memory));
        let off = Off::default();
        let (stop_serving, stop_draining) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let renewal =
            Renewal::start(lease_clock, Arc::clone(&leased)).map_err(ProbeError::Thread)?;
        let mut server = Server {
            socket,
            watched: peer::Watched {
                pids: options.pids.clone(),
                socket: path.clone(),
            },
            settings: Settings {
                clock: lease_clock.kind,
                modes: options.modes,
                recording: *options.uuid.as_bytes(),
            },
            options: options.settings,
            budget: Arc::clone(&budget),
            lease: lease_clock,
            leased,
            peers,
            session: session.clone(),
            stop: Arc::clone(&stop_serving),
            state: State::default(),
        };
        // Before a segment is made ahead: what is there already has the first claim to the budget.
        let takeovers = server.take_over();
        let drain = Drain {
            newcomers,
            readers: Vec::new(),
            frames: Frames::new(budget),
            shared: Shared {
                functions: Functions::after(options.functions),
                sequences: Sequences::default(),
                clock,
                now: 0,
                ends: options.ends_told_of,
                targets: options.pids,
                off: FxHashSet::default(),
            },
            counts_only: options.modes == modes::COUNT,
            off: off.clone(),
            off_seen: 0,
            session,
            stop: Arc::clone(&stop_draining),
            report: ProbeReport::default(),
            counted: Instant::now(),
            told_losses: Vec::new(),
        };
        let spawn = |name: &str| std::thread::Builder::new().name(name.into());
        let server = spawn("scalpel-hello")
            .spawn(move || server.run())
            .map_err(ProbeError::Thread)?;
        let drain = spawn("scalpel-lanes")
            .spawn(move || drain.run())
            .map_err(ProbeError::Thread)?;
        Ok(Self {
            path,
            off,
            stop_serving,
            stop_draining,
            server: Some(server),
            drain: Some(drain),
            renewal: Some(renewal),
            takeovers,
        })
    }

    /// Where probes say HELLO.
    pub fn socket(&self) -> &Path {
        &self.path
    }

    /// Processes whose probes were loaded for an earlier recording, and what came of them.
    pub fn takeovers(&self) -> &[Takeover] {
        &self.takeovers
    }

    /// From now on these functions write nothing, in any process.
    pub fn switch_off(&self, funcs: &[FuncId]) {
        self.off.add(funcs);
    }

    /// Ends the handshakes, reads everything once more and ends. Somebody has to take the inputs meanwhile.
    pub fn finish(mut self) -> ProbeReport {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<ProbeReport> {
        self.stop_serving.store(true, Ordering::Release);
        if let Some(server) = self.server.take() {
            let _joined = server.join();
        }
        self.stop_draining.store(true, Ordering::Release);
        let report = self.drain.take().and_then(|drain| drain.join().ok());
        self.renewal = None;
        report
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let _report = self.end();
    }
}

/// Reads a segment whose process does what `bytes` say; for the fuzzer.
#[cfg(fuzzing)]
pub fn hostile_segment(bytes: &[u8]) {
    hostile::hostile_segment(bytes);
}

fn lease_clock(clock: &LaneClock) -> LeaseClock {
    match clock {
        LaneClock::Monotonic => LeaseClock::new(clock_number::MONOTONIC, 1.0),
        LaneClock::Ticks(line) => LeaseClock::new(clock_number::TSC, line.ticks_a_ns()),
    }
}

#[cfg(test)]
mod tests;
