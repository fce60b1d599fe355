use proptest::prelude::*;

use super::Merged;
use crate::catalog::{DefId, Outcome, Why};
use crate::function::FunctionInfo;
use crate::genome::Genome;
use crate::genome::tests::{any_genome, example, triggered};
use crate::genome::totals;
use crate::input::KeptCall;
use crate::tree::{Cell, ContextId, Metrics, Returned, Returns};

/// What two merged genomes must have in common to be the same: everything, by what it is and not by its number.
fn dump(merged: &Merged) -> String {
    let function = |func: crate::event::FuncId| format!("{:?}", merged.functions.get(func));
    let path = |mut id: ContextId| {
        let mut path = Vec::new();
        while id != ContextId::ROOT {
            let context = merged.contexts[id.0 as usize];
            path.push(format!("{:?}", context.func.map(function)));
            id = context.parent;
        }
        path.join(" < ")
    };
    let mut lines: Vec<String> = merged
        .functions
        .iter()
        .map(|(_, info)| format!("function {info:?}"))
        .collect();
    for (at, context) in merged.contexts.iter().enumerate() {
        let path = path(ContextId(at as u32));
        lines.push(format!("context {path} {:?}", context.source));
    }
    for (uuid, run) in &merged.runs {
        let mut add = |line: String| lines.push(format!("{uuid} {line}"));
        add(format!("{:?} {:?} {}", run.run, run.ended, run.cut));
        add(format!("{} {}", run.tree.window_ns, run.tree.folded_calls));
        add(format!("{:?}", run.tree.threads));
        for cell in &run.tree.cells {
            let (window, thread) = (cell.window, cell.thread);
            add(format!(
                "cell {window} {thread} {} {:?}",
                path(cell.context),
                cell.metrics
            ));
        }
        for (func, histogram) in &run.tree.histograms {
            add(format!("histogram {} {histogram:?}", function(*func)));
        }
        for (func, returns) in &run.tree.returns {
            add(format!("returns {} {returns:?}", function(*func)));
        }
        for (func, faults) in &run.tree.faults {
            add(format!("faults {} {faults:?}", function(*func)));
        }
        for loss in &run.losses {
            let func = loss.func.map(function);
            add(format!(
                "loss {:?} {:?} {func:?} {}",
                loss.class, loss.cpu, loss.count
            ));
        }
        for call in &run.kept {
            let (func, took) = (function(call.func), call.wall_ns());
            add(format!("kept {func} {took} {}", call.items));
        }
        for bound in &run.bounds {
            let func = function(bound.func);
            add(format!("bound {func} {:?} {}", bound.since, bound.reason));
        }
        add(format!(
            "{:?} {:?} {:?}",
            run.notes, run.counters, run.blind_spots
        ));
    }
    lines.extend(exists(merged));
    lines.sort();
    lines.join("\n")
}

/// What exists and what was found there, by what it is.
fn exists(merged: &Merged) -> Vec<String> {
    let catalog = &merged.catalog;
    let file = |id: crate::catalog::FileId| {
        let file = catalog.file(id).unwrap();
        format!("{} {:?}", catalog.path_of(file), file.content)
    };
    let definition = |id: DefId| {
        let it = catalog.definition(id).unwrap();
        format!("{} {}#{}", file(it.file), it.qualified, it.ordinal)
    };
    let mut lines: Vec<String> = catalog
        .numbered()
        .map(|(id, it)| format!("definition {} {:?}", definition(id), it.span))
        .collect();
    lines.extend(catalog.edges.iter().map(|edge| {
        let (caller, callee) = (definition(edge.caller), definition(edge.callee));
        format!("call {caller} -> {callee} {:?} {}", edge.how, edge.at)
    }));
    lines.extend(merged.matches.outcomes.iter().map(|(func, outcome)| {
        let found = match outcome {
            Outcome::Matched(id) => definition(*id),
            Outcome::Unmatched(why) => why.word().to_owned(),
        };
        format!("match {:?}: {found}", merged.functions.get(*func))
    }));
    let bundled = merged.matches.bundled.iter();
    lines.extend(bundled.map(|&id| format!("bundled {}", file(id))));
    let built = merged.matches.built.iter();
    lines.extend(built.map(|&id| format!("built {}", definition(id))));
    let maybe = merged.matches.maybe.iter();
    lines.extend(maybe.map(|&id| format!("maybe {}", definition(id))));
    let facts = merged.facts.iter();
    lines.extend(facts.map(|(&id, facts)| format!("facts {} {facts:?}", file(id))));
    lines
}

