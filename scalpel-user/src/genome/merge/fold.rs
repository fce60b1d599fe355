//! Many runs added up to one recording, for reports: functions by their keys, threads side by side, windows counted
//! from each run's own start.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use uuid::Uuid;

use super::{Merged, Renumber, add_faults, add_histograms, add_returns};
use crate::catalog::Matches;
use crate::event::{FuncId, MonoTime, Pid};
use crate::function::FunctionTable;
use crate::genome::assemble::merge_cells;
use crate::genome::identity::{Change, Member, unify};
use crate::genome::{BlindSpot, Counter, Genome};
use crate::input::{Bound, KeptCall, Loss, RunInfo, Trigger};
use crate::tree::{Contexts, Tree};

/// The sum of all runs.
pub(super) fn fold(merged: &Merged) -> Genome {
    let runs: Vec<&Genome> = merged.runs.values().collect();
    let (functions, numbers, mut notes) = functions(merged, &runs);
    let mut contexts = Contexts::of(Vec::new());
    let renumber = Renumber {
        contexts: super::take(&mut contexts, &merged.contexts, |func| {
            super::new_func(&numbers, func)
        }),
        functions: numbers,
    };
    notes.extend(all_notes(&runs));
    let mut genome = Genome {
        ended: MonoTime(runs.iter().map(|run| run.duration_ns()).sum()),
        cut: runs.iter().any(|run| run.cut),
        functions,
        catalog: merged.catalog.clone(),
        tree: tree(&runs),
        losses: losses(&runs),
        counters: counters(&runs),
        blind_spots: blind_spots(&runs),
        notes,
        triggers: triggers(&runs),
        kept: kept(&runs),
        ..Genome::of_run(head(&runs))
    };
    renumber.run(&mut genome);
    genome.tree.contexts = contexts.into_all();
    genome.losses = add_losses(genome.losses);
    genome.bounds = bounds(&runs, &renumber);
    genome.matches = folded_matches(merged, &renumber);
    genome
}

/// What functions are that are one now.
fn folded_matches(merged: &Merged, renumber: &Renumber) -> Matches {
    let mut matches = Matches {
        bundled: merged.matches.bundled.clone(),
        built: merged.matches.built.clone(),
        folded: merged.matches.folded.clone(),
        maybe: merged.matches.maybe.clone(),
        ..Matches::default()
    };
    let outcomes = merged.matches.outcomes.iter();
    let renumbered = outcomes.map(|(&func, &outcome)| {
        let mut func = func;
        renumber.func(&mut func);
        (func, outcome)
    });
    super::matches::add(&merged.catalog, &mut matches.outcomes, renumbered);
    matches
}

/// The functions, the numbers that those of the runs get, and what is to be said of them.
fn functions(merged: &Merged, runs: &[&Genome]) -> (FunctionTable, Vec<FuncId>, Vec<String>) {
    let members = members(merged, runs);
    let mut table = FunctionTable::new();
    let mut numbers = vec![None; members.len()];
    let mut counts: BTreeMap<Change, u64> = BTreeMap::new();
    for unit in unify(&members) {
        *counts.entry(unit.change).or_default() += 1;
        let newest = unit.members.iter().filter_map(|&at| members.get(at));
        let newest = newest.max_by_key(|member| {
            let started = member.runs.iter().filter_map(|run| runs.get(*run as usize));
            started.map(|run| run.run.started_unix_ns).max()
        });
        let Some(info) = newest.map(|member| (*member.info).clone()) else {
            continue;
        };
        let id = insert_apart(&mut table, info);
        for at in unit.members {
            numbers
                .get_mut(at)
                .into_iter()
                .for_each(|number| *number = id);
        }
    }
    let numbers = numbers.into_iter().flatten().collect();
    (table, numbers, said_of(&counts))
}

/// Unlike [`FunctionTable::insert`], never takes two for one: which are one is decided.
fn insert_apart(
    table: &mut FunctionTable,
    mut info: crate::function::FunctionInfo,
) -> Option<FuncId> {
    info.ordinal = 0;
    while table.find(&info.key()).is_some() {
        info.ordinal += 1;
    }
    let id = FuncId::new(u32::try_from(table.len() + 1).ok()?)?;
    table.define(id, info).then_some(id)
}

