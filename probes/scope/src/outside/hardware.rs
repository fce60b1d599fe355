//! Calls that the processor records itself, by Intel PT or by branch records: the thread runs at full speed from the
//! function's first instruction to its return. Nothing is stepped, and nothing is put into the process.
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::breakpoint::{Breakpoint, Wait};
use super::decoder::{Piece, Raw, Recording};
use super::message::{Gate, Hardware};
use super::process::{Signals, is_trampoline};
use super::record::{Frame, MOST_POPPED};
use super::sys::{self, Registers, Stop, Tid};
use super::watch::{Refusal, Watch, is_trigger};
use crate::lbr::live::Survey;
use crate::maps::Map;
use crate::perf::{self, Door};
use crate::pt::live::Recorder;
use crate::trace::Reasons;

/// How long a call is recorded. It is not disturbed when the time is over.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Code that is copied.
const MOST_CODE: u64 = 256 << 20;
const EPERM: i32 = 1;
const EACCES: i32 = 13;

/// The event that records one thread.
enum Event {
    Pt(Recorder),
    Lbr(Survey),
}

/// How a recorded call ended.
struct Ended {
    reasons: Reasons,
    /// The thread is stopped; else it runs, or is gone.
    stopped: bool,
    returned: bool,
    started: u64,
}

/// What tells that the thread is not in the call any more.
struct Behind {
    /// Where the call comes back to.
    _back: Breakpoint,
    /// The slot of its return address, which nobody writes while its frame is there: a thread that has left by longjmp
    /// writes it when its stack grows again. Without a free debug register such a call ends by the time that it may take.
    _slot: Option<Breakpoint>,
}

/// Records the call whose first instruction is next, and lets the thread run on.
pub(super) fn call(
    watch: &mut Watch,
    (tid, registers): (Tid, &Registers),
    hardware: &Hardware,
    door: &dyn Door,
    code: &mut CodeCopies,
) -> Result<Recording, Refusal> {
    let begin_ns = sys::now_ns();
    watch.trigger(tid, false);
    // What the process keeps as it is, as long as it is there: it may be gone at the end.
    code.renew(watch.pid, Which::Files);
    let frame = Frame {
        slot: registers.rsp,
        ret: sys::read_word(tid, registers.rsp).unwrap_or(0),
    };
    let opened = behind(watch, tid, frame).and_then(|back| Ok((back, open(hardware, door, tid)?)));
    let (back, event) = match opened {
        Ok(opened) => opened,
        Err(refusal) => {
            // It goes on as if nothing had been.
            watch.resume(tid, 0)?;
            return Err(refusal);
        }
    };
    watch.resume(tid, 0)?;
    let ended = returned(watch, tid, frame);
    let (raw, missing) = event.stop();
    drop(back);
    let ended = ended?;
    let end_ns = sys::now_ns();
    code.renew(watch.pid, Which::All);
    watch.trigger(tid, true);
    if ended.stopped {
        watch.resume(tid, 0)?;
    }
    Ok(Recording {
        tid: tid.unsigned_abs(),
        begin_ns,
        end_ns,
        entry: registers.rip,
        returned: ended.returned,
        started: ended.started,
        reasons: ended.reasons.with(missing),
        raw,
        code: code.pieces(),
        followed: watch.arm.followed.clone(),
        most_steps: watch.arm.budget_steps,
    })
}

/// The breakpoints that tell of the call's end.
fn behind(watch: &Watch, tid: Tid, frame: Frame) -> Result<Behind, Refusal> {
    let signal = Signals::of(tid).trigger(watch.arm.go);
    let signal = signal.ok_or_else(|| Refusal {
        gate: Gate::System,
        why: "no signal is left that could tell of a return without harm".into(),
    })?;
    Ok(Behind {
        _back: Breakpoint::trigger(tid, Wait::Run(frame.ret), signal)?,
        _slot: Breakpoint::trigger(tid, Wait::Write(frame.slot), signal).ok(),
    })
}

fn open(hardware: &Hardware, door: &dyn Door, tid: Tid) -> Result<Event, Refusal> {
    let thread = tid.unsigned_abs();
    match hardware {
        Hardware::Pt(pmu) => {
            let mut recorder =
                Recorder::open_on(door, pmu, thread).map_err(|no| told("intel-pt", no))?;
            recorder.enable().map_err(|no| told("intel-pt", no))?;
            Ok(Event::Pt(recorder))
        }
        Hardware::Lbr => {
            let survey = Survey::start_on(door, thread).map_err(|no| told("lbr", no))?;
            Ok(Event::Lbr(survey))
        }
    }
}

fn told(tier: &str, refusal: perf::Refusal) -> Refusal {
    let gate = match refusal.errno {
        EPERM | EACCES => Gate::Permission,
        _ => Gate::System,
    };
    Refusal {
        gate,
        why: refusal.sentence(tier),
    }
}

