//! Runtimes of processes that run already: the probe is loaded into those that take it, and of all others the result says
//! why not, and what of them is seen.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::household::Silence;
use super::installed::{self, installed};
use crate::event::{Pid, Source};
use crate::probe::Takeover;
use crate::survey::runtimes::{self, Offer, Offered};
use crate::target::{Process, Runtime};

/// How long an interpreter may take to ask another one.
const ASKED_WITHIN: Duration = Duration::from_secs(10);

/// Most of a reason that is kept, in bytes.
const REASON: u64 = 4096;

/// What the helper of the Python probe says before a reason.
const PREFIX: &str = "scalpel: not attached: ";

/// Processes that are named one by one.
const NAMED: usize = 3;

/// Who was asked, and what there is to say of the others.
#[derive(Debug, Default)]
pub(super) struct Entering {
    /// Asked, and not heard of yet: process, and the runtime for people.
    asked: FxHashMap<Pid, String>,
    /// What could not be entered, once for each process and runtime.
    pub(super) refused: Vec<String>,
    /// Those of which it was said that nothing is seen.
    unseen: FxHashSet<(Pid, Runtime)>,
}

impl Entering {
    /// Asks each runtime of the processes that can be asked. `socket`: where their probes say HELLO. `takeovers`: those whose
    /// probe has been there already.
    pub(super) fn begin(processes: &[Process], socket: &Path, takeovers: &[Takeover]) -> Self {
        let installed = installed();
        let mut entering = Self::default();
        for takeover in takeovers {
            if let Err(why) = &takeover.outcome {
                entering.refused.push(format!(
                    "process {}: a probe is in it and its functions are not visible: {why}. Seen are native functions, and \
                     samples in the runtime itself",
                    takeover.pid
                ));
            }
        }
        for process in processes {
            // It may have ended already: then there is nothing to say of it.
            for offer in runtimes::offers(process, &installed).unwrap_or_default() {
                let it = (process.pid(), offer.present.runtime);
                if takeovers
                    .iter()
                    .any(|one| one.pid == it.0 && one.outcome.is_err())
                {
                    entering.unseen.insert(it);
                }
                if offer.offered != Offered::Calls || !is_told_of(takeovers, process.pid()) {
                    entering.take(process, &offer, socket);
                }
            }
        }
        entering
    }

    fn take(&mut self, process: &Process, offer: &Offer, socket: &Path) {
        let runtime = named(offer);
        let why_not = match &offer.why_not {
            Some(why) => why.clone(),
            None if offer.offered == Offered::Native => return,
            None => match ask(process, socket) {
                Ok(()) => {
                    self.asked.insert(process.pid(), runtime);
                    return;
                }
                Err(why) => why,
            },
        };
        let seen = match offer.offered {
            Offered::Names => "native functions, and samples that name what it compiled",
            _ => "native functions, and samples in the runtime itself",
        };
        self.unseen.insert((process.pid(), offer.present.runtime));
        self.refused.push(format!(
            "process {}: functions of {runtime} are not visible: {why_not}. Seen are {seen}",
            process.pid()
        ));
    }

    /// A probe has said HELLO: which runtime it speaks for.
    pub(super) fn heard(&mut self, pid: Pid, source: u8) -> Option<Runtime> {
        self.asked.remove(&pid);
        Source::from_u8(source).and_then(runtime_of)
    }

    /// How many were asked.
    pub(super) fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Runtimes of which nothing was seen: whatever is written in their languages may have run there.
    pub(super) fn unseen(&self, silence: &Silence) -> Vec<(Pid, Source)> {
        let asked = self.asked.keys().map(|pid| (*pid, Runtime::Python));
        let silent = silence.runtimes.iter().copied();
        let strangers = silence.why_unknown.iter().map(|_| Pid::default());
        let unknown = silence
            .unknown
            .iter()
            .copied()
            .chain(strangers)
            .flat_map(|pid| silence.spoken.iter().map(move |runtime| (pid, *runtime)));
        let all = self.unseen.iter().copied().chain(asked);
        let all = all.chain(silent).chain(unknown);
        let mut all: Vec<_> = all
            .filter_map(|(pid, runtime)| Some((pid, source_of(runtime)?)))
            .collect();
        all.sort_unstable_by_key(|(pid, source)| (*pid, *source as u8));
        all.dedup();
        all
    }