fn members(merged: &Merged, runs: &[&Genome]) -> Vec<Member> {
    let mut members: Vec<Member> = merged
        .functions
        .iter()
        .map(|(_, info)| Member {
            info: Arc::clone(info),
            runs: Vec::new(),
        })
        .collect();
    for (number, run) in (0u32..).zip(runs) {
        let ran: BTreeSet<FuncId> = run
            .tree
            .cells
            .iter()
            .filter_map(|cell| merged.contexts.get(cell.context.0 as usize)?.func)
            .collect();
        for func in ran {
            let member = members.get_mut(func.get() as usize - 1);
            member
                .into_iter()
                .for_each(|member| member.runs.push(number));
        }
    }
    members
}

fn said_of(counts: &BTreeMap<Change, u64>) -> Vec<String> {
    let count = |change| counts.get(&change).copied().unwrap_or(0);
    let mut notes = Vec::new();
    let edited = count(Change::Edited);
    if edited > 0 {
        notes.push(format!(
            "of the functions of the merged runs {edited} had another body in some of them: their numbers are sums over different code"
        ));
    }
    let apart = count(Change::NotComparable);
    if apart > 0 {
        notes.push(format!(
            "of the functions of the merged runs {apart} share their names with others and are not comparable across builds: they stand apart"
        ));
    }
    notes
}

fn head(runs: &[&Genome]) -> RunInfo {
    let infos = || runs.iter().map(|run| &run.run);
    let newest = infos().max_by_key(|run| (run.started_unix_ns, &run.uuid));
    let costs = || infos().filter_map(|run| run.probe_cost_ns);
    let pids: BTreeSet<Pid> = infos().map(|run| run.pid).collect();
    RunInfo {
        uuid: uuid_of(infos().map(|run| &*run.uuid)),
        pid: match pids.first() {
            Some(pid) if pids.len() == 1 => *pid,
            _ => Pid(0),
        },
        command: listed(infos().map(|run| &*run.command)),
        host: listed(infos().map(|run| &*run.host)),
        kernel: listed(infos().map(|run| &*run.kernel)),
        started_unix_ns: infos().map(|run| run.started_unix_ns).min().unwrap_or(0),
        started: MonoTime(0),
        mode: listed(infos().map(|run| &*run.mode)),
        version: newest.map(|run| run.version.clone()).unwrap_or_default(),
        probe_cost_ns: costs()
            .map(|(low, _)| low)
            .min()
            .zip(costs().map(|(_, high)| high).max()),
        sample_hz: infos().map(|run| run.sample_hz).max().unwrap_or(0),
    }
}

/// One name for one set of runs.
fn uuid_of<'a>(uuids: impl Iterator<Item = &'a str>) -> String {
    let uuids: BTreeSet<&str> = uuids.collect();
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, &uuids).hash(&mut hasher);
        hasher.finish()
    };
    Uuid::from_u64_pair(half(0), half(1)).to_string()
}

/// Words that differ, at most three.
fn listed<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: BTreeSet<&str> = words.collect();
    let more = words.len().saturating_sub(3);
    let mut list = words.into_iter().take(3).collect::<Vec<_>>().join("; ");
    if more > 0 {
        list.push_str(&format!("; and {more} more"));
    }
    list
}

fn tree(runs: &[&Genome]) -> Tree {
    let window_ns = runs.iter().map(|run| run.tree.window_ns).max().unwrap_or(0);
    let mut tree = Tree {
        window_ns,
        folded_calls: runs.iter().map(|run| run.tree.folded_calls).sum(),
        histograms: add_histograms(runs.iter().flat_map(|run| run.tree.histograms.clone())),
        cpu_histograms: add_histograms(runs.iter().flat_map(|run| run.tree.cpu_histograms.clone())),
        returns: add_returns(runs.iter().flat_map(|run| run.tree.returns.clone())),
        faults: add_faults(runs.iter().flat_map(|run| run.tree.faults.iter().copied())),
        ..Tree::default()
    };
    for run in runs {
        let first = tree.threads.len() as u32;
        tree.threads.extend(run.tree.threads.iter().cloned());
        tree.cells.extend(run.tree.cells.iter().map(|cell| {
            let mut cell = *cell;
            cell.thread += first;
            cell.window = coarser(cell.window, run.tree.window_ns, window_ns);
            cell
        }));
    }
    merge_cells(&mut tree.cells);
    tree
}