impl Event {
    /// Ends it, whether the thread runs or not.
    fn stop(self) -> (Raw, Reasons) {
        match self {
            Self::Pt(mut recorder) => {
                let (packets, missing) = recorder.stop();
                (Raw::Packets(packets), missing)
            }
            Self::Lbr(mut survey) => (Raw::Samples(survey.take()), Reasons::NONE),
        }
    }
}

/// Waits for the return. Signals that come meanwhile are the program's own.
fn returned(watch: &mut Watch, tid: Tid, frame: Frame) -> Result<Ended, Refusal> {
    let until = sys::now_ns() + PATIENCE_NS;
    let mut started = 0;
    let ended = |reasons, stopped, started| Ended {
        reasons,
        stopped,
        returned: reasons == Reasons::NONE,
        started,
    };
    loop {
        let Some(stop) = watch.stop_until(tid, Some(until))? else {
            let late = sys::now_ns() >= until;
            let reason = if late {
                Reasons::BUDGET
            } else {
                Reasons::OPEN_END
            };
            return Ok(ended(reason, false, started));
        };
        match stop {
            Stop::Gone => return Ok(ended(Reasons::LEFT, false, started)),
            Stop::Signal(signal) => {
                let info = sys::signal_info(tid).unwrap_or_default();
                if !is_trigger(signal, info) {
                    watch.deliver(tid, signal)?;
                    continue;
                }
                let registers = sys::registers(tid)?;
                if registers.rsp > frame.slot {
                    let there =
                        registers.rip == frame.ret && registers.rsp - frame.slot - 8 <= MOST_POPPED;
                    let reason = if there { Reasons::NONE } else { Reasons::LEFT };
                    return Ok(ended(reason, true, started));
                }
                if is_left(watch, tid, frame, &registers) {
                    return Ok(ended(Reasons::LEFT, true, started));
                }
                watch.resume(tid, 0)?;
            }
            stop if stop.is_group_stop() => sys::listen(tid)?,
            Stop::SystemCall => watch.made_again(tid)?,
            Stop::Event(event, _) => {
                started += u64::from(event == libc::PTRACE_EVENT_CLONE);
                watch.resume(tid, 0)?;
            }
        }
    }
}

/// A breakpoint was met no higher than the call's frame: whether the frame is gone all the same.
fn is_left(watch: &Watch, tid: Tid, frame: Frame, registers: &Registers) -> bool {
    // The same code, deeper: another activation of it. Or the trampoline of a return probe, which uses the stack where the
    // return address was.
    if registers.rip == frame.ret || is_trampoline(watch.pid, registers.rip) {
        return false;
    }
    // The slot was written. By a call from the same place it has the value that it had.
    let called = registers.rsp == frame.slot && watch.arm.entries.contains(&registers.rip);
    called || sys::read_word(tid, frame.slot) != Some(frame.ret)
}

/// Which code is copied.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    /// That of files.
    Files,
    All,
}

/// Copies of a process's code. What is a file's and cannot be written is copied once.
#[derive(Debug, Default)]
pub(super) struct CodeCopies {
    kept: BTreeMap<(u64, u64, u64, String), Arc<Vec<u8>>>,
    pieces: Vec<Piece>,
}

impl CodeCopies {
    /// Copies what is not there yet, and what may have changed.
    fn renew(&mut self, pid: Tid, which: Which) {
        let maps = Map::of(pid);
        let Ok(memory) = std::fs::File::open(format!("/proc/{pid}/mem")) else {
            return;
        };
        if maps.is_empty() {
            return;
        }
        let mut pieces = Vec::new();
        let mut copied = 0;
        for map in maps.into_iter().filter(|map| map.executable) {
            let len = map.end - map.start;
            if copied + len > MOST_CODE {
                continue;
            }
            let read = || {
                let mut bytes = vec![0; usize::try_from(len).ok()?];
                memory.read_exact_at(&mut bytes, map.start).ok()?;
                Some(Arc::new(bytes))
            };
            let bytes = match &map.path {
                Some(path) if path.starts_with('/') && !map.writable => {
                    let key = (map.start, map.end, map.offset, path.clone());
                    match self.kept.get(&key) {
                        Some(bytes) => Some(Arc::clone(bytes)),
                        None => {
                            read().inspect(|bytes| _ = self.kept.insert(key, Arc::clone(bytes)))
                        }
                    }
                }
                _ if which == Which::Files => None,
                _ => read(),
            };
            if let Some(bytes) = bytes {
                copied += len;
                pieces.push((map.start, bytes));
            }
        }
        self.pieces = pieces;
    }

    fn pieces(&self) -> Vec<Piece> {
        self.pieces.clone()
    }
}
