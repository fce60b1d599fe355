//! Who is recorded: running processes, or a command that is held until its probes are in place.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustc_hash::FxHashSet;

use crate::event::Pid;
use crate::image::KernelRelease;
use crate::plan::{CommandLine, RecordPlan, Target};
use crate::survey::{self, Question, Survey, SurveyError};
use crate::target::{
    Backing, Cgroup, FileId, Mapping, Process, Spawned, Status, TargetError, by_comm,
    others_of_the_same_program,
};

/// The processes of a recording.
#[derive(Debug)]
pub(super) struct Subject {
    /// The processes watched from the start.
    pub processes: Vec<Process>,
    /// The command that we started, if we did.
    pub spawned: Option<Spawned>,
    /// Command name, or command line.
    pub command: String,
    /// The cgroup that they are of, if that was asked for: others may come into it.
    pub cgroup: Option<Cgroup>,
    /// All processes of the host: `processes` are none.
    pub is_host: bool,
    /// Their children are recorded, too.
    pub follows: bool,
}

impl Subject {
    /// Takes hold of what the plan names; a command is forked and held before its exec.
    /// `environment`: variables of the command that differ from ours. `follows`: so are those that were born to them.
    pub(super) fn open(
        target: &Target,
        follows: bool,
        environment: &[(OsString, OsString)],
    ) -> Result<Self> {
        let mut subject = Self::alone(target, environment)?;
        let is_running = subject.spawned.is_none() && subject.cgroup.is_none();
        subject.follows = follows && is_running;
        if subject.follows {
            let children = descendants(&subject.processes);
            subject.processes.extend(children);
        }
        Ok(subject)
    }

    fn alone(target: &Target, environment: &[(OsString, OsString)]) -> Result<Self> {
        match target {
            Target::Pids(pids) => {
                let open = |&pid: &Pid| Process::open(pid);
                Ok(Self::of(
                    pids.iter().map(open).collect::<Result<Vec<_>, _>>()?,
                ))
            }
            Target::Comm(name) => Ok(Self::of(by_comm(name)?)),
            Target::Cgroup(path) => {
                let cgroup = Cgroup::find(path)?;
                let members = cgroup.members();
                let there = members
                    .into_iter()
                    .filter_map(|pid| Process::open(pid).ok());
                Ok(Self {
                    command: format!("cgroup {}", path.display()),
                    cgroup: Some(cgroup),
                    ..Self::of(there.collect())
                })
            }
            Target::Command(line) => {
                let spawned = Spawned::start(&line.program, &line.args, environment)?;
                Ok(Self {
                    processes: vec![spawned.process().clone()],
                    spawned: Some(spawned),
                    command: typed(line),
                    ..Self::of(Vec::new())
                })
            }
            Target::Host(during) => {
                let start =
                    |line: &CommandLine| Spawned::start(&line.program, &line.args, environment);
                let during_text = during
                    .as_ref()
                    .map(|line| format!(" during {}", typed(line)));
                Ok(Self {
                    spawned: during.as_ref().map(start).transpose()?,
                    command: format!("all processes{}", during_text.unwrap_or_default()),
                    is_host: true,
                    ..Self::of(Vec::new())
                })
            }
        }
    }

    fn of(processes: Vec<Process>) -> Self {
        let command = processes
            .first()
            .map(|process| process.name().to_owned())
            .unwrap_or_default();
        Self {
            processes,
            spawned: None,
            command,
            cgroup: None,
            is_host: false,
            follows: false,
        }
    }

    /// The process that the recording is named after.
    pub(super) fn main_pid(&self) -> Pid {
        self.processes.first().map(Process::pid).unwrap_or_default()
    }

    /// The process, or how many there are.
    pub(super) fn who(&self) -> String {
        match self.processes.as_slice() {
            _ if self.is_host => "of this host".into(),
            [process] => format!("pid {}", process.pid()),
            all => format!("{} processes", all.len()),
        }
    }

    /// Pids of all.
    pub(super) fn pids(&self) -> Vec<Pid> {
        self.processes.iter().map(Process::pid).collect()
    }

    /// The only pid, if there is one only.
    pub(super) fn only_pid(&self) -> Option<Pid> {
        if let [process] = self.processes.as_slice() {
            Some(process.pid())
        } else {
            None
        }
    }

