//! What a scope brings back: the instructions in the order they ran, and how far that can be believed.
//! Every tier fills this one type; it knows none of them.
use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a trace may lack something: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasons(u32);

macro_rules! reasons {
    ($($bit:literal $name:ident $word:literal $doc:literal)*) => {
        impl Reasons {
            $(#[doc = $doc] pub const $name: Self = Self(1 << $bit);)*
            const WORDS: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$name, $word, $doc)),*];
        }
    };
}

// They are in the C header too: `SCALPEL_BLESS=1 cargo test -p scalpel-scope-c --test header` writes it anew.
reasons! {
    0 THREAD_HOP "thread hop" "The scope was closed on another thread than it was opened on."
    1 RING_FULL "ring full" "The preallocated log had no room left."
    2 BUDGET "budget" "The budget of traps or time was spent; the rest ran natively."
    3 TF_LOST "trap flag lost" "The trap flag was off at the close, so that the end is missing."
    4 RSEQ "restartable sequence" "A restartable sequence was aborted by the step; the rest ran natively, so that it can commit."
    5 FORK "fork or exec" "A thread or process was made or replaced where that cannot be stepped over."
    6 SIGNAL_RETURN "return from a signal handler" "The scope was opened in a signal handler that returned within it."
    7 DECODE "decode error" "Bytes that ran could not be read or decoded."
    8 CODE_CHANGED "code changed" "Code bytes were replaced between their run and their reading."
    9 UNEXPLAINED "unexplained successor" "An instruction was followed by one that it cannot lead to."
    10 SHADOW "hidden instruction" "An instruction that must be guarded stood where no trap comes; the rest ran natively."
    11 UNGUARDED "unguarded system call" "A system call that changes signals, or forbids system calls, could not be emulated; the rest ran natively."
    12 WRONG_ORDER "wrong order" "The scope was dropped while one opened within it was still open."
    13 COUNT "count differs" "The steps are not those that were counted while they ran."
    14 UPROBE "uprobe" "A probe's breakpoint hid an instruction whose successor cannot be checked."
    15 CALL_OUT "call-out not verified" "A callee that ran at full speed did not come back behind its call, or not as it was to."
    16 SYSTEM_CALL "system call not verified" "A system call did not come back behind its instruction."
    17 LEFT "left without return" "The call was left by an exception, a long jump, a switch of stacks or the end of its thread."
    20 OVERFLOW "overflow packet" "The processor dropped packets, because it made more than it could write."
    21 BUFFER_FULL "buffer full" "The kernel or the recording tool dropped trace, because a buffer was full."
    22 NO_CODE "code missing" "The bytes of an address that ran are not known: its file is missing, another one, or was never mapped in the recording."
    23 NO_SYNC "no synchronisation point" "Trace before the first synchronisation point, or between an error and the next one, cannot be decoded."
    24 OPEN_END "open end" "The recording begins or ends in the middle of the flow."
    25 SAMPLED "sampled" "It is made of samples: what ran between them is not known."
    27 GAP "gap" "Something that ran between two steps is missing."
    26 SIDEBAND "side band" "What tells which thread ran, or what was mapped where, is missing, or lost in part."
    30 SUSPENDED "async suspend" "The code inside was suspended (an await); what the thread ran from there on is not its own."
}

impl Reasons {
    /// No reason: complete.
    pub const NONE: Self = Self(0);

    /// Both sets together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// One bit a reason: numbers are appended, never reused.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Every reason there is: its set, its word, its sentence.
    pub fn all() -> impl Iterator<Item = (Self, &'static str, &'static str)> {
        Self::WORDS.iter().copied()
    }

    /// Whether all of `other` are in the set.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The words of the set, as JSON shows them.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        Self::WORDS
            .iter()
            .filter(move |(reason, ..)| self.contains(*reason))
            .map(|(_, word, _)| *word)
    }

    /// The sentences of the set.
    pub fn sentences(self) -> impl Iterator<Item = &'static str> {
        Self::WORDS
            .iter()
            .filter(move |(reason, ..)| self.contains(*reason))
            .map(|(.., sentence)| *sentence)
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.words().collect();
        f.write_str(&words.join(", "))
    }
}

/// Whether the trace is all that ran.
///
/// Complete means: the interrupted flow of this thread, signal handlers excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Every instruction of the form's flow is there, once for each time it ran.
    Complete,
    /// Something may be missing, for these reasons (never none).
    Truncated(Reasons),
}