    /// Those whose probe never came, and those of which nothing is known.
    pub(super) fn missing(&self, silence: &Silence) -> Vec<String> {
        let asked = self.asked.iter().map(|(pid, runtime)| {
            format!(
                "process {pid}: {runtime} was asked to load its probe and did not come to a place where it could: its main \
                 thread ran no Python code to the end. Its functions are not visible"
            )
        });
        let mut missing: Vec<String> = asked.collect();
        missing.sort_unstable();
        let mut silent: FxHashMap<Runtime, Vec<Pid>> = FxHashMap::default();
        for (pid, runtime) in &silence.runtimes {
            silent.entry(*runtime).or_default().push(*pid);
        }
        let silent = silent.iter().map(|(runtime, pids)| {
            format!(
                "{}: {runtime} is in it and no probe of it said HELLO: its functions are not visible, native functions and \
                 samples are where the process itself is watched",
                named_processes(pids)
            )
        });
        let silent: std::collections::BTreeSet<String> = silent.collect();
        missing.extend(silent);
        if !silence.unknown.is_empty() && !silence.spoken.is_empty() {
            missing.push(format!(
                "{}: it ended, or became another program, before anybody could look at what it ran: functions of {} may \
                 have run there, and are not visible if they did not run elsewhere. Kernel tracing (without --no-kernel) \
                 sees what children run",
                named_processes(&silence.unknown),
                spoken(silence)
            ));
        }
        if let Some(why) = silence
            .why_unknown
            .as_deref()
            .filter(|_| !silence.spoken.is_empty())
        {
            missing.push(format!(
                "not every process of this recording is known: {why}. Functions of {} that did not run elsewhere are not \
                 visible",
                spoken(silence)
            ));
        }
        missing
    }
}

/// `process 7`, `process 7, 8, 9 and 4 more`.
fn named_processes(pids: &[Pid]) -> String {
    let first: Vec<String> = pids.iter().take(NAMED).map(ToString::to_string).collect();
    let first = first.join(", ");
    match pids.len().saturating_sub(NAMED) {
        0 => format!("process {first}"),
        more => format!("process {first} and {more} more"),
    }
}

/// `node and python`.
fn spoken(silence: &Silence) -> String {
    let words: Vec<&str> = silence.spoken.iter().map(|one| one.word()).collect();
    words.join(" and ")
}

fn is_told_of(takeovers: &[Takeover], pid: Pid) -> bool {
    takeovers.iter().any(|takeover| takeover.pid == pid)
}

/// Runtimes, and what their probes call themselves.
const SPEAKERS: [(Source, Runtime); 7] = [
    (Source::Python, Runtime::Python),
    (Source::Node, Runtime::Node),
    (Source::Java, Runtime::Java),
    (Source::Ruby, Runtime::Ruby),
    (Source::Php, Runtime::Php),
    (Source::Dotnet, Runtime::Dotnet),
    (Source::Lua, Runtime::Lua),
];

/// The runtime that a probe speaks for.
fn runtime_of(source: Source) -> Option<Runtime> {
    let of = SPEAKERS.iter().find(|(of, _)| *of == source);
    of.map(|(_, runtime)| *runtime)
}

fn source_of(runtime: Runtime) -> Option<Source> {
    let of = SPEAKERS.iter().find(|(_, of)| *of == runtime);
    of.map(|(source, _)| *source)
}

fn named(offer: &Offer) -> String {
    let word = offer.present.runtime.word();
    match &offer.present.version {
        Some(version) => format!("{word} {version}"),
        None => word.to_owned(),
    }
}

/// Has the process's own interpreter ask it. As its user: it is a stranger's program.
fn ask(process: &Process, socket: &Path) -> Result<(), String> {
    let probe = installed::folder(Runtime::Python.word()).ok_or("the probe has gone meanwhile")?;
    let program = process.exe().map_err(|error| error.to_string())?;
    let status = process.status().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command
        .args(["-I", "-S"])
        .arg(probe.join("inject/attach.py"))
        .arg(process.pid().to_string())
        .arg(socket)
        .current_dir("/")
        .env_clear()
        .envs(surroundings(process))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if rustix::process::geteuid().is_root() {
        command.uid(status.uid).gid(status.gid);
    }
    answer(command)
}

