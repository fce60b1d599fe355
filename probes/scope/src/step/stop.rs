//! One stop: what ran since the last one is joined to the log, what runs next is read, guarded and foretold.
//! Runs in the handler: no libc, no lock, no allocation.
use iced_x86::{FlowControl, Instruction, Mnemonic, Register};

use super::cure::{Cure, holds};
use super::guard::{self, Verdict};
use super::registers::{Registers, TRAP_FLAG};
use super::thread::{Before, Entry, Kind, LONGEST, Thread, mark};
use super::{bulk, callout, displaced, doors, memory, over, probed, sys};
use crate::predict::{self, Next};
use crate::trace::Reasons;
use crate::{flow, oracle};

/// What glibc and librseq put before the abort address of a restartable sequence.
const RSEQ_SIGNATURE: u32 = 0x5305_3053;
/// The clock is read once in so many traps.
const CLOCK_EVERY: u64 = 64;

/// The thread stands before the instruction at its RIP.
pub(super) fn stop(thread: &mut Thread, registers: &mut Registers<'_>) {
    thread.traps += 1;
    if holds(Cure::SignalNoted) && sys::pending() & !*registers.mask() & !guard::SIGTRAP_BIT != 0 {
        thread.signals += 1;
    }
    loop {
        let addr = registers.rip();
        let code = look(thread, addr);
        if probed::still(thread, registers, code.1 > 0) {
            return;
        }
        join(thread, registers, addr);
        if !thread.armed {
            return;
        }
        if doors::ends(addr) {
            thread.end = addr;
            thread.armed = false;
            registers.trap(false);
            return;
        }
        if callout::arrives(thread, registers, addr) {
            return;
        }
        if let Some(reason) = spent(thread) {
            return halt(thread, registers, reason);
        }
        if displaced::enter(thread, registers, addr) {
            return;
        }
        if !run(thread, registers, addr, code) {
            return;
        }
    }
}

/// Behind a call that a stub made: the registers are as the call itself leaves them.
pub(super) fn came_back(thread: &mut Thread, registers: &mut Registers<'_>) {
    thread.away = false;
    let made = u32::try_from(registers.rax().cast_signed()).unwrap_or(0);
    if let Some(is_thread) = thread.child.take()
        && made > 0
    {
        thread.begot(made, is_thread);
    }
    registers.set_rip(thread.before.fall);
    registers.set_rcx(thread.before.fall);
}

/// Ends stepping before its time: the body runs on natively, with the signal mask that it wants.
pub(super) fn halt(thread: &mut Thread, registers: &mut Registers<'_>, reason: Reasons) {
    thread.blame(reason);
    thread.armed = false;
    thread.halted = true;
    if holds(Cure::StoppedForGood) {
        registers.trap(false);
    }
    if thread.wish {
        *registers.mask() |= guard::SIGTRAP_BIT;
    }
    if let Some(wanted) = thread.old_stack.take() {
        registers.0.uc_stack = wanted;
    }
}

pub(super) fn spent(thread: &Thread) -> Option<Reasons> {
    if thread.hop.load(std::sync::atomic::Ordering::Acquire) {
        return Some(Reasons::THREAD_HOP);
    }
    let late = thread.traps.is_multiple_of(CLOCK_EVERY) && sys::now_ns() > thread.deadline_ns;
    (late || thread.traps > thread.most_traps).then_some(Reasons::BUDGET)
}

/// The bytes at `addr`, and how many are there. The instruction before is looked at again on the way: what another thread
/// has rewritten since it was read may not be what ran.
fn look(thread: &mut Thread, addr: u64) -> ([u8; LONGEST], usize) {
    let before = thread.before;
    let mut bytes = [0; LONGEST];
    let mut again = [0; LONGEST];
    let len = match before.kind {
        Kind::First | Kind::SystemCall => 0,
        _ => usize::from(before.len),
    };
    // Text is compared at the close.
    let len = if before.text { 0 } else { len };
    if len == 0
        && let Some(bytes) = thread.text().and_then(|text| text.get(addr))
    {
        thread.in_text = true;
        return (bytes, LONGEST);
    }
    let again = again.get_mut(..len).unwrap_or_default();
    let got = memory::read_two(addr, &mut bytes, before.addr, again);
    let text = thread
        .text()
        .filter(|_| got == LONGEST && holds(Cure::FaultSafeReads));
    thread.in_text = text.is_some_and(|text| text.learn(addr, &bytes));
    let same = thread
        .last()
        .is_none_or(|last| last.marks & mark::RUN != 0 || last.bytes.get(..len) == Some(again));
    if !same && holds(Cure::ChangedCodeNoted) {
        thread.blame(Reasons::CODE_CHANGED);
    }
    (bytes, got)
}