/// A genome with what exists, of one edition or another, and with verdicts that are as `choice` says.
fn laid(mut genome: Genome, choice: u8) -> Genome {
    if choice == 0 {
        return genome;
    }
    let mut catalog = crate::catalog::tests::example();
    if choice.is_multiple_of(3) {
        catalog.files[0].content[0] ^= choice;
    }
    let most = catalog.definitions.len();
    for (at, (id, _)) in genome.functions.iter().enumerate() {
        let outcome = match (at + usize::from(choice)) % (most + 3) {
            place if place < most => Outcome::Matched(DefId(place as u32)),
            place if place == most => Outcome::Unmatched(Why::Vendored),
            place if place == most + 1 => Outcome::Unmatched(Why::NotFound),
            _ => continue,
        };
        genome.matches.outcomes.insert(id, outcome);
    }
    genome.matches.bundled.insert(crate::catalog::FileId(0));
    genome.matches.built.insert(DefId(u32::from(choice % 2)));
    genome.matches.maybe.insert(DefId(u32::from(choice % 3)));
    genome.facts.insert(
        crate::catalog::FileId(u32::from(choice % 2)),
        (1, vec![choice]),
    );
    genome.catalog = catalog;
    genome
}

fn merge<'a>(parts: impl IntoIterator<Item = &'a dyn Fn() -> Merged>) -> Merged {
    let mut merged = Merged::default();
    for part in parts {
        merged.join(part()).unwrap();
    }
    merged
}

/// A run of its own: other UUID, and functions in another order, as another process would number them.
fn another_run(mut genome: Genome, number: u32, turn: usize) -> Genome {
    genome.run.uuid = format!("00000000-0000-4000-8000-{number:012}");
    genome.run.started_unix_ns += u64::from(number);
    turn_functions(&mut genome, turn);
    genome
}

/// Numbers the functions anew.
fn turn_functions(genome: &mut Genome, turn: usize) {
    let count = genome.functions.len();
    let place = |func: crate::event::FuncId| {
        let at = (func.get() as usize - 1 + turn) % count;
        crate::event::FuncId::new(at as u32 + 1).unwrap()
    };
    let infos: Vec<(crate::event::FuncId, FunctionInfo)> = genome
        .functions
        .iter()
        .map(|(id, info)| (place(id), (**info).clone()))
        .collect();
    let table = &mut genome.functions;
    *table = crate::function::FunctionTable::new();
    infos.into_iter().for_each(|(id, info)| {
        table.define(id, info);
    });
    let kept = genome.kept.iter_mut();
    kept.for_each(|call| call.func = place(call.func));
    let tree = &mut genome.tree;
    let contexts = tree.contexts.iter_mut();
    contexts.for_each(|context| context.func = context.func.map(place));
    tree.histograms
        .iter_mut()
        .for_each(|(func, _)| *func = place(*func));
    tree.returns
        .iter_mut()
        .for_each(|(func, _)| *func = place(*func));
    tree.returns.sort_by_key(|&(func, _)| func);
    tree.faults
        .iter_mut()
        .for_each(|(func, _)| *func = place(*func));
    genome
        .bounds
        .iter_mut()
        .for_each(|bound| bound.func = place(bound.func));
    genome
        .losses
        .iter_mut()
        .for_each(|loss| loss.func = loss.func.map(place));
}

