//! Choose the site, not the symbol: the first instruction of the entry block that the kernel emulates and that every
//! call passes exactly once, with the stack as the caller left it.
//!
//! What is safe between entry and site: instructions that cannot leave the block, do not move `rsp` and do not touch
//! the return address. A load or store may fault there; if the fault is resolved the instruction is repeated and the
//! call is counted once, and if a handler abandons the call before its site it is not counted, which is what a
//! debugger's breakpoint behind the prologue does too. Divisions, traps, system calls, `rep` and serializing
//! instructions end the search: they are slow or leave the block on purpose, and would make the entry's time wrong.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};

use super::KernelRelease;
use super::flow::{Flow, Traits};
use super::functions::ImageFunction;
use super::probe::{self, SiteCost, Unprobeable};
use super::unwind::{Cfa, Unwind};

/// How far the search goes: prologues are shorter, and time before the site is not the function's.
const MAX_DELTA: u64 = 96;

/// Longest way to the growing of a Go stack, in bytes: it saves and restores the argument registers.
const MAX_DETOUR: usize = 1 << 10;

/// How far a first branch is looked for, in bytes.
const MAX_BLOCK: usize = 1 << 12;

/// Where to probe a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Offset of the probed instruction in the file, in bytes.
    pub offset: u64,
    /// Its distance from the function's first instruction, in bytes.
    pub delta: u32,
    /// Length of the instruction in bytes.
    pub len: u8,
    /// Cost of a hit.
    pub cost: SiteCost,
    /// Why this instruction.
    pub reason: SiteReason,
    /// Whether the function jumps back to its own entry: a loop there, or a self tail call, counts as a call.
    pub reentered: bool,
}

/// Why a site was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteReason {
    /// The entry itself is emulated.
    Entry,
    /// The first emulated instruction that every call passes once with `rsp` unchanged.
    FirstEmulated,
    /// The entry, or the first instruction the kernel accepts; what ended the search for a cheaper one.
    NoCheaper(Stop),
}

/// What ended the search for a cheap site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Another jump or call of the image lands here, so that calls would be missed or iterations counted.
    JumpLands(u64),
    /// The address of this instruction is stored somewhere: an indirect jump may land here.
    AddressTaken(u64),
    /// The function has, without a frame, an indirect jump whose targets are not known, or a landing pad.
    UnresolvedJump,
    /// The stack pointer changes.
    StackMoves(u64),
    /// Control may leave the block.
    LeavesBlock(u64),
    /// A trap, a slow or a serializing instruction.
    SlowOrTrapping(u64),
    /// It works on the return address.
    TouchesReturnAddress(u64),
    /// The unwind table does not agree that `rsp` is unchanged.
    UnwindDisagrees(u64),
    /// The function ends, or the search goes too far.
    End,
    /// The two decoders read the bytes differently.
    DecodersDisagree(u64),
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::JumpLands(at) => write!(f, "a jump lands at {at:#x}, behind the entry"),
            Self::AddressTaken(at) => write!(f, "the address {at:#x} is stored in data or code"),
            Self::UnresolvedJump => {
                f.write_str("an indirect jump of the function could land behind the entry")
            }
            Self::StackMoves(at) => {
                write!(f, "rsp changes at {at:#x} before any emulated instruction")
            }
            Self::LeavesBlock(at) => write!(f, "the entry block ends at {at:#x}"),
            Self::SlowOrTrapping(at) => write!(f, "a slow or trapping instruction at {at:#x}"),
            Self::TouchesReturnAddress(at) => write!(f, "the return address is used at {at:#x}"),
            Self::UnwindDisagrees(at) => {
                write!(f, "the unwind table says that rsp has moved at {at:#x}")
            }
            Self::End => f.write_str("no emulated instruction in the entry block"),
            Self::DecodersDisagree(at) => write!(f, "two decoders disagree at {at:#x}"),
        }
    }
}

impl std::fmt::Display for SiteReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Entry => f.write_str("the first instruction is emulated"),
            Self::FirstEmulated => {
                f.write_str("first emulated instruction, rsp unchanged, no jump lands before it")
            }
            Self::NoCheaper(stop) => write!(f, "no cheaper site: {stop}"),
        }
    }
}

/// Why a function cannot be probed at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteRefusal {
    /// A part of another function: no call begins here.
    NotAnEntry,
    /// The first bytes are data, not code.
    LooksLikeData,
    /// No instruction of the entry block can be probed; this is why not the first.
    Unprobeable(Unprobeable),
}

impl std::fmt::Display for SiteRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAnEntry => {
                f.write_str("a cold part of another function: jumps enter it, not calls")
            }
            Self::LooksLikeData => {
                f.write_str("its bytes do not decode up to the first branch: data, not code")
            }
            Self::Unprobeable(why) => {
                write!(f, "no instruction of the entry block can be probed: {why}")
            }
        }
    }
}

/// What the choice is made from.
pub(super) struct Chooser<'a> {
    pub(super) flow: &'a Flow,
    pub(super) unwind: &'a Unwind,
    pub(super) kernel: KernelRelease,
    /// The image is Go: see [`Search::is_stack_check`].
    pub(super) go: bool,
}

