//! Collectors in processes of their own: one that is killed, and ones with few capabilities.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use caps::{CapSet, Capability};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::{catalog, residue, tests};
use scalpel_user::function::ExitStrategy::Return;
use scalpel_user::kernel::Mechanism::{self, Perf, Session};
use scalpel_user::kernel::attach::AttachOptions;

use crate::subject::{BUSY, Probes, busy};

/// Adds the tests of this file.
pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "others":
        two_capabilities_are_enough_and_missing_ones_are_named,
        a_killed_collector_leaves_nothing,
    );
}

const ROLE: &str = "SCALPEL_TEST_ATTACH_AS";

/// In a process of its own: what `ROLE` says, on the file behind the colon.
pub(crate) fn run_as_other() -> Option<anyhow::Result<()>> {
    let value = std::env::var(ROLE).ok()?;
    let (role, path) = value.split_once(':')?;
    let path = Path::new(path);
    Some(match role {
        "session" => stay_attached(Session, path),
        "perf" => stay_attached(Perf, path),
        "two capabilities" => attach_with(&[Capability::CAP_BPF, Capability::CAP_PERFMON], path),
        _ => attach_with(&[], path),
    })
}

fn other(role: &str, path: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(ROLE, format!("{role}:{}", path.display()));
    Ok(command)
}

fn stay_attached(mechanism: Mechanism, path: &Path) -> anyhow::Result<()> {
    let mut probes = Probes::new(path, BUSY, mechanism, Return, AttachOptions::default())?;
    probes.attach()?;
    std::io::Write::write_all(&mut std::io::stdout(), b"attached\n")?;
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

fn attach_with(capabilities: &[Capability], path: &Path) -> anyhow::Result<()> {
    let kept = capabilities.iter().copied().collect();
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    let options = AttachOptions::default();
    let attached =
        Probes::new(path, BUSY, Session, Return, options).and_then(|mut probes| probes.attach());
    let said = attached.map_or_else(|error| format!("{error:#}"), |()| "attached".into());
    std::io::Write::write_all(&mut std::io::stdout(), said.as_bytes())?;
    Ok(())
}

fn two_capabilities_are_enough_and_missing_ones_are_named() -> Outcome {
    let copy = catalog::BUSY.copy()?;
    let _target = busy(copy.path())?;
    let said = |role: &str| -> anyhow::Result<String> {
        let output = other(role, copy.path())?.output()?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let with_two = said("two capabilities")?;
    ensure!(with_two == "attached", "with two capabilities: {with_two}");
    let with_none = said("no capability")?;
    ensure!(
        with_none.contains("missing CAP_BPF and CAP_PERFMON"),
        "without capabilities: {with_none}"
    );
    Ok(())
}

fn a_killed_collector_leaves_nothing() -> Outcome {
    for mechanism in ["session", "perf"] {
        let copy = catalog::BUSY.copy()?;
        let mut target = busy(copy.path())?;
        let mut command = other(mechanism, copy.path())?;
        command.stdout(Stdio::piped());
        let mut victim = command.spawn()?;
        let mut line = String::new();
        BufReader::new(victim.stdout.take().context("no pipe")?).read_line(&mut line)?;
        ensure!(line == "attached\n", "the victim said {line:?}");
        let pid = target.running().pid();
        ensure!(
            residue::text_is_clean(pid).is_err(),
            "no breakpoint was there to be left"
        );
        victim.kill()?;
        victim.wait()?;
        residue::text_is_clean(pid)?;
        ensure!(residue::links_on(copy.path())? == 0, "a link is left");
        target.work()?;
        target.finish()?.expect_code(0)?;
    }
    Ok(())
}
