//! `dump`: the stacks of all threads, for people or as JSON.

use serde::Serialize;

use crate::caps::Abilities;
use crate::exit::Outcome;
use crate::function::UnknownReason;
use crate::host;
use crate::output::{Output, Paint, Stream};
use crate::plan::DumpPlan;
use crate::stacks::{self, Dump, NamedFrame, Thread};
use crate::target::{Process, TargetError};
use crate::unwind::End;

#[derive(Serialize)]
struct DumpJson<'a> {
    schema: &'static str,
    pid: u32,
    name: &'a str,
    threads: Vec<ThreadJson<'a>>,
}

#[derive(Serialize)]
struct ThreadJson<'a> {
    tid: u32,
    name: &'a str,
    state: char,
    syscall: Option<&'a str>,
    waits_in: Option<&'a str>,
    /// Down to the thread's first function.
    complete: bool,
    /// Why not.
    reason: Option<String>,
    frames: Vec<FrameJson<'a>>,
}

#[derive(Serialize)]
struct FrameJson<'a> {
    address: String,
    function: Option<&'a str>,
    module: Option<&'a str>,
    module_offset: Option<u64>,
    file: Option<&'a str>,
    line: Option<u32>,
    unknown: Option<&'static str>,
    by_frame_pointer: bool,
}

pub(super) fn run(plan: DumpPlan, output: &Output) -> anyhow::Result<Outcome> {
    let process = Process::open(plan.pid)?;
    if let Some(blocker) = Abilities::of(&host::facts()).first_blocker() {
        return Err(blocker.clone().into());
    }
    let dump = stacks::dump(&process, plan.tid)?;
    if let (Some(tid), true) = (plan.tid, dump.threads.is_empty()) {
        let pid = plan.pid;
        return Err(TargetError::NoSuchThread { pid, tid }.into());
    }
    for (file, why) in &dump.unread {
        output.warn(&format!("stacks through {file} may be cut: {why}"));
    }
    let text = if plan.json {
        serde_json::to_string_pretty(&json(&dump))? + "\n"
    } else {
        text(&dump, plan.merge, output.stdout())
    };
    output.data(text)?;
    Ok(if dump.threads.iter().all(Thread::is_whole) {
        Outcome::Done
    } else {
        Outcome::Partial
    })
}

fn json(dump: &Dump) -> DumpJson<'_> {
    DumpJson {
        schema: "scalpel.dump/1",
        pid: dump.pid.0,
        name: &dump.name,
        threads: dump.threads.iter().map(thread_json).collect(),
    }
}

fn thread_json(thread: &Thread) -> ThreadJson<'_> {
    let frames = thread.stack.as_ref().map(|stack| stack.frames.as_slice());
    ThreadJson {
        tid: thread.tid.0,
        name: &thread.name,
        state: thread.state,
        syscall: thread.syscall.as_deref(),
        waits_in: thread.waits_in.as_deref(),
        complete: thread.is_whole(),
        reason: why_not_whole(thread),
        frames: frames.unwrap_or_default().iter().map(frame_json).collect(),
    }
}

fn frame_json(frame: &NamedFrame) -> FrameJson<'_> {
    let info = frame.function.as_ref().ok();
    let place = frame.place.as_ref();
    FrameJson {
        address: format!("{:#x}", frame.frame.address),
        function: info.map(|info| &*info.name),
        module: place
            .map(|(module, _)| &**module)
            .or(info.map(|info| &*info.module)),
        module_offset: place.map(|(_, offset)| *offset),
        file: frame.line.as_ref().map(|(file, _)| &**file),
        line: frame.line.as_ref().and_then(|(_, line)| *line),
        unknown: match &frame.function {
            Ok(info) => info.unknown.as_ref(),
            Err(why) => Some(why),
        }
        .map(UnknownReason::word),
        by_frame_pointer: frame.frame.by_frame_pointer,
    }
}

fn why_not_whole(thread: &Thread) -> Option<String> {
    match &thread.stack {
        Err(why) => Some(why.clone()),
        Ok(stack) => match &stack.end {
            End::Root => None,
            End::Lost(why) => Some(format!("no caller was found: {why}")),
            End::TooDeep => Some(format!("cut after {} frames", stack.frames.len())),
        },
    }
}