impl Chooser<'_> {
    /// Chooses the site of one function, whose code is `bytes`.
    pub(super) fn choose(
        &self,
        function: &ImageFunction,
        traits: &Traits,
        bytes: &[u8],
    ) -> Result<Site, SiteRefusal> {
        if !function.part.is_entry() {
            return Err(SiteRefusal::NotAnEntry);
        }
        if looks_like_data(function.vaddr, bytes) {
            return Err(SiteRefusal::LooksLikeData);
        }
        self.walk(function, traits, bytes)
    }

    /// The first instruction itself, whatever it costs.
    pub(super) fn entry(
        &self,
        function: &ImageFunction,
        traits: &Traits,
        bytes: &[u8],
    ) -> Option<Site> {
        let instruction =
            Decoder::with_ip(64, bytes, function.vaddr, DecoderOptions::NONE).decode();
        let cost =
            probe::judge(&instruction, encoding(&instruction, bytes, 0), self.kernel).ok()?;
        let search = Search::new(function, traits.reentries);
        Some(search.site(&instruction, cost, SiteReason::Entry))
    }

    fn walk(
        &self,
        function: &ImageFunction,
        traits: &Traits,
        bytes: &[u8],
    ) -> Result<Site, SiteRefusal> {
        let mut decoder = Decoder::with_ip(64, bytes, function.vaddr, DecoderOptions::NONE);
        let mut search = Search::new(function, traits.reentries);
        let stop = loop {
            if !decoder.can_decode() {
                break Stop::End;
            }
            let instruction = decoder.decode();
            match self.consider(&instruction, bytes, traits, &mut search) {
                Step::Chosen(site) => return Ok(site),
                Step::Stop(stop) => break stop,
                Step::Next => {}
            }
        };
        match (search.fallback, search.first) {
            (Some(site), _) => Ok(Site {
                reason: SiteReason::NoCheaper(stop),
                ..site
            }),
            (None, first) => Err(SiteRefusal::Unprobeable(
                first.unwrap_or(Unprobeable::Invalid),
            )),
        }
    }

    fn consider(
        &self,
        instruction: &Instruction,
        bytes: &[u8],
        traits: &Traits,
        search: &mut Search<'_>,
    ) -> Step {
        let at = instruction.ip();
        let delta = at - search.function.vaddr;
        if let Some(stop) = self.unreachable_once(search.function, at, delta, traits) {
            return Step::Stop(stop);
        }
        if self.go && search.is_stack_check(instruction, bytes) {
            search.pass_stack_check();
            return Step::Next;
        }
        let encoding = encoding(instruction, bytes, delta);
        match probe::judge(instruction, encoding, self.kernel) {
            Ok(SiteCost::SingleStepped) => {
                search.keep(instruction, SiteCost::SingleStepped, SiteReason::Entry)
            }
            Ok(cost) if search.red_zone_is_free(cost) => {
                let reason = if delta == 0 {
                    SiteReason::Entry
                } else {
                    SiteReason::FirstEmulated
                };
                return Step::Chosen(search.site(instruction, cost, reason));
            }
            Ok(_) => {}
            Err(why) => _ = search.first.get_or_insert(why),
        }
        search.used_stack |= uses_stack(instruction);
        leaves(instruction, at).map_or(Step::Next, Step::Stop)
    }

    /// Whether a call might pass this instruction never, or more than once, or with another stack pointer.
    fn unreachable_once(
        &self,
        function: &ImageFunction,
        at: u64,
        delta: u64,
        traits: &Traits,
    ) -> Option<Stop> {
        if delta == 0 {
            return None;
        }
        if delta > MAX_DELTA {
            return Some(Stop::End);
        }
        if traits.unresolved_jump {
            return Some(Stop::UnresolvedJump);
        }
        if let Some(landing) = self.flow.landings.first_after(function.vaddr, at) {
            return Some(Stop::JumpLands(landing));
        }
        if let Some(pointer) = self.flow.pointers.first_after(function.vaddr, at) {
            return Some(Stop::AddressTaken(pointer));
        }
        // Without an entry in the table the instructions passed so far are the proof.
        let cfa = self.unwind.cursor().at(at);
        let covered = self.unwind.covering(function.vaddr).is_some();
        let agrees = cfa == Some(Cfa::ENTRY) || (cfa.is_none() && !covered);
        (!agrees).then_some(Stop::UnwindDisagrees(at))
    }
}

enum Step {
    Chosen(Site),
    Next,
    Stop(Stop),
}

struct Search<'a> {
    function: &'a ImageFunction,
    /// First instruction that can be probed at all.
    fallback: Option<Site>,
    /// Why the first one that cannot be, cannot.
    first: Option<Unprobeable>,
    /// Whether memory below the stack pointer may be in use.
    used_stack: bool,
    /// How many jumps of the function to its own entry a call may take before it passes the present instruction
    /// again.
    reentries: u32,
    checked_stack: bool,
}

impl<'a> Search<'a> {
    fn new(function: &'a ImageFunction, reentries: u32) -> Self {
        Self {
            function,
            fallback: None,
            first: None,
            used_stack: false,
            reentries,
            checked_stack: false,
        }
    }