/// What a trace is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// The instructions whose address is in this range.
    Region {
        /// First address.
        start: u64,
        /// First address behind it.
        end: u64,
    },
    /// Everything that one call ran.
    Call,
    /// Everything that the thread ran between open and close.
    Window,
}

impl Form {
    /// Whether the form shows this address.
    #[must_use]
    pub fn shows(self, addr: u64) -> bool {
        match self {
            Self::Region { start, end } => (start..end).contains(&addr),
            Self::Call | Self::Window => true,
        }
    }
}

/// How the instructions were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tier {
    /// Nothing was recorded: see the trace's skip reason.
    None,
    /// EFLAGS.TF and SIGTRAP in the process itself.
    SingleStep,
    /// `PTRACE_SINGLESTEP` by another process.
    Ptrace,
    /// Intel Processor Trace.
    IntelPt,
    /// The last branch records of an AMD or Intel processor: a sampled survey.
    Lbr,
}

impl Tier {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SingleStep => "single-step",
            Self::Ptrace => "ptrace",
            Self::IntelPt => "intel-pt",
            Self::Lbr => "lbr",
        }
    }
}

/// How a step is joined to the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Link {
    /// It is the successor of the one before.
    Flow,
    /// The flow left the region, was stepped outside it, and came back here.
    Back,
    /// The call before it was left at full speed, and came back here, behind itself.
    Over,
    /// What was left at full speed called the traced function again, at its beginning.
    Again,
    /// The scope's own code (a scope opened or closed within this one) ran untraced before it.
    Own,
    /// An interrupt or exception, which the trace itself tells of, led here.
    Interrupt,
    /// What ran before it is missing.
    Gap,
}

/// One instruction that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Index into [`Trace::code`].
    pub code: u32,
    /// How often in a row: above 1 only for a `rep` string instruction, once an iteration.
    pub count: u32,
    /// The address that runs next, foretold from registers and memory before this one ran.
    pub next: u64,
    /// How it is joined to the step before.
    pub link: Link,
}

/// An instruction as it was when it ran. Code that changes has more than one at its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// Its address.
    pub addr: u64,
    /// Its bytes (1 to 15).
    pub bytes: Vec<u8>,
}

/// Something that is known about a trace beside its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The next address was foretold at every stop, and came true.
    SuccessorsForetold,
    /// Some steps cannot be trapped (behind a system call, in the shadow of MOV SS): they were inserted by rule.
    StepsInserted,
    /// The traced code could see the trap flag in a register.
    TrapFlagVisible,
    /// A uprobe's breakpoint was in the code; the bytes shown are the file's.
    UprobeSeen,
    /// Signal handlers, if any ran, are not in the trace.
    SignalHandlersExcluded,
    /// A signal was pending at a stop: its handler, if it has one, ran and is not in the trace.
    SignalPending,
    /// No other thread rewrote code between its reading and its run.
    CodeNotRacing,
    /// Threads and processes that were started are not followed.
    ChildrenNotFollowed,
    /// Callees that ran at full speed returned behind their calls: a breakpoint met them there, with the stack as it was.
    CallOutsReturned,
    /// The call that was traced returned to its caller.
    Returned,
    /// The call that was traced, or one that ran at full speed, was left by an exception or a long jump.
    Unwound,
    /// Code ran from copies of its blocks, which logged it: no other thread changed it meanwhile.
    RanFromCopies,
    /// While the thread ran at full speed it can have entered the region by its entries alone, which were watched.
    EnteredAtEntries,
    /// Each instruction is followed by one that it can lead to.
    SuccessorsAllowed,
    /// Two decoders of instructions agree on every block.
    BlocksAgree,
    /// Every return led to where its call came from.
    ReturnsAnswerCalls,
    /// Some returns led elsewhere: `longjmp`, a switch of stacks, an address that was pushed, a probe's trampoline.
    ReturnsElsewhere,
    /// The code is that of files or copies, which were the same when it ran.
    CodeAsGiven,
}