/// Logs the instruction at `addr` and foretells its successor. `true`: it was emulated, go on at the new RIP.
fn run(
    thread: &mut Thread,
    registers: &mut Registers<'_>,
    addr: u64,
    (bytes, got): ([u8; LONGEST], usize),
) -> bool {
    let Some(instruction) = flow::decode(addr, bytes.get(..got).unwrap_or_default()) else {
        if got > 0 || !probed::enters(thread, registers) {
            halt(thread, registers, Reasons::DECODE);
        }
        return false;
    };
    let kind = kind(&instruction);
    if kind == Kind::Breakpoint {
        probed::note(thread, registers);
    }
    let next = predict::next(&instruction, registers);
    if !log(thread, &instruction, bytes, kind, next) {
        halt(thread, registers, Reasons::RING_FULL);
        return false;
    }
    displaced::before(thread, registers, &instruction);
    if callout::leaves(thread, registers, &instruction, next) {
        return false;
    }
    let verdict = verdict(thread, registers, &instruction, kind);
    let again = thread.before.kind == Kind::Repeated && thread.before.addr == addr;
    thread.before = Before {
        addr,
        fall: instruction.next_ip(),
        len: u8::try_from(instruction.len()).unwrap_or(0),
        next,
        successors: flow::successors(&instruction),
        counters: (registers.rcx(), registers.rsp()),
        text: thread.in_text,
        counts: kind == Kind::Repeated || counts(&instruction),
        kind: match verdict {
            Verdict::Emulated | Verdict::Away => Kind::Plain,
            _ => kind,
        },
    };
    match verdict {
        Verdict::Run
            if kind == Kind::Repeated
                && !again
                && bulk::starts(thread, registers, &instruction) => {}
        Verdict::Run if holds(Cure::FlagKeptByPop) => registers.trap(true),
        Verdict::Run => {}
        Verdict::Away => thread.away = true,
        Verdict::Halt(reason) => halt(thread, registers, reason),
        Verdict::Emulated => return true,
    }
    false
}

/// What the guard says; and no instruction that it must see may follow untrapped.
fn verdict(
    thread: &mut Thread,
    registers: &mut Registers<'_>,
    instruction: &Instruction,
    kind: Kind,
) -> Verdict {
    let verdict = guard::before(thread, registers, instruction);
    if verdict != Verdict::Run || !matches!(kind, Kind::SystemCall | Kind::Shadow) {
        return verdict;
    }
    let behind = instruction.next_ip();
    if !hides(behind, &mut thread.ahead) || !holds(Cure::HiddenCallByStub) {
        return verdict;
    }
    if instruction.mnemonic() == Mnemonic::Syscall {
        over::make_once(registers);
        return Verdict::Away;
    }
    Verdict::Halt(Reasons::SHADOW)
}

/// Whether an instruction that leads to itself shows by a register that it has run.
fn counts(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::ConditionalBranch
    ) || matches!(
        instruction.mnemonic(),
        Mnemonic::Loop | Mnemonic::Loope | Mnemonic::Loopne
    )
}

fn kind(instruction: &Instruction) -> Kind {
    match instruction {
        i if flow::is_system_call(i) => Kind::SystemCall,
        i if flow::loads_stack_segment(i) => Kind::Shadow,
        i if flow::pushes_flags(i) => Kind::PushesFlags,
        i if flow::pops_flags(i) => Kind::PopsFlags,
        i if flow::is_breakpoint(i) => Kind::Breakpoint,
        i if flow::is_repeated(i) => Kind::Repeated,
        _ => Kind::Plain,
    }
}

