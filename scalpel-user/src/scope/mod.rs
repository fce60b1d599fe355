//! `scope` of a process: waits for calls of one function, has the guardian step them, names and shows what ran.
//!
//! The guardian is this program once more, in a process of its own (`scalpel_scope::outside`): it knows addresses only.
//! Names, files and the command line stay here, so that whatever goes wrong with them cannot touch the stepped thread.

mod chrome;
mod function;
mod guardian;
mod json;
mod names;
mod show;

use std::time::Duration;

use anyhow::Result;
use scalpel_scope::outside::message::{Arm, Call, End, Gate, Hardware, Order, Report};

use crate::cli::TierArg;
use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::{CommandLine, LivePlan, Target};
use crate::record::Stopper;
use crate::target::{Process, Spawned, by_comm};

pub use function::Located;
pub use guardian::be_the_guardian;

use guardian::Guardian;
use names::Names;

/// How long the guardian may take to let go.
const GRACE: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(50);

/// A scope could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// No function matches.
    #[error("--func {pattern}: {why}")]
    NoFunction {
        /// As typed.
        pattern: String,
        /// What was looked at, and near misses.
        why: String,
    },
    /// Too many functions match.
    #[error("--func {pattern} means {count} functions ({some}, ...): name one")]
    Several {
        /// As typed.
        pattern: String,
        /// How many.
        count: usize,
        /// The first ones.
        some: String,
    },
    /// The tier that was asked for by name is not there.
    #[error("skipped: {0}")]
    Tier(String),
    /// A right is missing, or the process is somebody else's.
    #[error("not permitted: {0}")]
    NotPermitted(String),
    /// The process ended.
    #[error("{0}")]
    Gone(String),
    /// This process or machine cannot be scoped.
    #[error("cannot scope: {0}")]
    Impossible(String),
    /// The guardian was killed, or broke.
    #[error("the guardian process ended unexpectedly; the target runs on")]
    NoGuardian,
}

/// What is watched.
#[derive(Debug)]
struct Subject {
    process: Process,
    spawned: Option<Spawned>,
}

impl Subject {
    fn open(target: &Target) -> Result<Self> {
        let (process, spawned) = match target {
            Target::Command(CommandLine { program, args }) => {
                let spawned = Spawned::start(program, args, &[])?;
                (spawned.process().clone(), Some(spawned))
            }
            Target::Pids(pids) => {
                let pid = pids.first().copied().unwrap_or_default();
                (Process::open(pid)?, None)
            }
            Target::Comm(name) => {
                let found = by_comm(name)?.into_iter().next();
                let gone = || ScopeError::Gone(format!("no process {name}"));
                (found.ok_or_else(gone)?, None)
            }
            Target::Cgroup(_) | Target::Host(_) => {
                anyhow::bail!("a scope is of one process: name it by --pid")
            }
        };
        Ok(Self { process, spawned })
    }
}

/// The recorded calls, and how the watch ended.
#[derive(Debug, Default)]
struct Recorded {
    calls: Vec<Call>,
    end: Option<End>,
    passed: u64,
    late: u64,
}

/// Scopes as planned.
pub fn run(plan: &LivePlan, output: &Output) -> Result<Outcome> {
    let hardware = match hardware(plan.tier) {
        Ok(hardware) => hardware,
        Err(gate) => {
            if plan.view == crate::plan::TraceView::Json {
                output.data(json::skipped(&gate)?)?;
            }
            return Err(ScopeError::Tier(gate).into());
        }
    };
    let mut subject = Subject::open(&plan.target)?;
    if let Some(spawned) = &subject.spawned {
        function::is_in_program(spawned, plan)?;
    }
    let mut stopper = Stopper::start()?;
    let mut watch = Watch {
        plan,
        output,
        hardware,
        located: None,
        names: Names::new(&subject.process),
        recorded: Recorded::default(),
    };
    watch.all(&mut subject, &mut stopper)?;
    let Watch {
        located,
        mut names,
        recorded,
        ..
    } = watch;
    let shown = show::Shown {
        plan,
        located: located.as_ref(),
        pid: subject.process.pid(),
        command: subject.process.name(),
        recorded: &recorded,
    };
    shown.all(&mut names, output)?;
    finish(&mut subject, &recorded, plan.calls, output)
}

fn finish(
    subject: &mut Subject,
    recorded: &Recorded,
    wanted: u64,
    output: &Output,
) -> Result<Outcome> {
    let whole = recorded.calls.iter().all(|call| call.trace.is_complete())
        && recorded.calls.len() as u64 == wanted;
    if let Some(spawned) = &mut subject.spawned {
        if !whole {
            output.warn("not all that was asked for is in the result");
        }
        return Ok(Outcome::Child(spawned.wait()?.code()));
    }
    Ok(if whole {
        Outcome::Done
    } else {
        Outcome::Partial
    })
}