impl Fact {
    /// The sentence for it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::SuccessorsForetold => {
                "every successor was foretold from registers and memory, and came"
            }
            Self::StepsInserted => {
                "steps behind system calls and in the shadow of MOV SS were inserted by rule"
            }
            Self::TrapFlagVisible => "the traced code could see the trap flag",
            Self::UprobeSeen => "a uprobe was set in this code; its bytes are those of the file",
            Self::SignalHandlersExcluded => "signal handlers, if any ran, are not in the trace",
            Self::SignalPending => "a signal came: its handler ran, and is not in the trace",
            Self::CodeNotRacing => "no other thread rewrote code between its reading and its run",
            Self::CallOutsReturned => {
                "callees that ran at full speed returned behind their calls, with the stack as it was"
            }
            Self::Returned => "the call returned to its caller",
            Self::Unwound => "a call was left by an exception or a long jump",
            Self::RanFromCopies => {
                "code ran from copies of its blocks, which logged it; no other thread changed it meanwhile"
            }
            Self::EnteredAtEntries => {
                "outside the region, the thread ran at full speed; the region's entries were watched"
            }
            Self::ChildrenNotFollowed => "threads and processes started inside are not followed",
            Self::SuccessorsAllowed => "each instruction is followed by one that it can lead to",
            Self::BlocksAgree => "two decoders of instructions agree on every block",
            Self::ReturnsAnswerCalls => "every return led to where its call came from",
            Self::ReturnsElsewhere => {
                "returns that led elsewhere than their calls say were longjmp, a switch of stacks, a pushed address or a probe"
            }
            Self::CodeAsGiven => "the files and copies that the code was read from are what ran",
        }
    }
}

/// A thread or process that was started within a scope: it runs free, and is not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Its thread or process id, as the parent got it.
    pub tid: u32,
    /// A thread of this process; else a process.
    pub thread: bool,
}

/// What ran at full speed under the watch of debug registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOuts {
    /// Calls that left the region and were not stepped.
    pub calls: u64,
    /// Hits of debug registers.
    pub traps: u64,
    /// Calls of `ioctl` to move them.
    pub ioctls: u64,
}

/// The trace of one pass of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// What of it ran at full speed.
    pub call_outs: CallOuts,
    /// What it is of.
    pub form: Form,
    /// How it was seen.
    pub tier: Tier,
    /// Why nothing was recorded, if so.
    pub skip_reason: Option<Cow<'static, str>>,
    /// Where the flow began, known apart from the steps.
    pub begin: Option<u64>,
    /// Where the flow would have gone on, known apart from the steps.
    pub end: Option<u64>,
    /// What ran, in order.
    pub steps: Vec<Step>,
    /// The distinct instructions of `steps`, in the order they first ran.
    pub code: Vec<Code>,
    /// How many instructions ran (iterations of `rep` each), counted apart from the steps.
    pub counted: u64,
    /// The sum over what ran, in its order ([`crate::oracle::seal`]), where the tier keeps one while it records.
    pub seal: Option<u64>,
    /// How many traps the scope took, those outside a region with them.
    pub traps: u64,
    /// Threads and processes that were started within.
    pub started: u64,
    /// The first 64 of them.
    pub not_followed: Vec<Child>,
    /// What may be missing.
    pub reasons: Reasons,
    /// What was checked.
    pub verified: Vec<Fact>,
    /// What was not.
    pub assumed: Vec<Fact>,
}

impl Trace {
    /// A trace of a scope that records nothing.
    pub(crate) fn skipped(form: Form, why: impl Into<Cow<'static, str>>) -> Self {
        Self {
            call_outs: CallOuts::default(),
            form,
            tier: Tier::None,
            skip_reason: Some(why.into()),
            begin: None,
            end: None,
            steps: Vec::new(),
            code: Vec::new(),
            counted: 0,
            seal: None,
            traps: 0,
            started: 0,
            not_followed: Vec::new(),
            reasons: Reasons::NONE,
            verified: Vec::new(),
            assumed: Vec::new(),
        }
    }

    /// Whether it is all that ran.
    #[must_use]
    pub fn status(&self) -> Status {
        if self.reasons.is_empty() {
            Status::Complete
        } else {
            Status::Truncated(self.reasons)
        }
    }

    /// Whether something was recorded, and all of it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.skip_reason.is_none() && self.reasons.is_empty()
    }

    /// The instruction of a step.
    #[must_use]
    pub fn code_of(&self, step: &Step) -> Option<&Code> {
        self.code.get(usize::try_from(step.code).ok()?)
    }

    /// The addresses in the order they ran, each as often as it ran.
    pub fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        self.steps.iter().flat_map(|step| {
            let addr = self.code_of(step).map(|code| code.addr);
            addr.into_iter()
                .flat_map(move |addr| (0..step.count).map(move |_| addr))
        })
    }
}