/// Whether an instruction that is not trapped would have to be guarded. Its bytes are kept.
pub(super) fn hides(addr: u64, bytes: &mut [u8; LONGEST]) -> bool {
    *bytes = [0; LONGEST];
    let got = memory::read(addr, bytes);
    flow::decode(addr, bytes.get(..got).unwrap_or_default()).is_some_and(|instruction| {
        flow::is_system_call(&instruction)
            || flow::loads_stack_segment(&instruction)
            || flow::is_repeated(&instruction)
            || matches!(
                instruction.mnemonic(),
                Mnemonic::Sysenter | Mnemonic::Iretq | Mnemonic::Iretd
            )
    })
}

/// Counts what runs, for the thread and for each open scope: apart from the log, so that the two can disagree.
fn count(thread: &mut Thread, addr: u64, bytes: Option<&[u8]>) {
    thread.counted += 1;
    let frames = thread.frames.iter_mut().flatten();
    for frame in frames.filter(|frame| frame.form.shows(addr)) {
        frame.shown += 1;
        if let Some(bytes) = bytes {
            frame.seal = oracle::seal(frame.seal, addr, bytes);
        }
    }
}

/// Takes back what was counted last: it did not run.
pub(super) fn uncount(thread: &mut Thread, addr: u64, bytes: &[u8]) {
    thread.counted = thread.counted.saturating_sub(1);
    let frames = thread.frames.iter_mut().flatten();
    for frame in frames.filter(|frame| frame.form.shows(addr)) {
        frame.shown = frame.shown.saturating_sub(1);
        frame.seal = oracle::unseal(frame.seal, addr, bytes);
    }
}

/// A string instruction has run so many times at once, of which one is logged already.
pub(super) fn repeats(thread: &mut Thread, times: u64) {
    let more = times.saturating_sub(1);
    let addr = thread.before.addr;
    thread.counted += more;
    for frame in thread.frames.iter_mut().flatten() {
        if frame.form.shows(addr) {
            frame.shown += more;
        }
    }
    if let Some(last) = thread.last() {
        last.count = u32::try_from(times.max(1)).unwrap_or(u32::MAX);
    }
}

fn log(
    thread: &mut Thread,
    instruction: &Instruction,
    bytes: [u8; LONGEST],
    kind: Kind,
    next: Next,
) -> bool {
    let addr = instruction.ip();
    let foretold = match next {
        Next::At(next) => next,
        Next::Either(..) | Next::Unknown => 0,
    };
    let before = thread.before;
    let may = kind == Kind::Repeated || !holds(Cure::OnlyRepeatsFolded);
    let folds = may && before.kind == kind && before.addr == addr;
    let run = bytes.get(..instruction.len()).filter(|_| !folds);
    count(thread, addr, run);
    if folds && let Some(last) = thread.last() {
        last.count = last.count.saturating_add(1);
        last.next = foretold;
        return true;
    }
    let marks = thread.marks();
    thread.push(Entry {
        addr,
        next: foretold,
        count: 1,
        len: u8::try_from(instruction.len()).unwrap_or(0),
        marks,
        bytes,
    })
}

/// Joins the stop at `addr` to the instruction before it, or says that it cannot.
fn join(thread: &mut Thread, registers: &mut Registers<'_>, addr: u64) {
    let before = thread.before;
    match before.kind {
        Kind::First if addr == thread.begin => {}
        Kind::First => thread.blame(Reasons::UNEXPLAINED),
        Kind::Moved => {}
        // Where both are possible the step was lost: the processor's rule, and that of every kernel without FRED.
        Kind::SystemCall | Kind::Shadow
            if holds(Cure::LostStepInserted) && insert(thread, registers, addr) => {}
        _ if before.next.allows(addr) => arrived(thread, addr, false),
        _ => unforetold(thread, registers, addr),
    }
    cure(before.kind, before.fall, thread, registers);
}

