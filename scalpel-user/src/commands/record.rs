//! `record`: what must be true before a recording is begun, and where it is shown that is not kept.

use std::io::{BufWriter, Write};

use crate::caps::Abilities;
use crate::exit::Outcome;
use crate::host;
use crate::output::{Output, Stream};
use crate::plan::{RecordPlan, Target};
use crate::record::{self, Show, Watcher};

pub(super) fn run(plan: &RecordPlan, output: &Output) -> anyhow::Result<Outcome> {
    recorded(
        plan,
        &|recorded| record::say_summary(recorded, output),
        output,
    )
}

/// Records, if this host and user can.
pub(super) fn recorded(
    plan: &RecordPlan,
    show: &Show<'_>,
    output: &Output,
) -> anyhow::Result<Outcome> {
    let able = able(plan)?;
    record::run(plan, &able, show, None, output)
}

/// Records while somebody looks at it, and shows nothing at the end.
pub(super) fn watched(
    plan: &RecordPlan,
    watcher: &mut dyn Watcher,
    output: &Output,
) -> anyhow::Result<Outcome> {
    let able = able(plan)?;
    record::run(plan, &able, &|_recorded| Ok(()), Some(watcher), output)
}

/// What this host and user can do, if that is enough.
fn able(plan: &RecordPlan) -> anyhow::Result<Abilities> {
    let able = Abilities::of(&host::facts());
    // A dry run only reads, and probes in the runtimes need no privilege.
    let asks_kernel = !plan.dry_run && !plan.runtimes.alone;
    match able.first_blocker().filter(|_| asks_kernel) {
        Some(blocker) => Err(blocker.clone().into()),
        None => Ok(able),
    }
}

/// Writes to stdout, or to stderr where the recorded command has stdout for itself.
pub(super) fn beside_the_target(
    target: &Target,
    output: &Output,
    write: impl FnOnce(Stream, &mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (stream, out): (Stream, Box<dyn Write>) = match target {
        Target::Command(_) | Target::Host(Some(_)) => {
            (output.stderr(), Box::new(std::io::stderr().lock()))
        }
        Target::Pids(_) | Target::Comm(_) | Target::Cgroup(_) | Target::Host(None) => {
            (output.stdout(), Box::new(std::io::stdout().lock()))
        }
    };
    let mut out = BufWriter::new(out);
    write(stream, &mut out)?;
    Ok(out.flush()?)
}