fn text(dump: &Dump, merge: bool, stream: Stream) -> String {
    let count = dump.threads.len();
    let threads = if count == 1 { "thread" } else { "threads" };
    let mut text = format!("{} {}: {count} {threads}\n", dump.pid, dump.name);
    // What a stack looks like, and whose it is, in the order of the first.
    let mut stacks: Vec<(String, Vec<&Thread>)> = Vec::new();
    for thread in &dump.threads {
        let body = body(thread, stream);
        let same = stacks.iter_mut().find(|(of, threads)| {
            let first = threads.first().map(|first| head(first));
            merge && *of == body && first == Some(head(thread))
        });
        match same {
            Some((_, threads)) => threads.push(thread),
            None => stacks.push((body, vec![thread])),
        }
    }
    if merge {
        stacks.sort_by_key(|(_, threads)| std::cmp::Reverse(threads.len()));
    }
    for (body, threads) in stacks {
        text.push_str(&format!(
            "\n{}\n{body}",
            stream.paint(&title(&threads), Paint::Bold)
        ));
    }
    text
}

/// `thread 4711 "worker" sleeping in futex (futex_do_wait)`, or `12 threads ...` with the first ids.
fn title(threads: &[&Thread]) -> String {
    const IDS: usize = 8;
    let Some(first) = threads.first() else {
        return String::new();
    };
    if threads.len() == 1 {
        return format!("thread {} \"{}\" {}", first.tid, first.name, head(first));
    }
    let ids: Vec<String> = threads
        .iter()
        .take(IDS)
        .map(|thread| thread.tid.to_string())
        .collect();
    let more = if threads.len() > IDS { ", ..." } else { "" };
    format!(
        "{} threads ({}{more}) {}",
        threads.len(),
        ids.join(", "),
        head(first)
    )
}

fn head(thread: &Thread) -> String {
    let state = match thread.state {
        'R' => "running",
        'S' => "sleeping",
        'D' => "in uninterruptible sleep",
        'T' => "stopped",
        't' => "stopped by a tracer",
        'Z' | 'X' | '?' => "ended",
        _ => "idle",
    };
    let syscall = thread.syscall.as_ref().map(|name| format!(" in {name}"));
    let waits = thread.waits_in.as_ref().map(|name| format!(" ({name})"));
    format!(
        "{state}{}{}",
        syscall.unwrap_or_default(),
        waits.unwrap_or_default()
    )
}

fn body(thread: &Thread, stream: Stream) -> String {
    let mut text = String::new();
    let frames = thread.stack.as_ref().map(|stack| stack.frames.as_slice());
    let lines: Vec<String> = frames.unwrap_or_default().iter().map(line).collect();
    let mut number = 0;
    for same in lines.chunk_by(|one, next| one == next) {
        // Recursion: two lines stand for any depth.
        let shown = if same.len() > 2 { 1 } else { same.len() };
        for (below, line) in same.iter().take(shown).enumerate() {
            text.push_str(&format!("  #{:<3} {line}\n", number + below));
        }
        if same.len() > shown {
            text.push_str(&format!("       ... {} times more\n", same.len() - shown));
        }
        number += same.len();
    }
    if let Some(why) = why_not_whole(thread) {
        text.push_str(&format!(
            "  {}\n",
            stream.paint(&format!("[{why}]"), Paint::Yellow)
        ));
    }
    text
}

fn line(frame: &NamedFrame) -> String {
    let name = match (&frame.function, &frame.place) {
        (Ok(info), _) => info.name.clone(),
        (Err(_), Some((module, offset))) => format!("{module}+{offset:#x}"),
        (Err(why), None) => format!("{:#x} [{}]", frame.frame.address, why.word()),
    };
    let module = match (&frame.function, &frame.place) {
        (Ok(info), None) => format!(" ({})", info.module),
        (Ok(_), Some((module, _))) => format!(" ({module})"),
        _ => String::new(),
    };
    let place = frame.line.as_ref().map(|(file, line)| match line {
        Some(line) => format!(" at {file}:{line}"),
        None => format!(" at {file}"),
    });
    let guess = if frame.frame.by_frame_pointer {
        " [caller by frame pointer]"
    } else {
        ""
    };
    format!("{name}{module}{}{guess}", place.unwrap_or_default())
}