    /// Whether this is the branch by which a Go function whose stack is too small goes to have it grown, to begin
    /// again at its entry: moves, one call, and a jump to the entry stand there. What follows the branch is passed
    /// once by each call, the entry twice by some.
    fn is_stack_check(&self, instruction: &Instruction, bytes: &[u8]) -> bool {
        let entry = self.function.vaddr;
        let conditional = instruction.flow_control() == FlowControl::ConditionalBranch;
        let target = instruction.near_branch_target();
        let Some(detour) = target
            .checked_sub(entry)
            .and_then(|delta| bytes.get(delta as usize..))
        else {
            return false;
        };
        let mut decoder = Decoder::with_ip(64, detour, target, DecoderOptions::NONE);
        let mut calls = 0;
        while conditional && decoder.can_decode() && decoder.position() < MAX_DETOUR {
            let next = decoder.decode();
            match next.flow_control() {
                FlowControl::Next => {}
                FlowControl::Call => calls += 1,
                FlowControl::UnconditionalBranch => {
                    return calls == 1 && next.near_branch_target() == entry;
                }
                _ => return false,
            }
        }
        false
    }

    /// A probe in front of the check would count some calls twice: those sites are forgotten.
    fn pass_stack_check(&mut self) {
        self.fallback = None;
        if !self.checked_stack {
            self.reentries = self.reentries.saturating_sub(1);
            self.checked_stack = true;
        }
    }

    fn site(&self, instruction: &Instruction, cost: SiteCost, reason: SiteReason) -> Site {
        let delta = instruction.ip() - self.function.vaddr;
        Site {
            offset: self.function.file_offset + delta,
            delta: delta as u32,
            len: instruction.len() as u8,
            cost,
            reason,
            reentered: self.reentries > 0,
        }
    }

    fn keep(&mut self, instruction: &Instruction, cost: SiteCost, reason: SiteReason) {
        if self.fallback.is_none() {
            self.fallback = Some(self.site(instruction, cost, reason));
        }
    }

    /// The call that replaces a 5-byte nop pushes a return address, over what a function without a frame may have
    /// stored below its stack pointer (kernel fix 554ba38456da).
    fn red_zone_is_free(&self, cost: SiteCost) -> bool {
        cost != SiteCost::Nop5 || !self.used_stack
    }
}

fn encoding<'b>(instruction: &Instruction, bytes: &'b [u8], delta: u64) -> &'b [u8] {
    let start = delta as usize;
    bytes
        .get(start..start + instruction.len())
        .unwrap_or_default()
}

fn uses_stack(instruction: &Instruction) -> bool {
    let memory =
        instruction.memory_base() == Register::RSP || instruction.memory_index() == Register::RSP;
    memory
        || instruction.op0_register() == Register::RSP
        || instruction.op1_register() == Register::RSP
}

/// Why the search cannot go past an instruction.
fn leaves(instruction: &Instruction, at: u64) -> Option<Stop> {
    if instruction.flow_control() != FlowControl::Next {
        return Some(Stop::LeavesBlock(at));
    }
    let writes_rsp = instruction.op0_register() == Register::RSP
        && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
    let exchanges_rsp =
        instruction.op1_register() == Register::RSP && instruction.mnemonic() == Mnemonic::Xchg;
    if instruction.is_stack_instruction() || writes_rsp || exchanges_rsp {
        return Some(Stop::StackMoves(at));
    }
    let size = instruction.memory_size().size() as i64;
    let from = instruction.memory_displacement64().cast_signed();
    let on_return_address =
        instruction.memory_base() == Register::RSP && from < 8 && from.saturating_add(size) > 0;
    if on_return_address && instruction.mnemonic() != Mnemonic::Nop {
        return Some(Stop::TouchesReturnAddress(at));
    }
    is_slow(instruction).then_some(Stop::SlowOrTrapping(at))
}

fn is_slow(instruction: &Instruction) -> bool {
    let repeated = (instruction.has_rep_prefix() || instruction.has_repne_prefix())
        && instruction.is_string_instruction();
    repeated
        || matches!(
            instruction.mnemonic(),
            Mnemonic::Div
                | Mnemonic::Idiv
                | Mnemonic::Cpuid
                | Mnemonic::Rdtsc
                | Mnemonic::Rdtscp
                | Mnemonic::Rdpmc
                | Mnemonic::Rdrand
                | Mnemonic::Rdseed
                | Mnemonic::Xgetbv
                | Mnemonic::Pause
                | Mnemonic::Serialize
                | Mnemonic::Hlt
                | Mnemonic::In
                | Mnemonic::Out
        )
}

/// Code decodes at least up to its first branch.
fn looks_like_data(vaddr: u64, bytes: &[u8]) -> bool {
    let bytes = bytes.get(..MAX_BLOCK).unwrap_or(bytes);
    let mut decoder = Decoder::with_ip(64, bytes, vaddr, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return bytes.len() < MAX_BLOCK || decoder.can_decode();
        }
        if instruction.flow_control() != FlowControl::Next {
            return false;
        }
    }
    false
}
