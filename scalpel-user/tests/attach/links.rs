//! Links: what is refused, dropped and taken off, and what a dead collector leaves.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use caps::{CapSet, Capability};
use scalpel_tests::suite::Outcome;
use scalpel_tests::target::Target;
use scalpel_tests::{catalog, residue};
use scalpel_user::event::{FuncId, Kind, MonoTime};
use scalpel_user::function::ExitStrategy::{EntryOnly, RetOffsets, Return};
use scalpel_user::kernel::Mechanism::{Multi, Perf, Session};
use scalpel_user::kernel::attach::{AttachOptions, Attachments, ProbedFile};
use scalpel_user::kernel::{KernelError, Mechanism};

use crate::subject::{self, Probes, functions, only, request};

const BUSY: &[&str] = &["leaf", "round_of", "body"];

fn id(number: u32) -> FuncId {
    FuncId::new(number).unwrap_or(FuncId(std::num::NonZeroU32::MIN))
}

fn now() -> MonoTime {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    MonoTime(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

pub(crate) fn a_refused_offset_is_found_and_the_others_are_attached() -> Outcome {
    for mechanism in [Session, Multi, Perf] {
        let copy = catalog::CALLS.copy()?;
        let _target = Target::start(copy.path(), &[])?;
        let leaf = functions(copy.path())?
            .into_iter()
            .find(|function| function.name == "leaf")
            .context("no leaf")?;
        ensure!(
            leaf.start != leaf.offset,
            "the compiler no longer begins `leaf` with a `lock` prefix"
        );
        let mut probes = Probes::new(
            copy.path(),
            &["leaf", "fib"],
            mechanism,
            EntryOnly,
            AttachOptions::default(),
        )?;
        probes.requests.first_mut().context("two requests")?.offset = leaf.start;
        let report = probes.try_attach()?;
        ensure!(
            report.attached == 1,
            "{mechanism:?}: attached {}",
            report.attached
        );
        let [(func, reason)] = report.refused.as_slice() else {
            anyhow::bail!("{:?}", report.refused)
        };
        ensure!(
            *func == id(1) && reason.contains("cannot probe the instruction"),
            "{mechanism:?}: {reason}"
        );
    }
    Ok(())
}

pub(crate) fn an_offset_beyond_the_file_is_refused() -> Outcome {
    for mechanism in [Session, Multi, Perf] {
        let copy = catalog::CALLS.copy()?;
        let _target = Target::start(copy.path(), &[])?;
        let mut probes = Probes::new(
            copy.path(),
            &["leaf", "fib"],
            mechanism,
            EntryOnly,
            AttachOptions::default(),
        )?;
        probes.requests.first_mut().context("two requests")?.offset = 1 << 40;
        let report = probes.try_attach()?;
        ensure!(
            report.attached == 1 && report.refused.len() == 1,
            "{mechanism:?}: {report:?}"
        );
    }
    Ok(())
}

pub(crate) fn a_function_asked_for_twice_counts_once() -> Outcome {
    let copy = catalog::CALLS.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let mut probes = Probes::new(
        copy.path(),
        &["leaf", "fib"],
        Session,
        Return,
        AttachOptions::default(),
    )?;
    probes.attach()?;
    let again = probes.try_attach()?;
    ensure!(again.attached == 0, "attached again: {again:?}");
    let truth = target.work()?;
    ensure!(
        probes.hits() == both(&truth, &["leaf", "fib"])?,
        "{:?}",
        probes.hits()
    );
    Ok(())
}

fn both(
    truth: &scalpel_tests::truth::Truth,
    names: &[&str],
) -> anyhow::Result<std::collections::BTreeMap<String, u64>> {
    names
        .iter()
        .map(|name| Ok(((*name).to_owned(), truth.calls(name)?)))
        .collect()
}

pub(crate) fn a_deleted_file_can_be_probed() -> Outcome {
    for mechanism in [Session, Perf] {
        let copy = catalog::CALLS.copy()?;
        let mut target = Target::start(copy.path(), &[])?;
        let mut probes = Probes::new(
            copy.path(),
            &["leaf", "fib"],
            mechanism,
            EntryOnly,
            AttachOptions::default(),
        )?;
        fs::remove_file(copy.path())?;
        probes.attach()?;
        let truth = target.work()?;
        ensure!(
            probes.hits() == both(&truth, &["leaf", "fib"])?,
            "{mechanism:?}: {:?}",
            probes.hits()
        );
    }
    Ok(())
}

/// Starts the busy fixture and waits until its threads run.
fn busy(path: &Path) -> anyhow::Result<Target> {
    let mut target = Target::start(path, &[])?;
    target.running().say("go\n")?;
    target.running().stdout_line(|line| line == "busy\n")?;
    Ok(target)
}

pub(crate) fn dropping_a_function_neither_misses_nor_doubles_calls_of_the_others() -> Outcome {
    for (mechanism, exit) in [
        (Session, EntryOnly),
        (Session, Return),
        (Session, RetOffsets),
        (Multi, Return),
        (Perf, Return),
    ] {
        let copy = catalog::BUSY.copy()?;
        let mut target = Target::start(copy.path(), &[])?;
        let mut probes = Probes::new(copy.path(), BUSY, mechanism, exit, AttachOptions::default())?;
        probes.attach()?;
        target.running().say("go\n")?;
        target.running().stdout_line(|line| line == "busy\n")?;
        std::thread::sleep(Duration::from_millis(50));
        let given_up = probes
            .attachments
            .drop_functions(&HashSet::from([id(1)]), now());
        ensure!(given_up.is_empty(), "{given_up:?}");
        std::thread::sleep(Duration::from_millis(200));
        let leaf_so_far = probes.kernel.hits_of(id(1));
        let truth = target.work()?;
        let hits = probes.hits();
        for name in ["round_of", "body"] {
            let seen = hits.get(name).copied().unwrap_or(0);
            ensure!(
                seen == truth.calls(name)?,
                "{mechanism:?} {exit:?} {name}: {seen} of {}",
                truth.calls(name)?
            );
        }
        ensure!(
            leaf_so_far > 0 && leaf_so_far < truth.calls("leaf")?,
            "leaf was not dropped"
        );
        ensure!(
            probes.kernel.hits_of(id(1)) == leaf_so_far,
            "{mechanism:?} {exit:?}: leaf is still counted"
        );
        let counts = probes.finish()?;
        let entries = counts.of(2, Kind::Enter);
        let exits = counts.of(2, Kind::Exit);
        let calls = truth.calls("round_of")?;
        ensure!(
            entries == calls,
            "{mechanism:?} {exit:?}: {entries} ENTER of {calls} calls"
        );
        // Calls that are open at the change may lose their exit: one on each of two threads.
        let expected = if exit == EntryOnly {
            0..=0
        } else {
            calls - 2..=calls
        };
        ensure!(
            expected.contains(&exits),
            "{mechanism:?} {exit:?}: {exits} EXIT of {calls} calls"
        );
        target.finish()?.expect_code(0)?;
    }
    Ok(())
}

/// The only function of the group runs hot while it is attached: the breaker must see that before `attach` returns.
pub(crate) fn a_hot_group_is_noticed_before_attach_returns() -> Outcome {
    let copy = catalog::FLOOD.copy()?;
    let mut target = Target::start(copy.path(), &["endless"])?;
    target.running().say("go\n")?;
    let options = AttachOptions {
        max_overhead_percent: Some(20.0),
        ..AttachOptions::default()
    };
    let mut probes = Probes::new(copy.path(), &["hot", "warm"], Session, EntryOnly, options)?;
    probes
        .attachments
        .set_targets(&[scalpel_user::event::Pid(target.running().pid())]);
    let report = probes.try_attach()?;
    let dropped: Vec<u32> = report.bounds.iter().map(|bound| bound.func.get()).collect();
    ensure!(dropped == [1, 2], "dropped {dropped:?}: {report:?}");
    ensure!(probes.attachments.is_empty(), "something is left");
    Ok(())
}

pub(crate) fn a_hot_function_is_dropped_by_the_breaker() -> Outcome {
    let copy = catalog::FLOOD.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let options = AttachOptions {
        max_overhead_percent: Some(20.0),
        ..AttachOptions::default()
    };
    let mut probes = Probes::new(
        copy.path(),
        &["hot", "warm", "flood"],
        Session,
        EntryOnly,
        options,
    )?;
    probes
        .attachments
        .set_targets(&[scalpel_user::event::Pid(target.running().pid())]);
    probes.attach()?;
    probes.attachments.govern(now());
    target.running().say("go\n")?;
    let mut bounds = Vec::new();
    let start = Instant::now();
    while bounds.len() < 2 && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
        bounds.extend(probes.attachments.govern(now()));
    }
    let line = target
        .running()
        .stdout_line(|line| line.starts_with("{\"calls\""))?;
    let truth = scalpel_tests::truth::Truth::of(&line)?;
    let dropped: Vec<u32> = bounds.iter().map(|bound| bound.func.get()).collect();
    ensure!(
        dropped == [1, 2],
        "dropped {dropped:?}, hottest first: {bounds:?}"
    );
    ensure!(
        bounds
            .iter()
            .all(|bound| bound.since.is_some() && bound.reason.starts_with("over budget")),
        "{bounds:?}"
    );
    ensure!(
        probes.attachments.len() == 1,
        "{} are left",
        probes.attachments.len()
    );
    let hits = probes.kernel.hits_of(id(1));
    ensure!(
        hits > 0 && hits < truth.calls("hot")?,
        "{hits} entries of `hot` were counted"
    );
    ensure!(
        probes.kernel.hits_of(id(3)) == 1,
        "the cold function was not left alone"
    );
    target.finish()?.expect_code(0)?;
    Ok(())
}

pub(crate) fn many_links_close_in_parallel() -> Outcome {
    let copies = (0..32)
        .map(|_| catalog::CALLS.copy())
        .collect::<anyhow::Result<Vec<_>>>()?;
    let kernel = subject::kernel(Session)?;
    let mut attachments = Attachments::new(&kernel, AttachOptions::default());
    let mut requests = Vec::new();
    for (number, copy) in (1..).zip(&copies) {
        let all = functions(copy.path())?;
        let file = Arc::new(ProbedFile::open(copy.path())?);
        let leaf = all
            .iter()
            .find(|function| function.name == "leaf")
            .context("no leaf")?;
        requests.push(request(number, &file, leaf, EntryOnly)?);
    }
    let mut steps = Vec::new();
    attachments.attach(&requests, &mut |progress| steps.push(progress.done))?;
    ensure!(steps == (1..=32).collect::<Vec<_>>(), "{steps:?}");
    ensure!(
        attachments.link_count() == 32,
        "{} links",
        attachments.link_count()
    );
    let report = attachments.detach_all();
    ensure!(
        report.links == 32 && report.functions == 32 && attachments.is_empty(),
        "{report:?}"
    );
    ensure!(
        report.recursion_misses == 0 && !report.programs.is_empty(),
        "{report:?}"
    );
    for copy in &copies {
        ensure!(
            residue::links_on(copy.path())? == 0,
            "a link is left on {}",
            copy.path().display()
        );
    }
    Ok(())
}

pub(crate) fn a_pid_filter_leaves_strangers_alone() -> Outcome {
    for (mechanism, exit) in [
        (Session, EntryOnly),
        (Session, Return),
        (Multi, Return),
        (Perf, Return),
    ] {
        let copy = catalog::CALLS.copy()?;
        let mut watched = Target::start(copy.path(), &[])?;
        let mut stranger = Target::start(copy.path(), &[])?;
        let mut probes = Probes::new(
            copy.path(),
            &["leaf", "fib"],
            mechanism,
            exit,
            AttachOptions::default(),
        )?;
        only(&mut probes.requests, watched.running().pid());
        probes.attach()?;
        stranger.work()?;
        ensure!(
            probes.hits().values().all(|&hits| hits == 0),
            "{mechanism:?}: {:?}",
            probes.hits()
        );
        let truth = watched.work()?;
        ensure!(
            probes.hits() == both(&truth, &["leaf", "fib"])?,
            "{mechanism:?}: {:?}",
            probes.hits()
        );
    }
    Ok(())
}

pub(crate) fn a_filter_for_a_process_that_is_gone_says_so() -> Outcome {
    for mechanism in [Session, Multi, Perf] {
        let copy = catalog::CALLS.copy()?;
        let mut target = Target::start(copy.path(), &[])?;
        let mut probes = Probes::new(
            copy.path(),
            &["leaf"],
            mechanism,
            EntryOnly,
            AttachOptions::default(),
        )?;
        only(&mut probes.requests, target.running().pid());
        target.work()?;
        target.finish()?;
        let error = probes.try_attach().err().context("it was attached")?;
        ensure!(
            matches!(error, KernelError::ProcessGone(_)),
            "{mechanism:?}: {error}"
        );
    }
    Ok(())
}

pub(crate) fn too_many_perf_probes_are_refused_before_any_is_attached() -> Outcome {
    let copy = catalog::CALLS.copy()?;
    let options = AttachOptions {
        max_perf_probes: 3,
        ..AttachOptions::default()
    };
    let mut probes = Probes::new(copy.path(), &["leaf", "fib"], Perf, Return, options)?;
    let error = probes.try_attach().err().context("it was attached")?;
    ensure!(
        matches!(
            error,
            KernelError::TooManyForPerf {
                wanted: 4,
                limit: 3
            }
        ),
        "{error}"
    );
    ensure!(
        probes.attachments.link_count() == 0,
        "something was attached"
    );
    Ok(())
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

pub(crate) fn two_capabilities_are_enough_and_missing_ones_are_named() -> Outcome {
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

pub(crate) fn a_killed_collector_leaves_nothing() -> Outcome {
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

pub(crate) fn dropping_attachments_leaves_nothing() -> Outcome {
    let copy = catalog::BUSY.copy()?;
    let mut target = busy(copy.path())?;
    let mut probes = Probes::new(copy.path(), BUSY, Session, Return, AttachOptions::default())?;
    probes.attach()?;
    let pid = target.running().pid();
    ensure!(
        residue::text_is_clean(pid).is_err(),
        "no breakpoint was there to be left"
    );
    drop(probes);
    residue::text_is_clean(pid)?;
    target.work()?;
    target.finish()?.expect_code(0)?;
    Ok(())
}

pub(crate) fn the_cost_of_a_probe_is_measured_by_every_mechanism() -> Outcome {
    for mechanism in [Session, Multi, Perf] {
        let costs = scalpel_user::kernel::calibrate::measure(mechanism)?;
        for cost in [costs.entry, costs.entry_and_return, costs.stepped] {
            ensure!(
                cost.hot_ns > 0 && cost.cold_ns > 0,
                "{mechanism:?}: {costs:?}"
            );
        }
    }
    Ok(())
}
