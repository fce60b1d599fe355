//! The counters of count mode when they are full, in use by several processors, or change hands while calls are open.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::ensure;
use rustix::thread::{CpuSet, sched_setaffinity};
use scalpel_common::kernel::LossClass;
use scalpel_tests::suite::{Outcome, Skip, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::truth::Truth;
use scalpel_tests::{catalog, tests};
use scalpel_user::function::ExitStrategy::{self, EntryOnly, Return};
use scalpel_user::input;
use scalpel_user::kernel::Mechanism::Session;
use scalpel_user::kernel::attach::AttachOptions;
use scalpel_user::kernel::counts::CountReader;
use scalpel_user::kernel::{Family, Kernel};

use crate::subject::{self, BUSY, Probes, id, now};

/// Adds the tests of this file.
pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "counts":
        with_too_few_cells_what_was_counted_and_what_found_none_is_the_truth,
        with_too_few_histograms_what_they_have_and_what_found_none_is_all_that_was_timed,
        processors_count_apart_and_add_up,
        calls_open_while_links_change_are_counted_and_not_timed_beyond_it,
    );
}

/// Counting probes of the busy fixture, with room for so many cells and histograms.
fn probes(
    path: &std::path::Path,
    exit: ExitStrategy,
    cells: u32,
    histograms: u32,
) -> anyhow::Result<(Probes, CountReader)> {
    let mut options = subject::options(Session);
    options.family = Family::Count;
    options.count_cells = cells;
    options.count_histograms = histograms;
    let kernel = Kernel::load(&options)?;
    let reader = CountReader::map(&kernel, now())?;
    let mut probes = Probes::on(kernel, path, BUSY, exit, AttachOptions::default())?;
    probes.attach()?;
    Ok((probes, reader))
}

/// What came of a run: what was counted, what the hits tell beyond that, and what was lost.
struct Ended {
    edges: Vec<input::CountedEdge>,
    times: Vec<input::CountedTimes>,
    missing: Vec<input::CountedEdge>,
    losses: Vec<input::Loss>,
}

fn end(mut probes: Probes, mut reader: CountReader, pid: u32) -> anyhow::Result<Ended> {
    probes.attachments.detach_all();
    let counts = reader.read(now(), |_pid, _execs| true);
    let functions = probes.requests.iter().map(|request| request.func);
    let hits = |func| probes.kernel.hits_of(func);
    let missing = reader.without_cell(scalpel_user::event::Pid(pid), functions, hits);
    let losses = probes.events.finish()?.losses;
    Ok(Ended {
        edges: counts.edges,
        times: counts.times,
        missing,
        losses,
    })
}

impl Ended {
    fn lost(&self, class: LossClass) -> u64 {
        let of_class = self.losses.iter().filter(|loss| loss.class == class);
        of_class.map(|loss| loss.count).sum()
    }

    /// Calls of each function, those without a cell too.
    fn agrees_with(&self, truth: &Truth) -> Outcome {
        for (number, name) in (1..).zip(BUSY) {
            let all = self.edges.iter().chain(&self.missing);
            let of_function = all.filter(|edge| edge.func == id(number));
            let seen: u64 = of_function.map(|edge| edge.calls).sum();
            let made = truth.calls(name)?;
            ensure!(seen == made, "{name}: {seen} of {made}");
        }
        Ok(())
    }
}

fn with_too_few_cells_what_was_counted_and_what_found_none_is_the_truth() -> Outcome {
    let copy = catalog::BUSY.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let (probes, reader) = probes(copy.path(), EntryOnly, 1, 16)?;
    target.running().say("go\n")?;
    target.running().stdout_line(|line| line == "busy\n")?;
    let truth = target.work()?;
    let ended = end(probes, reader, target.pid())?;
    target.finish()?.expect_code(0)?;
    ensure!(ended.edges.len() == 1, "{:?}", ended.edges);
    ended.agrees_with(&truth)?;
    let missing: u64 = ended.missing.iter().map(|edge| edge.calls).sum();
    let lost = ended.lost(LossClass::CountCell);
    ensure!(
        missing > 0 && missing == lost,
        "{missing} without a cell, {lost} told"
    );
    Ok(())
}

