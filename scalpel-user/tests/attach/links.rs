//! Links: what is refused, filtered and taken off.

use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::{catalog, residue, tests};
use scalpel_user::function::ExitStrategy::{EntryOnly, Return};
use scalpel_user::kernel::Mechanism::{Multi, Perf, Session};
use scalpel_user::kernel::attach::{AttachOptions, Attachments, ProbedFile};
use scalpel_user::kernel::{Family, KernelError};

use crate::subject::{self, BUSY, Probes, both, busy, functions, id, only, request};

/// Adds the tests of this file.
pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "links":
        a_refused_offset_is_found_and_the_others_are_attached,
        an_offset_beyond_the_file_is_refused,
        a_function_asked_for_twice_counts_once,
        a_deleted_file_can_be_probed,
        many_links_close_in_parallel,
        a_pid_filter_leaves_strangers_alone,
        a_filter_for_a_process_that_is_gone_says_so,
        too_many_perf_probes_are_refused_before_any_is_attached,
        dropping_attachments_leaves_nothing,
        the_cost_of_a_probe_is_measured_by_every_mechanism,
        only_programs_that_something_is_attached_to_are_loaded,
    );
}

fn a_refused_offset_is_found_and_the_others_are_attached() -> Outcome {
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

fn an_offset_beyond_the_file_is_refused() -> Outcome {
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

fn a_function_asked_for_twice_counts_once() -> Outcome {
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

fn a_deleted_file_can_be_probed() -> Outcome {
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

fn many_links_close_in_parallel() -> Outcome {
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

fn a_pid_filter_leaves_strangers_alone() -> Outcome {
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

fn a_filter_for_a_process_that_is_gone_says_so() -> Outcome {
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

fn too_many_perf_probes_are_refused_before_any_is_attached() -> Outcome {
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

fn dropping_attachments_leaves_nothing() -> Outcome {
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

fn the_cost_of_a_probe_is_measured_by_every_mechanism() -> Outcome {
    for mechanism in [Session, Multi, Perf] {
        let costs = scalpel_user::kernel::calibrate::measure(mechanism, Family::Events, || true)?;
        for cost in [costs.entry, costs.entry_and_return, costs.stepped] {
            ensure!(
                cost.hot_ns > 0 && cost.cold_ns > 0,
                "{mechanism:?}: {costs:?}"
            );
        }
    }
    // What ends add is measured only where some are watched.
    let costs = scalpel_user::kernel::calibrate::measure(Session, Family::Count, || false)?;
    ensure!(costs.entry == costs.entry_and_return, "{costs:?}");
    Ok(())
}

fn only_programs_that_something_is_attached_to_are_loaded() -> Outcome {
    let copy = catalog::CALLS.copy()?;
    let _target = Target::start(copy.path(), &[])?;
    let options = AttachOptions::default();
    let mut probes = Probes::new(copy.path(), &["fib"], Session, EntryOnly, options)?;
    let calls = |probes: &Probes| -> Vec<String> {
        let all = probes.kernel.program_stats().into_iter();
        let names = all.map(|program| program.name);
        names.filter(|name| name.starts_with("call_")).collect()
    };
    let before = calls(&probes);
    ensure!(before.is_empty(), "{before:?}");
    probes.attach()?;
    let after = calls(&probes);
    ensure!(after == ["call_entry"], "{after:?}");
    Ok(())
}
