//! `doctor`: reads the facts, tries the programs, prints the checks.

use std::io::Read;

use crate::caps::{Abilities, Attach, Facts};
use crate::doctor::{self, TargetFacts};
use crate::event::Pid;
use crate::exit::Outcome;
use crate::host;
use crate::image::{Image, NoDebugFiles};
use crate::kernel::{Kernel, LoadOptions, Mechanism};
use crate::output::Output;
use crate::target::{MappedImage, Process};

pub(super) fn run(pid: Option<Pid>, as_json: bool, output: &Output) -> anyhow::Result<Outcome> {
    // A wrong pid is an error of its own, before anything is said about the host.
    let process = pid.map(Process::open).transpose()?;
    let facts = tried(host::facts());
    let able = Abilities::of(&facts);
    let on_host = doctor::check_host(&facts, &able);
    let target = process
        .as_ref()
        .map(|process| TargetFacts::read(process, made_by_go))
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

/// Memory of a ring that only has to exist.
const TRIAL_RING: u32 = 64 << 10;

/// The facts, with the kernel's own answer to our programs where nothing else stands in the way. Loaded, nothing
/// attached, and unloaded at once.
fn tried(facts: Facts) -> Facts {
    let able = Abilities::of(&facts);
    if !able.blockers.is_empty() {
        return facts;
    }
    let options = LoadOptions {
        call_ring_bytes: u64::from(TRIAL_RING) * 8,
        sample_ring_bytes: TRIAL_RING,
        control_ring_bytes: TRIAL_RING,
        functions: 1,
        ..LoadOptions::new(mechanism(&able))
    };
    let trial = Kernel::load(&options)
        .map(drop)
        .map_err(|error| format!("{:#}", anyhow::Error::new(error)));
    Facts {
        trial: Some(trial),
        ..facts
    }
}

const fn mechanism(able: &Abilities) -> Mechanism {
    match (able.attach.choice, able.session.choice) {
        (Attach::Multi, true) => Mechanism::Session,
        (Attach::Multi, false) => Mechanism::Multi,
        (Attach::Perf, _) => Mechanism::Perf,
    }
}

/// `None` if the program cannot be read.
fn made_by_go(program: &MappedImage) -> Option<bool> {
    let mut bytes = Vec::new();
    std::fs::File::open(program.held_path()?)
        .ok()?
        .read_to_end(&mut bytes)
        .ok()?;
    Image::parse(&bytes, &program.path.to_string_lossy(), &NoDebugFiles)
        .ok()
        .map(|image| image.is_go())
}
