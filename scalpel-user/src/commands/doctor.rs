//! `doctor`: reads the facts, prints the checks.

use crate::caps::Abilities;
use crate::doctor::{self, TargetFacts};
use crate::event::Pid;
use crate::exit::Outcome;
use crate::host;
use crate::output::Output;
use crate::target::Process;

pub(super) fn run(pid: Option<Pid>, as_json: bool, output: &Output) -> anyhow::Result<Outcome> {
    // A wrong pid is an error of its own, before anything is said about the host.
    let process = pid.map(Process::open).transpose()?;
    let facts = host::facts();
    let able = Abilities::of(&facts);
    let on_host = doctor::check_host(&facts, &able);
    let target = process
        .as_ref()
        .map(|process| TargetFacts::read(process, |_| None))
        .transpose()?;
    let on_process = target.map(|target| doctor::check_process(&target, &able));

    let mut sections = vec![("This host", on_host.as_slice())];
    sections.extend(on_process.as_deref().map(|checks| ("The process", checks)));
    let blocked = sections.iter().any(|(_, checks)| doctor::blocked(checks));
    if as_json {
        output.data(doctor::json(
            &facts,
            &able,
            &on_host,
            on_process.as_deref(),
        )?)?;
    } else {
        output.data(doctor::text(&sections, output.stdout()))?;
    }
    Ok(if blocked {
        Outcome::Finding
    } else {
        Outcome::Done
    })
}
