//! When counters are read, and whose they are.
//!
//! Cells name addresses, which mean what the process has mapped: so a process's cells are read before its exec is told to
//! the session, and those of the program that it executed only afterwards.

use std::time::{Duration, Instant};

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use super::now_mono;
use crate::event::{Control, FuncId, Pid};
use crate::input::Counts;
use crate::kernel::Kernel;
use crate::kernel::counts::CountReader;

/// First and last interval between two readings. In between it grows with the windows of the result, of which there are at
/// most 256: a day's stream stays small.
const FIRST: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(60);
const WINDOWS: u32 = 256;

/// Counters that are read.
pub(super) struct Counted {
    reader: CountReader,
    /// How many programs each process has executed, as far as the session was told.
    execs: FxHashMap<Pid, u32>,
    began: Instant,
    read: Instant,
}

impl Counted {
    /// Counting begins now, in `pids` and in what they fork.
    pub(super) fn begin(kernel: &Kernel, pids: &[Pid]) -> Result<Self> {
        Ok(Self {
            reader: CountReader::map(kernel, now_mono())?,
            execs: pids.iter().map(|&pid| (pid, 0)).collect(),
            began: Instant::now(),
            read: Instant::now(),
        })
    }

    /// What was counted, if it is time to look.
    pub(super) fn due(&mut self) -> Option<Counts> {
        let interval = (self.began.elapsed() / WINDOWS).clamp(FIRST, LAST);
        (self.read.elapsed() >= interval).then(|| self.read())
    }

    /// What was counted before `control`, if that changes what addresses mean.
    pub(super) fn before(&mut self, control: &Control) -> Option<Counts> {
        match control {
            Control::Exec { pid, .. } if self.execs.contains_key(pid) => Some(self.read()),
            _ => None,
        }
    }

    /// Takes note of births and execs, once the session knows of them.
    pub(super) fn after(&mut self, control: &Control) {
        match control {
            Control::Fork { parent, child, .. } if parent != child => {
                self.execs.insert(*child, 0);
            }
            Control::Exec { pid, .. } => *self.execs.entry(*pid).or_default() += 1,
            _ => {}
        }
    }

    /// All that is left. Calls without a cell are charged to `main`.
    pub(super) fn last(
        &mut self,
        main: Pid,
        probed: impl Iterator<Item = FuncId>,
        hits: impl Fn(FuncId) -> u64,
    ) -> Counts {
        let mut counts = self.reader.read(now_mono(), |_pid, _execs| true);
        let probed: FxHashSet<FuncId> = probed.collect();
        let missing = self.reader.without_cell(main, probed.into_iter(), hits);
        counts.edges.extend(missing);
        counts
    }

    /// What was counted until now.
    pub(super) fn now(&mut self) -> Counts {
        self.read()
    }

    fn read(&mut self) -> Counts {
        self.read = Instant::now();
        let execs = &self.execs;
        let knows = |pid: Pid, programs: u32| {
            execs
                .get(&pid)
                .is_some_and(|known| known % 1024 == programs)
        };
        self.reader.read(now_mono(), knows)
    }
}
