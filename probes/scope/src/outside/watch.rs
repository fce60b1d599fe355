//! The traced process: its threads with their triggers, and what is done with every stop that is not part of a recording.
//! Threads are traced without being stopped; nothing that a system call returns changes by it.
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::breakpoint::{Breakpoint, MARK, Wait};
use super::message::{Arm, Gate};
use super::process::{self, Signals};
use super::sys::{self, Registers, SignalInfo, Stop, Tid};
use super::waits::Again;

/// `si_code` of a perf event's SIGTRAP.
const TRAP_PERF: i32 = 6;
/// `si_code` of a signal that a descriptor sent.
const POLL_IN: i32 = 1;

/// Why the guardian cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct Refusal {
    pub(super) gate: Gate,
    pub(super) why: String,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        let gate = match error.raw_os_error() {
            Some(libc::ESRCH | libc::ECHILD) => Gate::Gone,
            Some(libc::EPERM | libc::EACCES) => Gate::Permission,
            _ => Gate::System,
        };
        Self {
            gate,
            why: error.to_string(),
        }
    }
}

/// What happened outside of any recording.
#[derive(Debug)]
pub(super) enum Happened {
    /// A thread is about to run the function's first instruction, and is stopped there.
    Called(Tid, Box<Registers>),
    /// The program's first instruction is next, and the thread is stopped there.
    Began(Tid),
    /// The process executed another program.
    Replaced,
    /// The last thread is gone.
    Exited,
    /// The tool said something, or is gone.
    Input,
}

#[derive(Debug, Default)]
struct Thread {
    triggers: Vec<Breakpoint>,
    /// It could not be given any.
    blind: bool,
}

/// The watched process.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) pid: Tid,
    threads: BTreeMap<Tid, Thread>,
    pub(super) arm: Arm,
    go: bool,
    /// Waiting for the program to begin.
    held: bool,
    begin: Option<Breakpoint>,
    replaced: bool,
    children: OwnedFd,
    input: i32,
    pub(super) later: VecDeque<(Tid, Stop)>,
    /// System calls that are made again.
    pub(super) again: BTreeMap<Tid, Again>,
    /// Threads that signals came to which do nothing.
    pub(super) disturbed: BTreeSet<Tid>,
    pub(super) passed: u64,
    pub(super) late: u64,
}

