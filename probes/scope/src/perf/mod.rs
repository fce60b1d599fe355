//! The kernel's performance events, behind a door: what is asked of them, what they bring, and why they refuse. Tests stand
//! behind the same door with recordings.
#[cfg(target_os = "linux")]
mod kernel;

#[cfg(target_os = "linux")]
pub use kernel::Kernel;

/// Where tracing data are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Bytes, a power of two of pages.
    pub bytes: usize,
    /// The newest bytes overwrite the oldest; else what finds no room is dropped.
    pub snapshot: bool,
}

/// An event of one thread's user code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The thread; 0 = the calling one.
    pub thread: u32,
    /// Number of the event source.
    pub kind: u32,
    /// Its configuration.
    pub config: u64,
    /// Occurrences between samples; 0 = none.
    pub period: u64,
    /// Fields of a sample.
    pub sample_type: u64,
    /// Which branches a sample has.
    pub branch_sample_type: u64,
    /// Where tracing data go.
    pub area: Option<Area>,
    /// Addresses that are traced, as the kernel reads them.
    pub filter: Option<String>,
}

/// What the kernel refused to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To open the event.
    Open,
    /// To map its memory.
    Map,
    /// To trace some addresses only.
    Filter,
    /// To begin.
    Enable,
}

/// A refusal, with the system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was refused.
    pub step: Step,
    /// The system's number.
    pub errno: i32,
}

/// What an event brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Records, one after the other.
    pub records: Vec<u8>,
    /// Tracing data, the oldest first.
    pub traced: Vec<u8>,
}

/// Opens events.
pub trait Door {
    /// An event, not enabled yet.
    ///
    /// # Errors
    /// What the kernel refused.
    fn open(&self, wish: &Wish) -> Result<Box<dyn Channel>, Refusal>;
}

/// An open event.
pub trait Channel: std::fmt::Debug + Send {
    /// Begins.
    ///
    /// # Errors
    /// What the kernel refused.
    fn enable(&mut self) -> Result<(), Refusal>;

    /// Ends; what was recorded can be taken.
    fn disable(&mut self);

    /// What was recorded since it was taken last.
    fn take(&mut self) -> Taken;
}

impl Refusal {
    /// The gate that is closed, and what opens it.
    #[must_use]
    pub fn sentence(self, tier: &str) -> String {
        const EPERM: i32 = 1;
        const ENOENT: i32 = 2;
        const EACCES: i32 = 13;
        const EBUSY: i32 = 16;
        const ENODEV: i32 = 19;
        const EOPNOTSUPP: i32 = 95;
        let Self { step, errno } = self;
        match (step, errno) {
            (Step::Map, EPERM) => format!(
                "{tier}: the limit of locked memory is too small: raise perf_event_mlock_kb or RLIMIT_MEMLOCK (EPERM)"
            ),
            (_, EPERM | EACCES) => format!(
                "{tier}: perf events are not permitted: lower perf_event_paranoid, or give CAP_PERFMON (error {errno})"
            ),
            (_, EBUSY) => {
                format!("{tier}: somebody else records with it on this processor (EBUSY)")
            }
            (_, ENOENT | ENODEV | EOPNOTSUPP) => {
                format!("{tier}: this kernel or processor does not have it (error {errno})")
            }
            _ => format!(
                "{tier}: the kernel refuses to {} it (error {errno})",
                step.verb()
            ),
        }
    }
}

impl Step {
    fn verb(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Map => "map",
            Self::Filter => "filter",
            Self::Enable => "enable",
        }
    }
}

/// The records of a channel: kind, and what follows the header.
pub(crate) fn records(mut bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let [a, b, c, d, _, _, low, high] = *head;
        let len = usize::from(u16::from_le_bytes([low, high])).checked_sub(8)?;
        let (body, rest) = rest.split_at_checked(len)?;
        bytes = rest;
        Some((u32::from_le_bytes([a, b, c, d]), body))
    })
}

/// The number at a place of a record.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(8 * at..8 * at + 8)?;
    word.try_into().ok().map(u64::from_le_bytes)
}
