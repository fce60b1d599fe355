//! Who is born into the family of a recording without kernel tracing, and which programs run in it: by the kernel's process
//! connector and a look at each, or else by what the accounts of the targets show.
//!
//! What could not be known is told as such: a function that ran in a child of which nobody knows must not look as if it
//! never ran.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::household::Household;
use super::now_mono;
use crate::event::{Control, MonoTime, Pid};
use crate::kernel::births::Births;
use crate::kernel::kin::Kin;
use crate::probe;
use crate::survey::runtimes;
use crate::target::{Accounts, FileId, Process, Runtime};

/// How often every process is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often the accounts are read, where the processor allows: no interpreter begins and ends in between.
const ACCOUNTS_EVERY: Duration = Duration::from_millis(5);

/// Longest sleep, so that the end is not waited for.
const SLEEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// The family, shared with whoever looks at it.
pub(super) type Shared = Arc<Mutex<Household>>;

/// The thread.
#[derive(Debug)]
pub(super) struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<String>>>,
}

impl Watcher {
    /// Begins to watch; births from now on are told.
    pub(super) fn start(targets: &[Process], household: Shared) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let births = Births::listen();
        let members = members(targets);
        {
            let mut household = locked(&household);
            for (pid, runtimes) in &members {
                household.begin(*pid, runtimes.iter().copied());
            }
        }
        let targets = targets.to_vec();
        let thread = std::thread::Builder::new().name("scalpel-kin".into());
        let thread = thread.spawn(move || match births {
            Ok(births) => Told {
                births,
                kin: Kin::new(members.into_iter().map(|(pid, _)| pid)),
                household,
                files: Files::default(),
                looked: Instant::now(),
                lost: false,
            }
            .run(&stopped),
            Err(_not_told) => Guessed::of(&targets, household).run(&stopped),
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends it. What there is to say where not all that was born is known.
    pub(super) fn finish(mut self) -> Option<String> {
        self.end()
    }

    fn end(&mut self) -> Option<String> {
        self.stop.store(true, Ordering::Release);
        self.thread.take()?.join().ok().flatten()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _unknown = self.end();
    }
}

/// The targets, and who has descended from them by now with the runtimes that he has. What of the targets is seen is
/// settled when their probes are asked.
pub(super) fn members(targets: &[Process]) -> Vec<(Pid, Vec<Runtime>)> {
    let mut members: Vec<(Pid, Vec<Runtime>)> = targets
        .iter()
        .map(|target| (target.pid(), Vec::new()))
        .collect();
    let mut at = 0;
    while let Some((pid, _)) = members.get(at) {
        let children = Process::open(*pid).and_then(|process| process.children());
        at += 1;
        for child in children.unwrap_or_default() {
            // One that has ended meanwhile can run nothing any more.
            if let Ok(process) = Process::open(child)
                && !members.iter().any(|(known, _)| *known == child)
            {
                let found = runtimes::of(&process).unwrap_or_default();
                let found = found.into_iter().map(|present| present.runtime);
                members.push((child, found.collect()));
            }
        }
    }
    members
}

pub(super) fn locked(household: &Mutex<Household>) -> std::sync::MutexGuard<'_, Household> {
    household.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernel tells.
struct Told {
    births: Births,
    kin: Kin,
    household: Shared,
    files: Files,
    looked: Instant,
    lost: bool,
}

impl Told {
    fn run(mut self, stop: &AtomicBool) -> Option<String> {
        loop {
            let last = stop.load(Ordering::Acquire);
            self.pass();
            if last {
                break;
            }
            let mut ready = [PollFd::from_borrowed_fd(
                self.births.descriptor(),
                PollFlags::IN,
            )];
            // A signal only makes the pass come earlier.
            let _ready = poll(&mut ready, Some(&SLEEP));
        }
        let text = "more processes were born at once than the kernel could tell of";
        self.lost.then(|| text.to_owned())
    }

    fn pass(&mut self) {
        let told = self.births.drain();
        self.lost |= told.lost;
        let mut new = Vec::new();
        let mut household = locked(&self.household);
        for change in told.changes {
            if !self.kin.concerns(&change) {
                continue;
            }
            if let Control::Exec { pid, .. } = &change {
                new.push(*pid);
            }
            household.control(&change);
        }
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            new = household.living();
        }
        drop(household);
        // All are held before the first is looked into: they may end any moment.
        let held = new
            .into_iter()
            .filter_map(|pid| Some((pid, program_of(pid)?)));
        let held: Vec<(Pid, File)> = held.collect();
        for (pid, program) in held {
            if let Some((file, found)) = self.files.look(pid, &program) {
                locked(&self.household).looked(pid, now_mono(), file, &found);
            }
        }
    }
}

/// Programs that were looked into.
#[derive(Default)]
struct Files {
    known: FxHashMap<FileId, Option<Vec<Runtime>>>,
}

impl Files {
    /// The file of a program and the runtimes of its process: those of its program, and of the libraries that it has by now.
    fn look(&mut self, pid: Pid, program: &File) -> Option<(FileId, Vec<Runtime>)> {
        let id = FileId::of(program).ok()?;
        if own_program() == Some(id) {
            return None;
        }
        let known = self.known.entry(id).or_insert_with(|| {
            // The process may have ended; our descriptor has not.
            let held = format!("/proc/self/fd/{}", program.as_raw_fd());
            runtimes::of_program(program, &fs::read_link(held).ok()?)
        });
        let mut found = known.clone()?;
        let libraries = Process::open(pid).and_then(|process| process.runtimes());
        found.extend(libraries.unwrap_or_default());
        found.sort_unstable();
        found.dedup();
        Some((id, found))
    }
}

fn program_of(pid: Pid) -> Option<File> {
    File::open(format!("/proc/{pid}/exe")).ok()
}

/// Asked at every look, and always the same.
fn own_program() -> Option<FileId> {
    static OWN: OnceLock<Option<FileId>> = OnceLock::new();
    *OWN.get_or_init(|| FileId::of(&File::open("/proc/self/exe").ok()?).ok())
}

/// The kernel does not tell: after one sign of a child nothing is known.
struct Guessed {
    targets: Vec<Guess>,
    household: Shared,
    files: Files,
    sign: Option<String>,
}

/// A target as it was looked at last.
struct Guess {
    process: Process,
    /// Where its program and its stack began; zeros = it had none.
    place: (u64, u64),
    /// Its program had no runtime.
    was_plain: bool,
    at: MonoTime,
    /// When this program was seen first.
    since: Option<MonoTime>,
    /// A probe's memory was seen in it: what spoke in this process spoke in this program, or before it was seen.
    has_probe: bool,
}

impl Guessed {
    fn of(targets: &[Process], household: Shared) -> Self {
        let guess = |process: &Process| Guess {
            process: process.clone(),
            place: (0, 0),
            was_plain: false,
            at: now_mono(),
            since: None,
            has_probe: false,
        };
        Self {
            targets: targets.iter().map(guess).collect(),
            household,
            files: Files::default(),
            sign: None,
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Option<String> {
        while !stop.load(Ordering::Acquire) && self.sign.is_none() {
            self.look();
            std::thread::sleep(ACCOUNTS_EVERY);
        }
        self.look();
        for mut guess in std::mem::take(&mut self.targets) {
            let sign = self.speaker(&mut guess);
            self.sign = self.sign.take().or(sign);
        }
        let why =
            "who is born is told to root, and since Linux 6.6 to everybody outside of containers";
        self.sign.map(|sign| format!("{sign}; {why}"))
    }

    fn look(&mut self) {
        let mut targets = std::mem::take(&mut self.targets);
        targets.retain_mut(|guess| {
            let is_alive = guess.process.is_alive();
            let sign = sign_of(&guess.process, is_alive)
                .or_else(|| self.program(guess, is_alive))
                .or_else(|| (!is_alive).then(|| self.speaker(guess)).flatten());
            self.sign = self.sign.take().or(sign);
            is_alive
        });
        self.targets = targets;
    }

    /// A probe spoke before its program was looked at: whoever spoke may have executed what was seen then.
    fn speaker(&self, guess: &mut Guess) -> Option<String> {
        let pid = guess.process.pid();
        let since = guess.since.unwrap_or(MonoTime(u64::MAX));
        if guess.has_probe || !locked(&self.household).spoke_before(pid, since) {
            return None;
        }
        guess.has_probe = probe::is_in(&guess.process);
        let text = format!("process {pid} was not looked at before its probe spoke");
        (!guess.has_probe).then_some(text)
    }

    /// Looks at the program of a target, and says if it may have been another one meanwhile.
    fn program(&mut self, guess: &mut Guess, is_alive: bool) -> Option<String> {
        let pid = guess.process.pid();
        let before = now_mono();
        if !is_alive || is_held(pid) {
            return None;
        }
        let Accounts {
            code_at, stack_at, ..
        } = guess.process.accounts().ok()?;
        if code_at == 1 {
            return Some(format!(
                "process {pid} does not show where its program lies"
            ));
        }
        let place = (code_at, stack_at);
        if code_at == 0 || guess.place == place {
            guess.at = before;
            // In its first moments a probe has spoken and has no memory yet: it is asked again.
            let _not_yet = self.speaker(guess);
            return None;
        }
        // A program is being loaded: one number is there before the other.
        let again = guess.process.accounts().ok()?;
        if (again.code_at, again.stack_at) != place {
            return None;
        }
        let is_next = guess.place.0 != 0;
        if is_next && !guess.was_plain {
            return Some(format!("process {pid} has executed another program"));
        }
        let program = program_of(pid);
        let found = program.and_then(|program| self.files.look(pid, &program));
        let mut household = locked(&self.household);
        if is_next {
            // What has spoken since then is in the new program.
            household.control(&Control::Exec {
                time: guess.at,
                pid,
                path: String::new(),
            });
        }
        if let Some((file, found)) = &found {
            household.looked(pid, now_mono(), *file, found);
        }
        guess.was_plain = found.is_some_and(|(_, found)| found.is_empty());
        guess.place = place;
        guess.at = before;
        guess.since = Some(before);
        guess.has_probe = probe::is_in(&guess.process);
        None
    }
}

/// What shows that a process had a child.
fn sign_of(process: &Process, is_alive: bool) -> Option<String> {
    let pid = process.pid();
    let Ok(accounts) = process.accounts() else {
        return Some(format!(
            "process {pid} ended, and its accounts were gone before they could be read"
        ));
    };
    if accounts.has_had_children {
        return Some(format!("process {pid} had children"));
    }
    if !is_alive {
        return None;
    }
    if !process.children().unwrap_or_default().is_empty() {
        return Some(format!("process {pid} has children"));
    }
    let ignores = process.status().is_ok_and(|status| status.ignores_children);
    ignores.then(|| format!("process {pid} ignores the end of children, which then leave no trace"))
}

/// Whether it is a command that is held, still a copy of this program.
fn is_held(pid: Pid) -> bool {
    let id = program_of(pid).and_then(|file| FileId::of(&file).ok());
    id.is_some() && id == own_program()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a process that was looked at once, and whose probe spoke at `heard`.
    fn said(heard: impl FnOnce(MonoTime) -> MonoTime) -> Option<String> {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = Pid(child.id());
        let process = Process::open(pid).unwrap();
        // Until its exec it is a copy of this program, and then for a moment nothing.
        while is_held(pid) || process.accounts().unwrap().code_at == 0 {
            std::thread::yield_now();
        }
        let household = Shared::default();
        locked(&household).begin(pid, []);
        let mut guessed = Guessed::of(&[process], Shared::clone(&household));
        guessed.look();
        locked(&household).heard(pid, Runtime::Python, heard(now_mono()));
        let said = guessed.run(&AtomicBool::new(true));
        child.kill().unwrap();
        child.wait().unwrap();
        said
    }

    /// A program that is linked to lie at one place only, and executes itself.
    const AGAIN: &str = "#include <stdio.h>\n#include <unistd.h>\nint main(int count, char **words) {\n\
        getchar();\nif (count > 1) execl(words[0], words[0], (char *)0);\ngetchar();\n}\n";

    #[test]
    fn an_exec_is_seen_where_programs_lie_at_one_place() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("again.c"), folder.path().join("again"));
        fs::write(&source, AGAIN).unwrap();
        // Who has Rust's linker has this.
        let built = std::process::Command::new("cc")
            .args(["-no-pie", "-fno-pie", "-o"])
            .args([&program, &source])
            .status();
        assert!(built.unwrap().success());
        let mut child = std::process::Command::new(&program)
            .arg("once")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let process = Process::open(Pid(child.id())).unwrap();
        let words = || process.command_line().unwrap_or_default().len();
        let place = |words_there: usize| loop {
            // First the words: they are the new program's before its place is told.
            let is_there = words() == words_there;
            let accounts = process.accounts().unwrap();
            if is_there && accounts.code_at != 0 {
                break (accounts.code_at, accounts.stack_at);
            }
        };
        let before = place(2);
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
        let after = place(1);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(before.0, after.0, "it is not linked to lie at one place");
        assert_ne!(before, after);
    }

    #[test]
    fn who_spoke_before_anybody_looked_may_have_become_what_was_seen_then() {
        let early = said(|_now| MonoTime(1)).unwrap();
        assert!(early.contains("before its probe spoke"), "{early}");
        assert_eq!(said(|now| now), None);
    }
}
