//! Runtimes of processes that run already: the probe is loaded into those that take it, and of all others the result says
//! why not, and what of them is seen.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

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

/// Looks at the mappings of a command, where the kernel does not tell of them.
const LOOKS: u32 = 50;

/// Who was asked, and what there is to say of the others.
#[derive(Debug, Default)]
pub(super) struct Entering {
    /// Asked, and not heard of yet: process, and the runtime for people.
    asked: FxHashMap<Pid, String>,
    /// What could not be entered, once for each process and runtime.
    pub(super) refused: Vec<String>,
    /// Runtimes that were mapped while it was recorded.
    mapped: FxHashSet<(Pid, Runtime)>,
    /// Those with a probe that said HELLO, or of which all was said already.
    settled: FxHashSet<(Pid, Runtime)>,
    /// Those of which it was said that nothing is seen.
    unseen: FxHashSet<(Pid, Runtime)>,
    looks: u32,
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
                let settled = (process.pid(), offer.present.runtime);
                entering.settled.insert(settled);
                if takeovers
                    .iter()
                    .any(|one| one.pid == settled.0 && one.outcome.is_err())
                {
                    entering.unseen.insert(settled);
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

    /// A probe has said HELLO.
    pub(super) fn heard(&mut self, pid: Pid, source: u8) {
        self.asked.remove(&pid);
        let runtime = Source::from_u8(source).and_then(runtime_of);
        self.settled.extend(runtime.map(|runtime| (pid, runtime)));
    }

    /// A process has mapped a file.
    pub(super) fn mapped(&mut self, pid: Pid, path: &str) {
        let runtime = Runtime::by_file(Path::new(path));
        self.mapped.extend(runtime.map(|runtime| (pid, runtime)));
    }

    /// Looks itself at what processes have mapped, a few times: where the kernel does not tell.
    pub(super) fn look(&mut self, processes: &[Process]) {
        if self.looks == LOOKS {
            return;
        }
        self.looks += 1;
        for process in processes {
            for runtime in process.runtimes().unwrap_or_default() {
                self.mapped.insert((process.pid(), runtime));
            }
        }
    }

    /// How many were asked.
    pub(super) fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Runtimes of which nothing was seen: whatever is written in their languages may have run there.
    pub(super) fn unseen(&self) -> Vec<(Pid, Source)> {
        let asked = self.asked.keys().map(|pid| (*pid, Runtime::Python));
        let silent = self.mapped.difference(&self.settled).copied();
        let all = self.unseen.iter().copied().chain(asked).chain(silent);
        let mut all: Vec<_> = all
            .filter_map(|(pid, runtime)| Some((pid, source_of(runtime)?)))
            .collect();
        all.sort_unstable_by_key(|(pid, source)| (*pid, *source as u8));
        all.dedup();
        all
    }

    /// Those whose probe never came.
    pub(super) fn missing(&self) -> Vec<String> {
        let asked = self.asked.iter().map(|(pid, runtime)| {
            format!(
                "process {pid}: {runtime} was asked to load its probe and did not come to a place where it could: its main \
                 thread ran no Python code to the end. Its functions are not visible"
            )
        });
        let silent = self.mapped.difference(&self.settled).map(|(pid, runtime)| {
            format!(
                "process {pid}: {runtime} is in it and no probe of it said HELLO: its functions are not visible, native \
                 functions and samples are"
            )
        });
        let mut missing: Vec<String> = asked.chain(silent).collect();
        missing.sort_unstable();
        missing
    }
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
        let mut entering = Entering::default();
        for path in ["/usr/bin/python3.13", "/usr/bin/node", "/usr/lib/libc.so.6"] {
            entering.mapped(Pid(1), path);
        }
        entering.mapped(Pid(2), "/usr/bin/python3.13");
        entering.heard(Pid(1), Source::Python as u8);
        let missing = entering.missing();
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].starts_with("process 1: node"), "{missing:?}");
        assert!(missing[1].starts_with("process 2: python"), "{missing:?}");
        let unseen = [(Pid(1), Source::Node), (Pid(2), Source::Python)];
        assert_eq!(entering.unseen(), unseen);
    }

    #[test]
    fn one_that_was_asked_counts_until_it_comes() {
        let mut entering = Entering::default();
        entering.asked.insert(Pid(1), "python 3.14.8".into());
        entering.settled.insert((Pid(1), Runtime::Python));
        assert!(entering.missing()[0].contains("was asked"));
        assert_eq!(entering.unseen(), [(Pid(1), Source::Python)]);
        entering.heard(Pid(1), Source::Python as u8);
        assert!(entering.missing().is_empty());
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