    /// What there is to probe, one survey for all processes that map the same files under the same rules (the workers
    /// of a server).
    pub(super) fn surveys(
        &self,
        plan: &RecordPlan,
        kernel: KernelRelease,
        most: Option<(usize, &str)>,
    ) -> Result<Vec<Survey>> {
        let question = Question {
            choice: &plan.choice,
            exits: plan.measurement.exits,
            kernel,
            most,
        };
        if let Some(spawned) = &self.spawned {
            return Ok(vec![survey::of_program(spawned.programs(), &question)?]);
        }
        let mut looked_at = FxHashSet::default();
        let mut surveys = Vec::new();
        let mut without = None;
        for process in &self.processes {
            let named = || format!("process {} ({})", process.pid(), process.name());
            let survey = match likeness(process).map(|likeness| looked_at.insert(likeness)) {
                Ok(false) => continue,
                Ok(true) => survey::of_process(process, &question),
                Err(error) => Err(error.into()),
            };
            match survey {
                // Another program of the family may have what this one has not.
                Err(error @ (SurveyError::NoFunction { .. } | SurveyError::NoLibrary { .. }))
                    if self.follows =>
                {
                    without.get_or_insert((error, named()));
                }
                // A child that has ended calls nothing any more.
                Err(_) if self.follows && !process.is_alive() => {}
                survey => surveys.push(survey.with_context(named)?),
            }
        }
        match without {
            Some((error, name)) if surveys.is_empty() => {
                Err(anyhow::Error::new(error).context(name))
            }
            _ => Ok(surveys),
        }
    }

    /// What should be known of a process before its numbers are: who else holds it, whether it runs at all, and who
    /// pays for the probes beside it.
    pub(super) fn notes(&self, is_probed: bool) -> Vec<String> {
        if self.spawned.is_some() {
            return Vec::new();
        }
        let status = |process: &Process| Some((process.pid(), process.status().ok()?));
        let states = self.processes.iter().filter_map(status);
        let held = states.flat_map(|(pid, status)| [traced(pid, &status), stopped(pid, &status)]);
        let strangers = is_probed.then(|| strangers(others_of_the_same_program(&self.processes)));
        held.chain(strangers).flatten().collect()
    }

    /// Whether every process has ended, and none can come.
    pub(super) fn has_ended(&self) -> bool {
        if let Some(cgroup) = &self.cgroup {
            return !cgroup.exists();
        }
        if self.is_host {
            let ended = |spawned: &Spawned| !spawned.process().is_alive();
            return self.spawned.as_ref().is_some_and(ended);
        }
        !self.processes.iter().any(Process::is_alive)
    }
}

/// Who was born to these, and to those, as far as they live.
pub(super) fn descendants(of: &[Process]) -> Vec<Process> {
    let mut known: FxHashSet<Pid> = of.iter().map(Process::pid).collect();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = of.to_vec();
    while let Some(parent) = parents.pop() {
        let children = parent.children().unwrap_or_default();
        let new = children.into_iter().filter(|pid| known.insert(*pid));
        // One that has ended meanwhile calls nothing any more.
        let new: Vec<Process> = new.filter_map(|pid| Process::open(pid).ok()).collect();
        parents.extend(new.iter().cloned());
        found.extend(new);
    }
    found
}

fn typed(line: &CommandLine) -> String {
    let words = std::iter::once(&line.program).chain(&line.args);
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Breakpoints belong to the file. A filter in the kernel would spare the strangers, but children of the process would
/// then meet return probes that no program of ours guards.
fn strangers(count: usize) -> Option<String> {
    (count > 0).then(|| {
        let others = match count {
            1 => "1 other process runs".into(),
            _ => format!("{count} other processes run"),
        };
        format!(
            "{others} the same program: its probed functions cost them a trap a call as well, which \
             counts against --max-overhead, and nothing of them is recorded; -p takes several of them, -f probes fewer \
             functions"
        )
    })
}

/// A debugger keeps what stood in the place of its breakpoint: if that was a probe, it puts one back that nobody owns.
fn traced(pid: Pid, status: &Status) -> Option<String> {
    let tracer = Pid(status.tracer);
    (status.tracer != 0).then(|| {
        let name = Process::open(tracer).map_or_else(|_| "?".into(), |it| it.name().to_owned());
        format!(
            "process {pid} is traced by process {tracer} ({name}): its stops are part of every time measured, and a \
             breakpoint that it sets at a probed function during the recording ends the process afterwards; detach it, \
             or set none"
        )
    })
}

fn stopped(pid: Pid, status: &Status) -> Option<String> {
    (status.state == 'T').then(|| {
        format!(
            "process {pid} was stopped when the recording began: a stopped process calls nothing; \
             `kill -CONT {pid}` sets it going"
        )
    })
}

/// What a survey depends on: the mapped files, and what the process forbids.
type Likeness = (Vec<(PathBuf, FileId)>, bool, bool);

fn likeness(process: &Process) -> Result<Likeness, TargetError> {
    let file = |mapping: &Mapping| match &mapping.backing {
        Backing::File { id, path, .. } if mapping.executable => Some((path.clone(), *id)),
        _ => None,
    };
    let mut files: Vec<_> = process.maps()?.iter().filter_map(file).collect();
    files.sort_unstable();
    files.dedup();
    let status = process.status()?;
    Ok((files, status.seccomp != 0, status.shadow_stack))
}