/// What records the calls instead of steps, if anything does. The error names the gate of a tier that was asked for.
fn hardware(tier: TierArg) -> Result<Option<Hardware>, String> {
    match tier {
        TierArg::Auto => Ok(scalpel_scope::proven().ok().map(Hardware::Pt)),
        TierArg::Step => Ok(None),
        TierArg::Pt => scalpel_scope::proven().map(Hardware::Pt).map(Some),
        TierArg::Lbr => scalpel_scope::branch_records().map(|()| Some(Hardware::Lbr)),
    }
}

/// The watch of one process.
struct Watch<'a> {
    plan: &'a LivePlan,
    output: &'a Output,
    hardware: Option<Hardware>,
    located: Option<Located>,
    names: Names,
    recorded: Recorded,
}

impl Watch<'_> {
    fn all(&mut self, subject: &mut Subject, stopper: &mut Stopper) -> Result<()> {
        let pid = subject.process.pid();
        let held = subject.spawned.is_some();
        if !held {
            self.locate(&subject.process)?;
        }
        let mut guardian = Guardian::start()?;
        guardian.order(&Order::Seize { pid: pid.0, held })?;
        loop {
            if stopper.should_stop() {
                guardian.let_go();
            }
            let patience = if stopper.should_stop() { GRACE } else { TICK };
            let report = match guardian.report(patience)? {
                Some(report) => report,
                None if stopper.should_stop() => return Ok(()),
                None => continue,
            };
            if matches!(report, Report::Armed { .. }) {
                // Before, nothing was watched: a call that is not seen by then was not looked for.
                stopper.begin(self.plan.duration);
            }
            if self.hear(report, subject, &mut guardian)? {
                return Ok(());
            }
        }
    }

    /// `true`: that was the last report.
    fn hear(
        &mut self,
        report: Report,
        subject: &mut Subject,
        guardian: &mut Guardian,
    ) -> Result<bool> {
        match report {
            Report::Seized { .. } => match (&mut subject.spawned, &self.located) {
                (Some(spawned), _) => spawned.release()?,
                (None, Some(located)) => guardian.order(&Order::Arm(self.arm(located)))?,
                (None, None) => {}
            },
            Report::Began => self.began(subject, guardian)?,
            Report::Armed { threads } => self.say_armed(&subject.process, threads),
            Report::Call(call) => {
                self.names.refresh(&subject.process);
                let number = self.recorded.calls.len() + 1;
                let count = call.trace.counted;
                let detail = format!(
                    "call {number}: {count} instructions, {:?}",
                    call.trace.status()
                );
                self.output.detail(&detail);
                self.recorded.calls.push(*call);
            }
            Report::Ended { why, passed, late } => {
                self.recorded.end = Some(why);
                (self.recorded.passed, self.recorded.late) = (passed, late);
                return Ok(true);
            }
            Report::Refused { gate, why } => {
                return Err(match gate {
                    Gate::Permission => ScopeError::NotPermitted(why),
                    Gate::Gone => ScopeError::Gone(why),
                    Gate::System => ScopeError::Impossible(why),
                }
                .into());
            }
        }
        Ok(false)
    }

    fn locate(&mut self, process: &Process) -> Result<()> {
        self.located = Some(function::locate(process, self.plan)?);
        self.names.refresh(process);
        Ok(())
    }

    fn arm(&self, located: &Located) -> Arm {
        Arm {
            hardware: self.hardware.clone(),
            ..located.arm(self.plan)
        }
    }

    /// The command stands at its first instruction: its libraries are mapped.
    fn began(&mut self, subject: &Subject, guardian: &mut Guardian) -> Result<()> {
        let process = &subject.process;
        let main = subject.spawned.as_ref().map(Spawned::main_program);
        let exe = process.exe().ok();
        // `env` and the like execute another program.
        let another = main.and_then(|main| std::fs::canonicalize(main).ok()) != exe;
        match self.locate(process) {
            Err(_) if another => guardian.order(&Order::Next),
            Err(error) => Err(error),
            Ok(()) => match &self.located {
                Some(located) => guardian.order(&Order::Arm(self.arm(located))),
                None => Ok(()),
            },
        }
    }

    fn say_armed(&self, process: &Process, threads: usize) {
        let name = self
            .located
            .as_ref()
            .map_or("", |located| &located.info.name);
        self.output.say(&format!(
            "waiting for {} of {name} in {} (pid {}, {}); Ctrl-C ends it",
            show::count(self.plan.calls, "call"),
            process.name(),
            process.pid(),
            show::count(threads as u64, "thread"),
        ));
    }
}