/// The window of length `to` in which the window number `window` of length `from` begins.
fn coarser(window: u32, from: u64, to: u64) -> u32 {
    let start = u128::from(window) * u128::from(from);
    u32::try_from(start / u128::from(to.max(1))).unwrap_or(u32::MAX)
}

/// Triggers of one text are one.
fn triggers(runs: &[&Genome]) -> Vec<Trigger> {
    let mut sums: Vec<Trigger> = Vec::new();
    for trigger in runs.iter().flat_map(|run| &run.triggers) {
        match sums.iter_mut().find(|sum| sum.is_as(trigger)) {
            Some(sum) => sum.add(trigger),
            None => sums.push(trigger.clone()),
        }
    }
    sums
}

/// Kept calls of all runs, with their triggers' places among those of all.
fn kept(runs: &[&Genome]) -> Vec<KeptCall> {
    let all = triggers(runs);
    let of_run = |run: &&Genome| {
        let place = |trigger: &Trigger| all.iter().position(|one| one.is_as(trigger));
        let places: Vec<u32> = run
            .triggers
            .iter()
            .map(|trigger| place(trigger).unwrap_or(0) as u32)
            .collect();
        let call = move |call: &KeptCall| KeptCall {
            trigger: places.get(call.trigger as usize).copied().unwrap_or(0),
            ..call.clone()
        };
        run.kept.iter().map(call).collect::<Vec<_>>()
    };
    runs.iter().flat_map(of_run).collect()
}

fn losses(runs: &[&Genome]) -> Vec<Loss> {
    runs.iter().flat_map(|run| run.losses.clone()).collect()
}

fn add_losses(losses: Vec<Loss>) -> Vec<Loss> {
    let mut sums: BTreeMap<_, u64> = BTreeMap::new();
    for loss in losses {
        let sum = sums.entry((loss.class, loss.cpu, loss.func)).or_default();
        *sum = sum.saturating_add(loss.count);
    }
    let loss = |((class, cpu, func), count)| Loss {
        class,
        cpu,
        func,
        count,
    };
    sums.into_iter().map(loss).collect()
}

/// A function that was not watched in some of the runs has lower bounds; one that never was is not watched.
fn bounds(runs: &[&Genome], renumber: &Renumber) -> Vec<Bound> {
    let mut all: BTreeMap<FuncId, Vec<Option<u64>>> = BTreeMap::new();
    let mut reasons: BTreeMap<FuncId, BTreeSet<&str>> = BTreeMap::new();
    for run in runs {
        let started = run.run.started.0;
        for bound in &run.bounds {
            let mut func = bound.func;
            renumber.func(&mut func);
            let since = bound.since.map(|since| since.0.saturating_sub(started));
            all.entry(func).or_default().push(since);
            reasons.entry(func).or_default().insert(&bound.reason);
        }
    }
    let bound = |((func, since), reasons): ((FuncId, Vec<Option<u64>>), BTreeSet<&str>)| {
        let never = since.len() == runs.len() && since.iter().all(Option::is_none);
        let least = since.iter().map(|since| since.unwrap_or(0)).min();
        let reasons = listed(reasons.into_iter());
        Bound {
            func,
            since: (!never).then(|| MonoTime(least.unwrap_or(0))),
            reason: format!("in {} of {} runs: {reasons}", since.len(), runs.len()),
        }
    };
    all.into_iter()
        .zip(reasons.into_values())
        .map(bound)
        .collect()
}

fn all_notes(runs: &[&Genome]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for note in runs.iter().flat_map(|run| &run.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    notes
}

fn counters(runs: &[&Genome]) -> BTreeMap<Counter, u64> {
    let mut sums = BTreeMap::new();
    for (counter, count) in runs.iter().flat_map(|run| &run.counters) {
        let sum: &mut u64 = sums.entry(*counter).or_default();
        *sum = sum.saturating_add(*count);
    }
    sums
}

fn blind_spots(runs: &[&Genome]) -> Vec<BlindSpot> {
    let all: BTreeSet<&BlindSpot> = runs.iter().flat_map(|run| &run.blind_spots).collect();
    all.into_iter().cloned().collect()
}