impl Watch {
    /// Traces all threads of a process.
    pub(super) fn seize(pid: u32, held: bool, input: i32) -> Result<Self, Refusal> {
        let pid = Tid::try_from(pid).map_err(|_error| io::Error::from_raw_os_error(libc::ESRCH))?;
        let mut watch = Self {
            pid,
            threads: BTreeMap::new(),
            arm: Arm::default(),
            go: false,
            held,
            begin: None,
            replaced: false,
            children: sys::child_events()?,
            input,
            later: VecDeque::new(),
            again: BTreeMap::new(),
            disturbed: BTreeSet::new(),
            passed: 0,
            late: 0,
        };
        // Who may suspend a filter for one call is asked before anything is done.
        if Signals::of(pid).filtered && !process::may_administer() {
            return Err(refusal(
                pid,
                pid,
                &io::Error::from_raw_os_error(libc::EPERM),
            ));
        }
        // Threads may be born meanwhile: those of a traced one are traced from their birth.
        loop {
            let new: Vec<Tid> = process::threads(pid)
                .into_iter()
                .filter(|tid| !watch.threads.contains_key(tid))
                .collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                match sys::seize(tid, OPTIONS) {
                    Ok(()) => _ = watch.threads.insert(tid, Thread::default()),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) && tid != pid => {}
                    Err(error) => return Err(refusal(pid, tid, &error)),
                }
            }
        }
        if watch.threads.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH).into());
        }
        Ok(watch)
    }

    /// How many threads are traced.
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// How many of them tell of calls.
    pub(super) fn seeing(&self) -> usize {
        self.threads.values().filter(|thread| !thread.blind).count()
    }

    /// Waits for calls from now on.
    pub(super) fn arm(&mut self, arm: Arm) -> Result<(), Refusal> {
        self.go = arm.go;
        self.arm = arm;
        self.held = false;
        self.begin = None;
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            self.arm_thread(tid)?;
        }
        if !self.threads.is_empty() && self.seeing() == 0 {
            return Err(Refusal {
                gate: Gate::System,
                why: "the program handles SIGURG, SIGWINCH and SIGCHLD: no signal is left that could \
                      tell of a call without harm"
                    .into(),
            });
        }
        Ok(())
    }

    fn arm_thread(&mut self, tid: Tid) -> Result<(), Refusal> {
        let Some(signal) = Signals::of(tid).trigger(self.go) else {
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.blind = true;
            }
            return Ok(());
        };
        let mut triggers = Vec::new();
        for entry in &self.arm.entries {
            match Breakpoint::trigger(tid, Wait::Run(*entry), signal) {
                Ok(trigger) => triggers.push(trigger),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                Err(error) => return Err(breakpoint_refusal(&error)),
            }
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.triggers = triggers;
        }
        Ok(())
    }

    /// Waits for nothing any more.
    pub(super) fn disarm(&mut self) {
        self.begin = None;
        for thread in self.threads.values_mut() {
            thread.triggers.clear();
        }
    }

    /// Lets the program run to its own first instruction.
    pub(super) fn go_on_to_begin(&mut self, tid: Tid) -> Result<(), Refusal> {
        self.begin = None;
        self.held = true;
        Ok(sys::resume(tid, 0)?)
    }

    /// Switches the triggers of one thread on or off.
    pub(super) fn trigger(&mut self, tid: Tid, on: bool) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            for trigger in &mut thread.triggers {
                // One that cannot be switched is an extra stop, no harm.
                drop(trigger.enable(on));
            }
        }
    }

    /// All triggers on.
    pub(super) fn trigger_all(&mut self) {
        for thread in self.threads.values_mut() {
            for trigger in &mut thread.triggers {
                drop(trigger.enable(true));
            }
        }
    }

    /// The next thing that happens.
    pub(super) fn next(&mut self) -> Result<Happened, Refusal> {
        loop {
            if self.threads.is_empty() {
                return Ok(Happened::Exited);
            }
            let Some((tid, stop)) = self.wait(None)? else {
                return Ok(Happened::Input);
            };
            if let Some(happened) = self.serve(tid, stop)? {
                return Ok(happened);
            }
        }
    }

    /// The next stop of any thread; `None` when the tool says something or `until` (in ns) has come.
    fn wait(&mut self, until: Option<u64>) -> io::Result<Option<(Tid, Stop)>> {
        loop {
            if let Some(stop) = self.later.pop_front() {
                return Ok(Some(stop));
            }
            sys::drain(&self.children);
            if let Some(stop) = sys::wait(-1, false)? {
                return Ok(Some(stop));
            }
            let ms = match until.map(|until| until.saturating_sub(sys::now_ns())) {
                Some(0) => return Ok(None),
                Some(left) => i32::try_from(left / 1_000_000 + 1).unwrap_or(i32::MAX),
                None => -1,
            };
            let (stopped, said) = sys::readable(self.children.as_raw_fd(), self.input, ms);
            if said && !stopped {
                return Ok(None);
            }
        }
    }

    /// The next stop of one thread, within a step: it comes soon.
    pub(super) fn stop_of(&mut self, tid: Tid) -> Result<Stop, Refusal> {
        loop {
            let Some((who, stop)) = sys::wait(-1, true)? else {
                continue;
            };
            if who == tid {
                return Ok(self.noted(tid, stop));
            }
            self.aside(who, stop)?;
        }
    }

    /// The next stop of one thread that runs natively; `None` when the tool says something or `until` has come.
    pub(super) fn stop_until(
        &mut self,
        tid: Tid,
        until: Option<u64>,
    ) -> Result<Option<Stop>, Refusal> {
        loop {
            match self.wait(until)? {
                None => return Ok(None),
                Some((who, stop)) if who == tid => return Ok(Some(self.noted(tid, stop))),
                Some((who, stop)) => self.aside(who, stop)?,
            }
        }
    }

    /// The thread that is recorded may end, or be replaced by another program.
    fn noted(&mut self, tid: Tid, stop: Stop) -> Stop {
        if let Stop::Event(libc::PTRACE_EVENT_EXEC, _) = stop {
            self.replaced = true;
            self.later.push_back((tid, stop));
            return Stop::Gone;
        }
        if stop == Stop::Gone {
            self.threads.remove(&tid);
        }
        stop
    }

    /// A stop of another thread than the one that is recorded.
    fn aside(&mut self, tid: Tid, stop: Stop) -> Result<(), Refusal> {
        if matches!(stop, Stop::Event(libc::PTRACE_EVENT_EXEC, _)) {
            self.later.push_back((tid, stop));
            return Ok(());
        }
        if let Some(Happened::Called(..)) = self.serve(tid, stop)? {
            self.passed += 1;
            self.trigger(tid, false);
            self.resume(tid, 0)?;
        }
        Ok(())
    }

    /// Serves a stop, and lets the thread run on, unless something happened that others must know.
    fn serve(&mut self, tid: Tid, stop: Stop) -> Result<Option<Happened>, Refusal> {
        match stop {
            Stop::Gone => _ = self.threads.remove(&tid),
            Stop::SystemCall => self.made_again(tid)?,
            Stop::Event(libc::PTRACE_EVENT_EXEC, _) => return self.executed(tid),
            Stop::Event(..) if stop.is_group_stop() => sys::listen(tid)?,
            Stop::Event(..) => {
                self.meet(tid)?;
                self.resume(tid, 0)?;
            }
            Stop::Signal(signal) => return self.signal(tid, signal),
        }
        Ok(None)
    }

    /// A thread that was born traced.
    fn meet(&mut self, tid: Tid) -> Result<(), Refusal> {
        if self.threads.contains_key(&tid) {
            return Ok(());
        }
        self.threads.insert(tid, Thread::default());
        self.arm_thread(tid)
    }

    fn executed(&mut self, tid: Tid) -> Result<Option<Happened>, Refusal> {
        if !self.held {
            return Ok(Some(Happened::Replaced));
        }
        // All other threads are gone with the old program.
        self.threads.clear();
        self.threads.insert(tid, Thread::default());
        let begin = process::entry(self.pid).ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        let signal = Signals::of(tid).trigger(false).unwrap_or(libc::SIGURG);
        let trigger = Breakpoint::trigger(tid, Wait::Run(begin), signal);
        self.begin = Some(trigger.map_err(|error| breakpoint_refusal(&error))?);
        self.resume(tid, 0)?;
        Ok(None)
    }

    fn signal(&mut self, tid: Tid, signal: i32) -> Result<Option<Happened>, Refusal> {
        let info = sys::signal_info(tid).unwrap_or_default();
        if is_trigger(signal, info) {
            let registers = sys::registers(tid)?;
            if self.begin.take().is_some() {
                return Ok(Some(Happened::Began(tid)));
            }
            if self.arm.entries.contains(&registers.rip) {
                return Ok(Some(Happened::Called(tid, Box::new(registers))));
            }
            self.late += 1;
            self.resume(tid, 0)?;
            return Ok(None);
        }
        if trap_number(signal, info).is_some() {
            // Of a recording that is over.
            self.resume(tid, 0)?;
            return Ok(None);
        }
        self.deliver(tid, signal)?;
        Ok(None)
    }

    /// Lets a thread run; one that was killed meanwhile is no error.
    pub(super) fn resume(&mut self, tid: Tid, signal: i32) -> Result<(), Refusal> {
        match sys::resume(tid, signal) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Whether a trigger of ours sent this signal.
pub(super) fn is_trigger(signal: i32, info: SignalInfo) -> bool {
    info.code == POLL_IN && [libc::SIGURG, libc::SIGWINCH, libc::SIGCHLD].contains(&signal)
}

/// Which breakpoint of ours sent this SIGTRAP, if one did.
pub(super) fn trap_number(signal: i32, info: SignalInfo) -> Option<u8> {
    let ours = signal == libc::SIGTRAP && info.code == TRAP_PERF;
    ours.then_some(info.perf_data ^ MARK)
        .and_then(|number| u8::try_from(number).ok())
}

/// How all threads are traced.
pub(super) const OPTIONS: i32 =
    libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;

fn refusal(pid: Tid, tid: Tid, error: &io::Error) -> Refusal {
    let signals = Signals::of(tid);
    let why = match signals.tracer {
        0 if signals.filtered => format!(
            "process {pid} runs under a seccomp filter, which must be suspended while a handler is set: that needs \
             CAP_SYS_ADMIN ({error})"
        ),
        0 => format!(
            "process {pid} may not be traced ({error}): run as root or as its owner, and see \
             /proc/sys/kernel/yama/ptrace_scope"
        ),
        tracer => format!(
            "process {pid} is traced by process {tracer} (a debugger or strace) already: end that first"
        ),
    };
    Refusal {
        gate: Refusal::from(io::Error::from_raw_os_error(
            error.raw_os_error().unwrap_or(0),
        ))
        .gate,
        why,
    }
}

fn breakpoint_refusal(error: &io::Error) -> Refusal {
    let why = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            format!(
                "hardware breakpoints are denied ({error}): see /proc/sys/kernel/perf_event_paranoid"
            )
        }
        Some(libc::ENOSPC) => {
            "no hardware breakpoint is free in the process: another tool has them".into()
        }
        Some(libc::EMFILE | libc::ENFILE) => format!("{error}: a descriptor a thread is needed"),
        _ => format!("no hardware breakpoint can be set: {error}"),
    };
    Refusal {
        gate: Refusal::from(io::Error::from_raw_os_error(
            error.raw_os_error().unwrap_or(0),
        ))
        .gate,
        why,
    }
}
