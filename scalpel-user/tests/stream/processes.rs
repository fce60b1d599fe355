//! Fork, exec, mappings and samples.

use anyhow::ensure;
use scalpel_common::kernel::settings_flags;
use scalpel_tests::catalog;
use scalpel_tests::suite::Outcome;
use scalpel_tests::target::Target;
use scalpel_user::event::{Control, Kind};
use scalpel_user::function::ExitStrategy::{EntryOnly, Return};
use scalpel_user::kernel::sample::Sampler;

use crate::recording::{Plan, Recording, Stream};

const CHILDREN: usize = 40;

fn forks(flags: u32) -> anyhow::Result<(Stream, u32)> {
    let path = catalog::FORKS.build()?;
    let mut target = Target::start(&path, &[])?;
    let mut plan = Plan::new(Return);
    plan.options.flags = flags;
    let recording = Recording::start(&target, &path, &["task", "in_child"], plan)?;
    let truth = target.work()?;
    ensure!(truth.measured("failed")? == 0, "children failed");
    let pid = target.pid();
    target.finish()?;
    let stream = recording.finish()?;
    let parents = stream
        .events
        .iter()
        .filter(|event| event.pid == pid && event.kind == Kind::Enter as u8)
        .count();
    ensure!(
        parents as u64 == truth.calls("task")?,
        "{parents} calls of the parent"
    );
    let born = stream
        .controls
        .iter()
        .filter(|control| matches!(control, Control::Fork { .. }))
        .count();
    ensure!(born == CHILDREN, "{born} forks");
    Ok((stream, pid))
}

pub(crate) fn children_are_watched_from_their_first_instruction() -> Outcome {
    let (stream, pid) = forks(settings_flags::FOLLOW_FORKS)?;
    let children = stream
        .events
        .iter()
        .filter(|event| event.pid != pid && event.kind == Kind::Enter as u8)
        .count();
    ensure!(
        children == CHILDREN * 51,
        "{children} calls of the children"
    );
    let ended = |control: &&Control| {
        matches!(
            control,
            Control::Exit {
                process_ended: Some(0),
                ..
            }
        )
    };
    let ended = stream.controls.iter().filter(ended).count();
    ensure!(
        ended >= CHILDREN,
        "{ended} of the processes were seen to end with 0"
    );
    stream.threads().map(drop)
}

pub(crate) fn children_are_strangers_unless_asked_for() -> Outcome {
    let (stream, pid) = forks(0)?;
    let strangers = stream
        .events
        .iter()
        .filter(|event| event.pid != pid)
        .count();
    ensure!(strangers == 0, "{strangers} events of strangers");
    Ok(())
}

pub(crate) fn an_exec_is_reported() -> Outcome {
    let path = catalog::EXECS.build()?;
    let next = catalog::CALLS.build()?;
    let next = next.to_string_lossy().into_owned();
    let mut target = Target::start(&path, &[&next])?;
    let recording = Recording::start(&target, &path, &["before"], Plan::new(Return))?;
    target.running().say("go\n")?;
    target.running().stdout_line(|line| line == "ready\n")?;
    let truth = target.work()?;
    let pid = target.pid();
    target.finish()?;
    let stream = recording.finish()?;
    ensure!(truth.calls("work")? == 1, "the second program did not run");
    ensure!(
        stream.count(Kind::Enter).values().sum::<u64>() == 123,
        "{:?}",
        stream.count(Kind::Enter)
    );
    let is_exec = |control: &Control| matches!(control, Control::Exec { pid: who, path, .. } if who.0 == pid && *path == next);
    ensure!(stream.controls.iter().any(is_exec), "{:?}", stream.controls);
    Ok(())
}

pub(crate) fn a_late_library_is_reported_with_its_path() -> Outcome {
    let copy = catalog::PLUGINS.copy()?;
    let path = copy
        .with(&catalog::LIBPLUGIN)
        .map(|_library| copy.path().to_owned())?;
    let mut target = Target::start(&path, &[])?;
    let recording = Recording::start(&target, &path, &["before"], Plan::new(Return))?;
    target.work()?;
    target.finish()?;
    let stream = recording.finish()?;
    let of_plugin = |control: &&Control| matches!(control, Control::Map { path, .. } if path.ends_with("/libplugin.so"));
    let mapped = stream.controls.iter().find(of_plugin);
    let Some(Control::Map {
        start, end, time, ..
    }) = mapped
    else {
        anyhow::bail!("{:?}", stream.controls)
    };
    ensure!(start < end, "{mapped:?}");
    let after = stream
        .events
        .iter()
        .filter(|event| event.time > time.0)
        .count();
    ensure!(
        (1..stream.events.len()).contains(&after),
        "{after} events of {} after it",
        stream.events.len()
    );
    Ok(())
}

pub(crate) fn samples_show_where_a_busy_program_is() -> Outcome {
    let path = catalog::TIMES.build()?;
    let mut target = Target::start(&path, &[])?;
    let mut recording = Recording::start(&target, &path, &["burn"], Plan::new(EntryOnly))?;
    let sampler = Sampler::start(&mut recording.kernel, 499)?;
    let truth = target.work()?;
    let pid = target.pid();
    target.finish()?;
    drop(sampler);
    let stream = recording.finish()?;
    // Two burns, 499 samples a second; a host under load delays its timers.
    let expect = truth.measured("cpu_ns:burn_alone")? * 499 / 1_000_000_000;
    ensure!(
        stream.samples.len() as u64 >= expect / 2,
        "{} of {expect}",
        stream.samples.len()
    );
    for sample in &stream.samples {
        ensure!(
            sample.event.pid == pid && sample.event.kind == Kind::Sample as u8,
            "{sample:?}"
        );
        ensure!(!sample.user.is_empty(), "no stack: {sample:?}");
    }
    let deep = stream
        .samples
        .iter()
        .filter(|sample| sample.user.len() >= 3)
        .count();
    ensure!(
        deep * 10 >= stream.samples.len() * 9,
        "only {deep} stacks reach the callers"
    );
    Ok(())
}