/// What an interpreter needs to find its libraries, as the process has it.
fn surroundings(process: &Process) -> Vec<(String, String)> {
    const NEEDED: [&str; 3] = ["LD_LIBRARY_PATH", "PYTHONHOME", "TMPDIR"];
    let text = process.read("environ").unwrap_or_default();
    let entries = text.split(|&byte| byte == 0).filter_map(|entry| {
        let (name, value) = str::from_utf8(entry).ok()?.split_once('=')?;
        NEEDED
            .contains(&name)
            .then(|| (name.to_owned(), value.to_owned()))
    });
    entries.collect()
}

fn answer(mut command: Command) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("its interpreter could not ask it: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let since = Instant::now();
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if since.elapsed() > ASKED_WITHIN => {
                // Ours alone, and it has done nothing yet or all of it.
                let _gone = child.kill();
                let _reaped = child.wait();
                return Err("its interpreter took too long to ask it".into());
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut text = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // Whatever could be read is all there is to say.
        let _read = stderr.take(REASON).read_to_end(&mut text);
    }
    Err(reason(&String::from_utf8_lossy(&text), &status.to_string()))
}

/// What the helper said, or how it ended.
fn reason(text: &str, status: &str) -> String {
    let told = text.lines().find_map(|line| line.strip_prefix(PREFIX));
    let last = || text.lines().last().filter(|line| !line.is_empty());
    match told.or_else(last) {
        Some(why) => why.trim().to_owned(),
        None => format!("its interpreter could not ask it: {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_reason() {
        let check = |text: &str, expect: &str| assert_eq!(reason(text, "exit status: 1"), expect);
        check("x\nscalpel: not attached: because\n", "because");
        check("Traceback\nOSError: no\n", "OSError: no");
        check("", "its interpreter could not ask it: exit status: 1");
    }

    #[test]
    fn a_runtime_whose_probe_never_spoke_is_told_of() {
        let entering = Entering::default();
        let silence = Silence {
            runtimes: vec![(Pid(1), Runtime::Node), (Pid(2), Runtime::Python)],
            ..Silence::default()
        };
        let missing = entering.missing(&silence);
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].starts_with("process 1: node"), "{missing:?}");
        assert!(missing[1].starts_with("process 2: python"), "{missing:?}");
        let unseen = [(Pid(1), Source::Node), (Pid(2), Source::Python)];
        assert_eq!(entering.unseen(&silence), unseen);
    }

    #[test]
    fn a_process_of_which_nothing_is_known_hides_every_language_that_was_seen_at_all() {
        let entering = Entering::default();
        let silence = Silence {
            unknown: (3..8).map(Pid).collect(),
            spoken: vec![Runtime::Python],
            ..Silence::default()
        };
        let missing = entering.missing(&silence);
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing[0].starts_with("process 3, 4, 5 and 2 more: it ended"));
        assert_eq!(entering.unseen(&silence).len(), 5);
        let silence = Silence {
            spoken: Vec::new(),
            ..silence
        };
        assert!(entering.missing(&silence).is_empty());
        assert!(entering.unseen(&silence).is_empty());
    }

    #[test]
    fn one_that_was_asked_counts_until_it_comes() {
        let mut entering = Entering::default();
        let nothing = Silence::default();
        entering.asked.insert(Pid(1), "python 3.14.8".into());
        assert!(entering.missing(&nothing)[0].contains("was asked"));
        assert_eq!(entering.unseen(&nothing), [(Pid(1), Source::Python)]);
        let spoke = entering.heard(Pid(1), Source::Python as u8);
        assert_eq!(spoke, Some(Runtime::Python));
        assert!(entering.missing(&nothing).is_empty());
    }

    #[test]
    fn one_that_cannot_be_run_or_answers_with_failure_is_refused() {
        let refused = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            command.args(args).stderr(Stdio::piped());
            answer(command)
        };
        assert!(
            refused("/nonexistent", &[])
                .unwrap_err()
                .contains("could not ask")
        );
        let failing = refused(
            "sh",
            &["-c", "echo 'scalpel: not attached: no' >&2; exit 1"],
        );
        assert_eq!(failing, Err("no".into()));
        assert_eq!(refused("true", &[]), Ok(()));
    }
}
