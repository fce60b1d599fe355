//! What keeps a stepped thread alive or its trace true, by name: tests take one out and must then fail. Without the
//! feature `uncured`, which is for those tests alone, each of them holds and costs nothing.

macro_rules! cures {
    ($($name:ident)*) => {
        /// One cure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Cure {
            $($name,)*
        }

        #[cfg(feature = "uncured")]
        const NAMES: &[(&str, Cure)] = &[$((stringify!($name), Cure::$name),)*];
    };
}

cures! {
    LostStepInserted
    OnlyRepeatsFolded
    StoppedForGood
    FlagHidden
    ForkUnstepped
    SequenceRunsOn
    ProbeStepKnown
    FaultSafeReads
    HandlerStays
    ActionEmulated
    MaskEmulated
    OwnStack
    ForeignHandedOn
    ForeignAsKernel
    StackEmulated
    StrayFlagCleared
    SignalNoted
    ChangedCodeNoted
    FlagKeptByPop
    HiddenCallByStub
    ReturnProbeKnown
    HandlerNotTraced
    ReturnSlotWatched
    EntriesWatched
    CallOutsVerified
    RepeatsRunOn
    OneEngine
    HandlerRechecked
    LandingsKnown
    MoveFollowed
    FaultActionEmulated
    StubKnownByPlace
    SelfLoopCounted
    FirstKnownByPlace
    PoppedFlagKnown
}

/// Whether the cure is in force.
#[cfg(not(feature = "uncured"))]
#[inline(always)]
pub(super) const fn holds(_cure: Cure) -> bool {
    true
}

#[cfg(feature = "uncured")]
static OUT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(usize::MAX);

/// Whether the cure is in force.
#[cfg(feature = "uncured")]
pub(super) fn holds(cure: Cure) -> bool {
    OUT.load(std::sync::atomic::Ordering::Relaxed) != cure as usize
}

#[cfg(feature = "uncured")]
static SWALLOWED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Whether each trap comes as a SIGTRAP that somebody has sent: as where one was pending already, and the kernel kept that.
#[cfg(feature = "uncured")]
pub(super) fn swallows() -> bool {
    SWALLOWED.load(std::sync::atomic::Ordering::Relaxed)
}

/// Takes out the cure that the environment names, and has traps swallowed: to be called before the first trap.
#[cfg(feature = "uncured")]
pub(super) fn read_environment() {
    let swallows = std::env::var_os("SCALPEL_TEST_SWALLOWED").is_some();
    SWALLOWED.store(swallows, std::sync::atomic::Ordering::Relaxed);
    let Ok(name) = std::env::var("SCALPEL_TEST_UNCURED") else {
        return;
    };
    let cure = NAMES.iter().find(|(known, _)| *known == name);
    OUT.store(
        cure.map_or(usize::MAX, |(_, cure)| *cure as usize),
        std::sync::atomic::Ordering::Relaxed,
    );
}
