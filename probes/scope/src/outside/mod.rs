//! Scopes of another process: a small process of its own, the guardian, waits for calls of a function and steps them by
//! ptrace. It never interrupts a thread, so that no system call returns anything else than it would have; and it may be
//! killed at any moment without harm to the process.
//!
//! The guardian knows addresses only: what they mean is the tool's, which it talks to over two pipes.
#![expect(
    unsafe_code,
    reason = "ptrace, perf events, and a handler for another process"
)]
mod breakpoint;
mod decoder;
mod guard;
mod handler;
mod hardware;
mod log;
mod machine;
pub mod message;
mod process;
mod record;
mod run;
mod step;
mod sys;
mod waits;
mod watch;

use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;

use crate::perf::{Door, Kernel};

use decoder::Decoder;
use hardware::CodeCopies;
use message::{Arm, End, Order, Report};
use sys::{Registers, Tid};
use watch::{Happened, Refusal, Watch};

/// Guards one process until the calls that were asked for are recorded, or until the input ends: orders come by stdin,
/// reports go to stdout, and the last one says how it ended. To be run in a process of its own.
///
/// # Errors
/// The tool does not speak as it should, or does not listen.
pub fn guard() -> io::Result<()> {
    guard_by(&Kernel)
}

/// The same, where `door` opens the events by which a processor records.
///
/// # Errors
/// As of [`guard()`].
pub fn guard_by(door: &(dyn Door + Sync)) -> io::Result<()> {
    sys::outlive_the_terminal();
    sys::hold_child_signal();
    // A thread of its own traces: its end lets go of all threads at once, while the end of a process takes its time.
    let traced = std::thread::scope(|scope| {
        let trace = || trace(&mut io::stdin().lock(), &mut io::stdout().lock(), door);
        scope.spawn(trace).join()
    });
    let traced = traced.map_err(|_panic| io::Error::other("the tracing thread panicked"))?;
    let output = &mut io::stdout().lock();
    let last = match traced.and_then(|traced| traced.end(output)) {
        Ok(last) => last,
        Err(Trouble::Refused(Refusal { gate, why })) => Report::Refused { gate, why },
        Err(Trouble::Pipe(error)) => return Err(error),
    };
    say(output, &last)
}

enum Trouble {
    Refused(Refusal),
    Pipe(io::Error),
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What is left to do when all threads are let go: nothing that they should have to wait for.
struct Traced<'d> {
    watch: Watch,
    recordings: Recordings<'d>,
    why: End,
}

impl Traced<'_> {
    fn end(self, output: &mut impl Write) -> Result<Report, Trouble> {
        if let Some(decoder) = self.recordings.decoder {
            for call in decoder.rest().map_err(Trouble::Pipe)? {
                tell(output, &Report::Call(Box::new(call)))?;
            }
        }
        Ok(Report::Ended {
            why: self.why,
            passed: self.watch.passed,
            late: self.watch.late,
        })
    }
}

fn trace<'d>(
    input: &mut (impl BufRead + AsFd),
    output: &mut impl Write,
    door: &'d (dyn Door + Sync),
) -> Result<Traced<'d>, Trouble> {
    let fd = input.as_fd().as_raw_fd();
    let Some(Order::Seize { pid, held }) = hear(input)? else {
        return Err(wrong_order());
    };
    let mut watch = Watch::seize(pid, held, fd)?;
    let threads = watch.threads();
    tell(output, &Report::Seized { threads })?;
    let mut recordings = Recordings {
        door,
        decoder: None,
        code: CodeCopies::default(),
    };
    let why = follow(&mut watch, input, output, &mut recordings)?;
    watch.let_go()?;
    Ok(Traced {
        watch,
        recordings,
        why,
    })
}

/// What calls are recorded with that are not stepped.
struct Recordings<'d> {
    door: &'d (dyn Door + Sync),
    decoder: Option<Decoder>,
    code: CodeCopies,
}

fn follow(
    watch: &mut Watch,
    input: &mut (impl BufRead + AsFd),
    output: &mut impl Write,
    recordings: &mut Recordings<'_>,
) -> Result<End, Trouble> {
    let mut calls = 0;
    loop {
        match watch.next()? {
            Happened::Exited => return Ok(End::Exited),
            Happened::Replaced => return Ok(End::Replaced),
            Happened::Input => match hear(input)? {
                None => return Ok(End::Asked),
                Some(Order::Arm(arm)) => armed(watch, arm, output)?,
                Some(_) => return Err(wrong_order()),
            },
            Happened::Began(tid) => {
                tell(output, &Report::Began)?;
                if !began(watch, tid, input, output)? {
                    return Ok(End::Asked);
                }
            }
            Happened::Called(tid, registers) => {
                called(watch, tid, *registers, output, recordings)?;
                calls += 1;
                if calls >= watch.arm.calls {
                    return Ok(End::Calls);
                }
                watch.trigger_all();
            }
        }
    }
}

/// A call that is asked for is about to run.
fn called(
    watch: &mut Watch,
    tid: Tid,
    registers: Registers,
    output: &mut impl Write,
    recordings: &mut Recordings<'_>,
) -> Result<(), Trouble> {
    let Some(hardware) = watch.arm.hardware.clone() else {
        let call = record::call(watch, tid, registers)?;
        return tell(output, &Report::Call(Box::new(call)));
    };
    let Recordings {
        door,
        decoder,
        code,
    } = recordings;
    let recording = hardware::call(watch, (tid, &registers), &hardware, *door, code)?;
    let decoder = match decoder {
        Some(decoder) => decoder,
        None => decoder.insert(Decoder::start().map_err(Trouble::Pipe)?),
    };
    decoder.take(recording);
    for call in decoder.ready() {
        tell(output, &Report::Call(Box::new(call)))?;
    }
    Ok(())
}

/// The program stands at its first instruction: what now? `false`: nobody asks any more.
fn began(
    watch: &mut Watch,
    tid: Tid,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<bool, Trouble> {
    match hear(input)? {
        None => return Ok(false),
        Some(Order::Arm(arm)) => {
            armed(watch, arm, output)?;
            watch.resume(tid, 0)?;
        }
        Some(Order::Next) => watch.go_on_to_begin(tid)?,
        Some(Order::Seize { .. }) => return Err(wrong_order()),
    }
    Ok(true)
}

fn armed(watch: &mut Watch, arm: Arm, output: &mut impl Write) -> Result<(), Trouble> {
    watch.arm(arm)?;
    let threads = watch.seeing();
    tell(output, &Report::Armed { threads })
}

fn wrong_order() -> Trouble {
    Trouble::Pipe(io::Error::new(
        io::ErrorKind::InvalidData,
        "an order out of turn",
    ))
}

fn hear(input: &mut impl BufRead) -> Result<Option<Order>, Trouble> {
    let mut line = String::new();
    let got = input.read_line(&mut line).map_err(Trouble::Pipe)?;
    if got == 0 {
        return Ok(None);
    }
    let order = serde_json::from_str(&line).map_err(|error| Trouble::Pipe(error.into()))?;
    Ok(Some(order))
}

fn tell(output: &mut impl Write, report: &Report) -> Result<(), Trouble> {
    say(output, report).map_err(Trouble::Pipe)
}

fn say(output: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_string(report)?;
    line.push('\n');
    output.write_all(line.as_bytes())?;
    output.flush()
}