fn sums(cells: &[Cell]) -> Metrics {
    let mut sum = Metrics::default();
    cells.iter().for_each(|cell| sum.add(&cell.metrics));
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn merging_is_the_same_in_any_order_grouping_and_number(
        trees in prop::collection::vec((any_genome(), 0usize..8, 0u8..8), 3),
    ) {
        let run = |at: usize| {
            let tree = &trees[at];
            let genome = laid(another_run(clone(&tree.0), at as u32, tree.1), tree.2);
            // What comes from a file is interned.
            let mut merged = Merged::default();
            merged.join(genome.into()).unwrap();
            merged
        };
        let (a, b, c) = (|| run(0), || run(1), || run(2));
        let ab = || merge([&a as &dyn Fn() -> Merged, &b]);
        let bc = || merge([&b as &dyn Fn() -> Merged, &c]);
        let all = dump(&merge([&a as &dyn Fn() -> Merged, &b, &c]));
        prop_assert_eq!(&dump(&merge([&ab as &dyn Fn() -> Merged, &c])), &all);
        prop_assert_eq!(&dump(&merge([&a as &dyn Fn() -> Merged, &bc])), &all);
        prop_assert_eq!(&dump(&merge([&c as &dyn Fn() -> Merged, &b, &a])), &all);
        prop_assert_eq!(&dump(&merge([&ab as &dyn Fn() -> Merged, &bc, &ab])), &all);
    }

    #[test]
    fn a_file_of_many_runs_reads_back_as_it_was_written(
        trees in prop::collection::vec((any_genome(), 0usize..8, 0u8..8), 1..4),
    ) {
        let mut merged = Merged::default();
        for (number, (genome, turn, choice)) in (0..).zip(trees) {
            merged.join(laid(another_run(genome, number, turn), choice).into()).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("many.genome");
        merged.write(&path).unwrap();
        prop_assert_eq!(dump(&Merged::read_whole(&path).unwrap()), dump(&merged));
    }

    #[test]
    fn the_sum_of_runs_has_every_call_and_every_ns(
        trees in prop::collection::vec((any_genome(), 0usize..8), 2..4),
    ) {
        let mut merged = Merged::default();
        let mut expect = Metrics::default();
        let seen = |genome: &Genome| -> u64 {
            genome.tree.returns.iter().map(|(_, returns)| returns.seen()).sum()
        };
        let mut returned = 0;
        for (number, (genome, turn)) in (0..).zip(trees) {
            expect.add(&sums(&genome.tree.cells));
            returned += seen(&genome);
            merged.join(another_run(genome, number, turn).into()).unwrap();
        }
        let genome = merged.into_genome();
        prop_assert_eq!(sums(&genome.tree.cells), expect);
        prop_assert_eq!(seen(&genome), returned);
        let own = totals::per_context(&genome.tree, |_| true);
        let functions = totals::functions(&genome.tree, &own, &genome.functions);
        let calls: u64 = functions.iter().map(|total| total.metrics.calls).sum();
        prop_assert_eq!(calls, expect.calls);
    }
}

/// What calls returned, each as one of a handful of values, `most` of which a recording keeps.
fn returns(returned: &[u8], most: usize) -> Returns {
    let mut values = std::collections::BTreeMap::new();
    for value in returned {
        *values.entry(i64::from(*value) - 3).or_insert(0) += 1;
    }
    let rest = values.split_off(&(most as i64 - 3));
    let kept = values.into_iter().map(|(value, calls)| {
        let exact = true;
        (value, Returned { calls, exact })
    });
    Returns {
        calls: returned.len() as u64 + 1,
        values: kept.collect(),
        other: rest.values().sum(),
        range: returned
            .iter()
            .min()
            .zip(returned.iter().max())
            .map(|(least, most)| (i64::from(*least) - 3, i64::from(*most) - 3)),
    }
}

proptest! {
    #[test]
    fn what_was_returned_adds_up_in_any_order_and_an_exact_count_is_exact(
        runs in prop::collection::vec((prop::collection::vec(0u8..8, 0..12), 0usize..8), 3),
    ) {
        let parts: Vec<Returns> = runs.iter().map(|(all, most)| returns(all, *most)).collect();
        let sum = |order: &[&Returns]| {
            let mut sum = Returns::default();
            order.iter().for_each(|part| sum.add(part));
            sum
        };
        let [a, b, c] = parts.as_slice() else { unreachable!() };
        let all = sum(&[a, b, c]);
        prop_assert_eq!(&sum(&[c, a, b]), &all);
        prop_assert_eq!(&sum(&[a, &sum(&[c, b])]), &all);
        let truth: Vec<i64> = runs.iter().flat_map(|(all, _)| all).map(|value| i64::from(*value) - 3).collect();
        prop_assert_eq!(all.seen(), truth.len() as u64);
        prop_assert_eq!(all.without(), 3);
        for (value, returned) in &all.values {
            let calls = truth.iter().filter(|one| *one == value).count() as u64;
            prop_assert!(returned.calls <= calls && (!returned.exact || returned.calls == calls));
        }
        let range = truth.iter().min().copied().zip(truth.iter().max().copied());
        prop_assert_eq!(all.range, range);
    }
}

/// A genome is not `Clone`: nothing but a test needs two of one recording.
fn clone(genome: &Genome) -> Genome {
    let functions = genome.functions.iter();
    let mut table = crate::function::FunctionTable::new();
    functions.for_each(|(id, info)| {
        table.define(id, (**info).clone());
    });
    Genome {
        run: genome.run.clone(),
        ended: genome.ended,
        cut: genome.cut,
        functions: table,
        tree: genome.tree.clone(),
        losses: genome.losses.clone(),
        bounds: genome.bounds.clone(),
        notes: genome.notes.clone(),
        counters: genome.counters.clone(),
        blind_spots: genome.blind_spots.clone(),
        triggers: genome.triggers.clone(),
        kept: genome.kept.clone(),
        catalog: genome.catalog.clone(),
        facts: genome.facts.clone(),
        matches: genome.matches.clone(),
    }
}

#[test]
fn a_hundred_runs_merge_to_the_sum_of_all() {
    let mut forward = Merged::default();
    let mut backward = Merged::default();
    for number in 0..100 {
        let run = |number| another_run(example(), number, number as usize % 8);
        forward.join(run(number).into()).unwrap();
        backward.join(run(99 - number).into()).unwrap();
    }
    assert_eq!(dump(&forward), dump(&backward));
    let one = sums(&example().tree.cells);
    let genome = forward.into_genome();
    let hundred = sums(&genome.tree.cells);
    assert_eq!(hundred.calls, 100 * one.calls);
    assert_eq!(hundred.self_wall_ns, 100 * one.self_wall_ns);
    assert_eq!(genome.functions.len(), example().functions.len());
    assert_eq!(genome.events(), 100 * example().events());
    assert_eq!(genome.lost(), 100 * example().lost());
    assert_eq!(genome.duration_ns(), 100 * example().duration_ns());
}

#[test]
fn of_two_recordings_of_one_run_the_whole_one_is_kept() {
    let cut = || Genome {
        cut: true,
        ..example()
    };
    for order in [[true, false], [false, true]] {
        let mut merged = Merged::default();
        for is_cut in order {
            let genome = if is_cut { cut() } else { example() };
            merged.join(genome.into()).unwrap();
        }
        assert_eq!(merged.runs.len(), 1);
        assert!(!merged.into_genome().cut);
    }
}

#[test]
fn a_function_that_was_not_watched_in_some_runs_has_lower_bounds() {
    let mut merged = Merged::default();
    merged.join(another_run(example(), 1, 0).into()).unwrap();
    let mut watched = another_run(example(), 2, 0);
    watched.bounds.clear();
    merged.join(watched.into()).unwrap();
    let genome = merged.into_genome();
    let since: Vec<_> = genome.bounds.iter().map(|bound| bound.since).collect();
    assert_eq!(since.len(), 2);
    assert!(since.iter().all(Option::is_some));
    assert!(genome.bounds[0].reason.starts_with("in 1 of 2 runs: "));
}

#[test]
fn what_was_found_once_stays_found_and_nothing_is_left_out_of_a_rate_by_merging() {
    let found = |first: Outcome, second: Outcome| {
        let mut merged = Merged::default();
        for (number, outcome) in [(1, first), (2, second)] {
            let mut genome = another_run(example(), number, 0);
            genome.catalog = crate::catalog::tests::example();
            let ids: Vec<_> = genome.functions.iter().map(|(id, _)| id).collect();
            genome.matches.outcomes = ids.into_iter().map(|id| (id, outcome)).collect();
            merged.join(genome.into()).unwrap();
        }
        let genome = merged.into_genome();
        assert_eq!(genome.matches.outcomes.len(), genome.functions.len());
        *genome.matches.outcomes.values().next().unwrap()
    };
    let (one, none) = (Outcome::Matched(DefId(1)), Outcome::Unmatched);
    assert_eq!(found(one, none(Why::Edited)), one);
    assert_eq!(found(none(Why::NotFound), one), one);
    assert_eq!(
        found(none(Why::OutOfTree), none(Why::NotFound)),
        none(Why::NotFound)
    );
    assert_eq!(
        found(none(Why::NotFound), none(Why::Vendored)),
        none(Why::NotFound)
    );
}

#[test]
fn the_sum_has_one_name_for_one_set_of_runs() {
    let sum = |numbers: &[u32]| {
        let mut merged = Merged::default();
        for &number in numbers {
            merged
                .join(another_run(example(), number, 0).into())
                .unwrap();
        }
        merged.into_genome().run.uuid
    };
    assert_eq!(sum(&[1, 2]), sum(&[2, 1]));
    assert_ne!(sum(&[1, 2]), sum(&[1, 3]));
}

#[test]
fn kept_calls_of_two_runs_stand_side_by_side_under_one_trigger() {
    let mut merged = Merged::from(triggered());
    merged.join(another_run(triggered(), 1, 1).into()).unwrap();
    let genome = merged.into_genome();
    assert_eq!(genome.triggers.len(), 1);
    assert_eq!(
        (genome.triggers[0].kept, genome.triggers[0].calls),
        (4, 2_400)
    );
    assert_eq!(genome.triggers[0].slowest_ns, 48_000_000);
    let walk = |call: &KeptCall| {
        genome
            .functions
            .get(call.func)
            .map(|info| info.name.clone())
    };
    let names: Vec<_> = genome.kept.iter().map(walk).collect();
    assert_eq!(names, vec![Some(String::from("walk")); 4]);
}