pub(super) fn arrived(thread: &mut Thread, addr: u64, unforetold: bool) {
    if let Some(last) = thread.last() {
        last.next = addr;
        if unforetold {
            last.marks |= mark::UNFORETOLD;
        }
    }
}

fn unforetold(thread: &mut Thread, registers: &mut Registers<'_>, addr: u64) {
    let before = thread.before;
    if holds(Cure::SequenceRunsOn) && signature_before(addr) == Some(RSEQ_SIGNATURE) {
        return halt(thread, registers, Reasons::RSEQ);
    }
    let known = before.next == Next::Unknown
        && !before.successors.anywhere
        && before.successors.allow(addr);
    let probe = before.kind == Kind::Breakpoint;
    if known || probe {
        // A uprobe's breakpoint hides its instruction; the trace is checked against the file's bytes.
        arrived(thread, addr, true);
    } else {
        thread.blame(Reasons::UNEXPLAINED);
    }
}

fn signature_before(addr: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    (memory::read(addr.wrapping_sub(4), &mut bytes) == bytes.len())
        .then(|| u32::from_le_bytes(bytes))
}

/// Inserts the one instruction that ran untrapped behind the one before, if it explains this stop.
fn insert(thread: &mut Thread, registers: &mut Registers<'_>, addr: u64) -> bool {
    let at = thread.before.fall;
    let mut bytes = [0; LONGEST];
    let got = memory::read(at, &mut bytes);
    let Some(lost) = flow::decode(at, bytes.get(..got).unwrap_or_default()) else {
        return false;
    };
    if !leads(&lost, registers, addr) {
        return false;
    }
    arrived(thread, at, false);
    let len = lost.len();
    if thread.ahead.get(..len) != bytes.get(..len) && holds(Cure::ChangedCodeNoted) {
        thread.blame(Reasons::CODE_CHANGED);
    }
    if mentions(&lost, Register::R11) && thread.before.kind == Kind::SystemCall {
        thread.flag_visible = true;
    }
    let entry = Entry {
        addr: at,
        next: addr,
        count: 1,
        len: u8::try_from(lost.len()).unwrap_or(0),
        marks: mark::INSERTED,
        bytes,
    };
    count(thread, at, bytes.get(..lost.len()));
    if !thread.push(entry) {
        halt(thread, registers, Reasons::RING_FULL);
    }
    cure(kind(&lost), lost.next_ip(), thread, registers);
    true
}

/// Whether an instruction that has run can have led to `addr`, by the registers that it left.
fn leads(lost: &Instruction, registers: &Registers<'_>, addr: u64) -> bool {
    let successors = flow::successors(lost);
    if !successors.anywhere {
        return successors.allow(addr);
    }
    if lost.mnemonic() == Mnemonic::Ret {
        let popped = if lost.op_count() > 0 {
            u64::from(lost.immediate16())
        } else {
            0
        };
        let slot = registers.rsp().wrapping_sub(popped + 8);
        return memory::read_word(slot) == Some(addr);
    }
    predict::next(lost, registers).allows(addr)
}

fn mentions(instruction: &Instruction, register: Register) -> bool {
    (0..instruction.op_count())
        .map(|operand| instruction.op_register(operand))
        .chain([instruction.memory_base(), instruction.memory_index()])
        .any(|other| other.full_register() == register)
}

/// Takes the trap flag out of what the program can see of its flags.
pub(super) fn cure(kind: Kind, fall: u64, thread: &mut Thread, registers: &mut Registers<'_>) {
    match kind {
        _ if !holds(Cure::FlagHidden) => {}
        // SYSCALL leaves the flags in r11, and the address behind it in rcx.
        Kind::SystemCall if registers.rcx() == fall => {
            registers.set_r11(registers.r11() & !TRAP_FLAG);
        }
        Kind::PushesFlags => {
            let slot = registers.rsp().wrapping_add(1);
            let mut byte = [0];
            let cured =
                memory::read(slot, &mut byte) == 1 && memory::write(slot, &[byte[0] & !1]).is_ok();
            thread.flag_visible |= !cured;
        }
        _ => {}
    }
}