fn with_too_few_histograms_what_they_have_and_what_found_none_is_all_that_was_timed() -> Outcome {
    let copy = catalog::BUSY.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let (probes, reader) = probes(copy.path(), Return, 1 << 10, 1)?;
    target.running().say("go\n")?;
    target.running().stdout_line(|line| line == "busy\n")?;
    let truth = target.work()?;
    let ended = end(probes, reader, target.pid())?;
    target.finish()?.expect_code(0)?;
    ended.agrees_with(&truth)?;
    let timed: u64 = ended.edges.iter().map(|edge| edge.timed).sum();
    let lost = ended.lost(LossClass::CountHistogram);
    for is_cpu in [false, true] {
        let of_clock = ended.times.iter().filter(|times| times.is_cpu == is_cpu);
        let kept: u64 = of_clock
            .flat_map(|times| &times.buckets)
            .map(|&(_, calls)| calls)
            .sum();
        ensure!(
            kept > 0 && lost > 0 && kept + lost == timed,
            "{kept} kept, {lost} told, {timed} timed"
        );
    }
    Ok(())
}

/// The two threads of the fixture, each on a processor of its own.
fn processors_count_apart_and_add_up() -> Outcome {
    let online = std::thread::available_parallelism()?.get();
    if online < 2 {
        return Err(Skip::because("one processor"));
    }
    let copy = catalog::BUSY.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let (probes, mut reader) = probes(copy.path(), Return, 1 << 10, 64)?;
    target.running().say("go\n")?;
    target.running().stdout_line(|line| line == "busy\n")?;
    let tasks = std::fs::read_dir(format!("/proc/{}/task", target.pid()))?;
    let mut threads = Vec::new();
    for task in tasks {
        threads.push(task?.file_name().to_string_lossy().parse::<i32>()?);
    }
    threads.sort_unstable();
    for (cpu, thread) in threads.iter().skip(1).enumerate() {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(rustix::process::Pid::from_raw(*thread), &set)?;
    }
    // Until a reading finds that both have called `leaf` since the one before: two histograms of it grew.
    let patience = Instant::now() + Duration::from_secs(60);
    let mut earlier = Vec::new();
    let of_leaf = |times: &&input::CountedTimes| times.func == id(1) && !times.is_cpu;
    loop {
        let counts = reader.read(now(), |_pid, _execs| true);
        let stripes = counts.times.iter().filter(of_leaf).count();
        earlier.extend(counts.edges);
        if stripes == 2 {
            break;
        }
        ensure!(Instant::now() < patience, "{stripes} of 2 stripes");
        std::thread::sleep(Duration::from_millis(20));
    }
    let truth = target.work()?;
    let mut ended = end(probes, reader, target.pid())?;
    target.finish()?.expect_code(0)?;
    let sites: HashSet<_> = ended
        .edges
        .iter()
        .map(|edge| (edge.func, edge.site))
        .collect();
    ensure!(sites.len() == ended.edges.len(), "one edge, told twice");
    ended.edges.extend(earlier);
    ended.agrees_with(&truth)
}

fn calls_open_while_links_change_are_counted_and_not_timed_beyond_it() -> Outcome {
    let copy = catalog::BUSY.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let (mut probes, reader) = probes(copy.path(), Return, 1 << 10, 64)?;
    target.running().say("go\n")?;
    target.running().stdout_line(|line| line == "busy\n")?;
    std::thread::sleep(Duration::from_millis(50));
    let given_up = probes
        .attachments
        .drop_functions(&HashSet::from([id(1)]), now());
    ensure!(given_up.is_empty(), "{given_up:?}");
    // The link that had `leaf` closes aside.
    std::thread::sleep(Duration::from_secs(1));
    let truth = target.work()?;
    let ended = end(probes, reader, target.pid())?;
    target.finish()?.expect_code(0)?;
    for (number, name) in [(2, "round_of"), (3, "body")] {
        let of_function = || {
            ended
                .edges
                .iter()
                .filter(move |edge| edge.func == id(number))
        };
        let (calls, timed) =
            of_function().fold((0, 0), |sum, edge| (sum.0 + edge.calls, sum.1 + edge.timed));
        let made = truth.calls(name)?;
        ensure!(calls == made, "{name}: {calls} of {made}");
        // Those that were open at the change have no times: one on each of two threads.
        ensure!(
            (made.saturating_sub(2)..=made).contains(&timed),
            "{name}: {timed} timed of {made}"
        );
    }
    let leaf = ended.edges.iter().filter(|edge| edge.func == id(1));
    let (calls, timed) = leaf.fold((0, 0), |sum, edge| (sum.0 + edge.calls, sum.1 + edge.timed));
    ensure!(calls < truth.calls("leaf")?, "leaf was not dropped");
    ensure!(ended.missing.is_empty(), "{:?}", ended.missing);
    // Open when its own link went: two more.
    ensure!(timed <= calls && timed + 4 >= calls, "{timed} of {calls}");
    Ok(())
}
