//! Where all threads of a process are now: `dump`. Nothing is stopped, written or attached to.
//!
//! A sleeping thread is exact when it was the same before and after its stack was read; a running one is caught by a
//! sample with a copy of its stack. What cannot be had is said, thread by thread.

mod catch;
mod code;

use crate::event::{MonoTime, Pid, Tid};
use crate::function::FunctionInfo;
use crate::kernel::registers::ThreadLister;
use crate::record::Names;
use crate::symbol::Named;
use crate::target::{Process, Status};
use crate::unwind::{End, Frame};

use catch::{Catcher, Found};
use code::Code;

/// The threads of a process at one moment.
#[derive(Debug)]
pub struct Dump {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// Its threads, in order of id.
    pub threads: Vec<Thread>,
    /// Files without unwind information that could be read, and why: stacks through them may be cut.
    pub unread: Vec<(String, String)>,
}

/// One thread.
#[derive(Debug)]
pub struct Thread {
    /// Its id.
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// State letter of the kernel (R, S, D, T, t); `?` = it has ended since.
    pub state: char,
    /// The system call it is in.
    pub syscall: Option<String>,
    /// The kernel function in which it waits.
    pub waits_in: Option<String>,
    /// Its frames, innermost first, or why there are none.
    pub stack: Result<Stack, String>,
}

/// The frames of one thread.
#[derive(Debug)]
pub struct Stack {
    /// Innermost first.
    pub frames: Vec<NamedFrame>,
    /// Where the walk ended.
    pub end: End,
}

/// One frame with its name.
#[derive(Debug)]
pub struct NamedFrame {
    /// Where.
    pub frame: Frame,
    /// The function, or why it has no name.
    pub function: Named,
    /// File name of the image, and the offset in the file.
    pub place: Option<(String, u64)>,
    /// Source file and line.
    pub line: Option<(String, Option<u32>)>,
}

impl Thread {
    /// Its stack is known down to the thread's first function.
    pub fn is_whole(&self) -> bool {
        self.stack
            .as_ref()
            .is_ok_and(|stack| stack.end == End::Root)
    }
}

/// Looks at all threads of a process, or at one.
pub fn dump(process: &Process, only: Option<Tid>) -> anyhow::Result<Dump> {
    let maps = process.maps()?;
    let code = Code::read(process, &maps)?;
    let lister = ThreadLister::load(process.pid())?;
    let mut catcher = Catcher::new(process, lister, code)?;
    let found = catcher.all(only)?;
    let mut names = Names::new();
    names.describe(process, MonoTime(0));
    let code = catcher.into_code();
    let threads = process.threads().unwrap_or_default();
    let name_of = |tid: Tid| {
        let known = threads.iter().find(|thread| thread.tid == tid);
        known.map_or_else(String::new, |thread| thread.name.clone())
    };
    let described = |found: Found| {
        let (state, waits_in) = state(process, found.tid);
        let stack = found.walk.map(|walk| Stack {
            frames: walk
                .frames
                .into_iter()
                .map(|frame| named(process.pid(), frame, &code, &mut names))
                .collect(),
            end: walk.end,
        });
        Thread {
            tid: found.tid,
            name: name_of(found.tid),
            state,
            syscall: found.syscall,
            waits_in,
            stack,
        }
    };
    Ok(Dump {
        pid: process.pid(),
        name: process.name().to_owned(),
        threads: found.into_iter().map(described).collect(),
        unread: code.unread,
    })
}

/// State letter, and the kernel function that the thread waits in.
fn state(process: &Process, tid: Tid) -> (char, Option<String>) {
    let read = |name: &str| process.read(format!("task/{tid}/{name}")).ok();
    let status = read("status").map(|text| Status::parse(&text));
    let waits_in = read("wchan")
        .map(|text| String::from_utf8_lossy(&text).trim().to_owned())
        .filter(|name| !name.is_empty() && name != "0");
    (status.map_or('?', |status| status.state), waits_in)
}

fn named(pid: Pid, frame: Frame, code: &Code, names: &mut Names) -> NamedFrame {
    let address = frame.address - u64::from(frame.is_return);
    let function = names.resolve(pid, &[address]).pop();
    let function = function.unwrap_or(Err(crate::function::UnknownReason::Unmapped));
    let place = code.place(address);
    let line = match (&function, place) {
        (Ok(info), Some((_, offset))) => names.line(&FunctionInfo {
            file_offset: offset,
            ..FunctionInfo::clone(info)
        }),
        _ => None,
    };
    NamedFrame {
        frame,
        function,
        place: place.map(|(name, offset)| (name.to_owned(), offset)),
        line,
    }
}
