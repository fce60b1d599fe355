//! Call sites: the places in sources that open scopes. Each has one slot for ever, with what all its passes took, and a
//! budget for all of them, so that a scope in a loop stays cheap. It knows nothing of how scopes record.
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use crate::scope::{MOST_TRAPS, off};

/// Traps that one call site may take in all its passes.
const SITE_TRAPS: u64 = 10 * MOST_TRAPS;
/// Time that traced code may run in all passes of one call site.
const SITE_TIME: Duration = Duration::from_secs(10);
/// The same for all sites of a process.
const PROCESS_TRAPS: u64 = 100 * MOST_TRAPS;
const PROCESS_TIME: Duration = Duration::from_secs(60);
/// Call sites with a slot of their own. Sources can be made while a program runs; from here on they share one slot.
const MOST_SITES: usize = 10_000;
/// How often the table is tried for. Whoever holds it longer is gone: this process was forked from the holder's.
const PATIENCE: u32 = 1_000;

/// A place in the source that opens scopes.
#[derive(Clone, Copy, Debug)]
pub struct Site(&'static Slot);

#[derive(Debug)]
struct Slot {
    file: &'static str,
    line: u32,
    column: u32,
    passes: AtomicU64,
    traps: AtomicU64,
    time_ns: AtomicU64,
}

/// What all passes of a site took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Scopes that were opened, skipped ones with them.
    pub passes: u64,
    /// Traps.
    pub traps: u64,
    /// What their threads ran between open and close, where they took traps.
    pub time: Duration,
}

type Key = (&'static str, u32, u32);
static SITES: LazyLock<Mutex<HashMap<Key, &'static Slot>>> = LazyLock::new(Mutex::default);
static PROCESS: Slot = Slot::new("(this process)", 0, 0);
static OTHERS: Slot = Slot::new("(other call sites)", 0, 0);

impl Site {
    /// The caller's place in a Rust source. None while scopes are off: they cost nothing then.
    #[track_caller]
    #[must_use]
    pub fn here() -> Self {
        if off() {
            return Self::nowhere();
        }
        let place = Location::caller();
        Self::at(place.file(), place.line(), place.column())
    }

    /// A place in any source; line and column are 0 where they are not known.
    #[must_use]
    pub fn at(file: &str, line: u32, column: u32) -> Self {
        // After a fork in mid-use nobody gives the table back: such a site counts with the others.
        let Some(mut sites) = sites() else {
            return Self(&OTHERS);
        };
        let known: &HashMap<(&str, u32, u32), &'static Slot> = &sites;
        if let Some(slot) = known.get(&(file, line, column)) {
            return Self(slot);
        }
        if sites.len() >= MOST_SITES {
            return Self(&OTHERS);
        }
        let file: &'static str = Box::leak(file.into());
        let slot: &'static Slot = Box::leak(Box::new(Slot::new(file, line, column)));
        sites.insert((file, line, column), slot);
        Self(slot)
    }

    /// No place: for scopes that are off.
    #[must_use]
    pub fn nowhere() -> Self {
        Self(&OTHERS)
    }

    /// All sites of this process together.
    #[must_use]
    pub fn process() -> Self {
        Self(&PROCESS)
    }

    /// What all passes took.
    #[must_use]
    pub fn totals(self) -> Totals {
        Totals {
            passes: self.0.passes.load(Ordering::Relaxed),
            traps: self.0.traps.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.0.time_ns.load(Ordering::Relaxed)),
        }
    }

    /// Counts a pass, and says why it may not record.
    pub(crate) fn pass(self) -> Result<(), String> {
        self.0.passes.fetch_add(1, Ordering::Relaxed);
        within(self, SITE_TRAPS, SITE_TIME)?;
        within(Self(&PROCESS), PROCESS_TRAPS, PROCESS_TIME)
    }

    /// Adds what a pass took.
    pub(crate) fn charge(self, traps: u64, time: Duration) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for slot in [self.0, &PROCESS] {
            slot.traps.fetch_add(traps, Ordering::Relaxed);
            slot.time_ns.fetch_add(time_ns, Ordering::Relaxed);
        }
    }
}

fn within(site: Site, traps: u64, time: Duration) -> Result<(), String> {
    let totals = site.totals();
    if totals.traps >= traps || totals.time >= time {
        return Err(format!(
            "budget spent: {site} took {} traps in {:.1} s",
            totals.traps,
            totals.time.as_secs_f64()
        ));
    }
    Ok(())
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.file)?;
        if self.0.line > 0 {
            write!(f, ":{}", self.0.line)?;
        }
        if self.0.column > 0 {
            write!(f, ":{}", self.0.column)?;
        }
        Ok(())
    }
}

impl PartialEq for Site {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Site {}

impl Hash for Site {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self.0, state);
    }
}

impl Slot {
    const fn new(file: &'static str, line: u32, column: u32) -> Self {
        Self {
            file,
            line,
            column,
            passes: AtomicU64::new(0),
            traps: AtomicU64::new(0),
            time_ns: AtomicU64::new(0),
        }
    }
}

fn sites() -> Option<MutexGuard<'static, HashMap<Key, &'static Slot>>> {
    (0..PATIENCE).find_map(|_| match SITES.try_lock() {
        Ok(sites) => Some(sites),
        Err(TryLockError::Poisoned(sites)) => Some(sites.into_inner()),
        Err(TryLockError::WouldBlock) => {
            std::thread::sleep(Duration::from_micros(10));
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_slot() {
        let site = Site::at("a/b.py", 3, 0);
        assert_eq!(site, Site::at("a/b.py", 3, 0));
        assert_ne!(site, Site::at("c/b.py", 3, 0));
        assert_ne!(site, Site::at("a/b.py", 3, 1));
        assert_eq!(site.to_string(), "a/b.py:3");
        assert_eq!(Site::at("a/b.py", 3, 9).to_string(), "a/b.py:3:9");
    }

    #[test]
    fn a_site_sleeps_when_its_budget_is_spent() {
        let site = Site::at("spent", 1, 1);
        assert_eq!(site.pass(), Ok(()));
        site.charge(SITE_TRAPS, Duration::ZERO);
        assert!(site.pass().unwrap_err().starts_with("budget spent"));
        let site = Site::at("late", 1, 1);
        site.charge(0, SITE_TIME);
        assert!(site.pass().is_err());
        assert_eq!(site.totals().passes, 1);
    }

    #[test]
    fn what_many_sites_took_together_is_the_budget_of_their_process() {
        let before = Site::process().totals().traps;
        for line in 1..=3 {
            Site::at("many", line, 0).charge(5, Duration::ZERO);
        }
        let process = Site::process();
        assert!(process.totals().traps >= before + 15);
        let spent = within(process, before + 15, Duration::MAX).unwrap_err();
        assert!(
            spent.starts_with("budget spent: (this process) took"),
            "{spent}"
        );
        assert_eq!(within(process, u64::MAX, Duration::MAX), Ok(()));
    }
}
