//! The formats over a small genome with every kind of trouble in it, to the letter; and over random ones, to the call.

use std::io::Write;

use proptest::prelude::*;

use super::{
    Notes, Subject, Weight, callgrind, cobertura, dot, flame, folded, lcov, ndjson, pprof,
    speedscope,
};
use crate::genome::Genome;
use crate::genome::tests::{any_genome, example};
use crate::genome::totals;

fn bytes<T>(write: impl FnOnce(&mut dyn Write) -> std::io::Result<T>) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    out
}

fn text<T>(write: impl FnOnce(&mut dyn Write) -> std::io::Result<T>) -> String {
    String::from_utf8(bytes(write)).unwrap()
}

#[test]
fn every_format_is_known_to_the_letter() {
    let genome = example();
    let subject = Subject::of(&genome, 0.001);
    let all: Vec<String> = Weight::ALL
        .iter()
        .map(|weight| text(|out| folded::write(&subject, *weight, out)))
        .collect();
    insta::assert_snapshot!("folded", all.join("\n"));
    insta::assert_snapshot!("callgrind", text(|out| callgrind::write(&subject, out)));
    let dot = text(|out| dot::write(&subject, &|info| info.name == "walk", 1, out));
    insta::assert_snapshot!("dot", dot);
    insta::assert_snapshot!("lcov", text(|out| lcov::write(&subject, out)));
    insta::assert_snapshot!("cobertura", text(|out| cobertura::write(&subject, out)));
    insta::assert_snapshot!("ndjson", text(|out| ndjson::write(&subject, out)));
    let speedscope = text(|out| speedscope::write(&subject, Weight::Wall, out));
    insta::assert_snapshot!("speedscope", speedscope);
}

/// The fields of a profile as a reader sees them: number and content, in the order in which they come.
#[test]
fn a_profile_is_the_same_every_time_and_begins_with_what_it_measures() {
    let genome = example();
    let subject = Subject::of(&genome, 0.001);
    let profile = || bytes(|out| pprof::write(&subject, Weight::Cpu, out));
    assert_eq!(profile(), profile());
    let mut plain = Vec::new();
    std::io::copy(&mut flate2::read::GzDecoder::new(&*profile()), &mut plain).unwrap();
    let hex: Vec<String> = plain
        .chunks(32)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    insta::assert_snapshot!("pprof", hex.join("\n"));
}

#[test]
fn a_flame_graph_shows_what_weighs_and_what_to_doubt() {
    let genome = example();
    let subject = Subject::of(&genome, 0.001);
    let svg = text(|out| flame::write(&subject, Weight::Wall, out));
    for part in ["serve", "walk", "CPU" /* nowhere */] {
        assert_eq!(
            svg.contains(&format!("<title>{part} (")),
            part != "CPU",
            "{part}"
        );
    }
    assert!(svg.contains("12 events lost"), "{svg}");
    let same = text(|out| flame::write_difference(&subject, &subject, Weight::Wall, out));
    assert!(
        same.contains("0.00%") && same.contains("since shop"),
        "{same}"
    );
}

#[test]
fn foreign_names_break_no_format() {
    let mut genome = example();
    let id = crate::event::FuncId::new(1).unwrap();
    let mut info = genome.functions.get(id).unwrap().as_ref().clone();
    info.name = "a;b\n\u{1b}[2J\u{1}\",<&>\\".into();
    info.file = Some("dir\u{1}/f\n.c".into());
    genome.functions.define(id, info);
    genome.run.command = "shop\n--\u{1}".into();
    let subject = Subject::of(&genome, 0.001);
    let texts = [
        text(|out| folded::write(&subject, Weight::Wall, out)),
        text(|out| callgrind::write(&subject, out)),
        text(|out| dot::write(&subject, &|info| info.name == "walk", 1, out)),
        text(|out| lcov::write(&subject, out)),
        text(|out| cobertura::write(&subject, out)),
        text(|out| flame::write(&subject, Weight::Wall, out)),
    ];
    for text in texts {
        let control = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
        assert!(!text.contains(control), "{text}");
    }
    let stacks = text(|out| folded::write(&subject, Weight::Wall, out));
    assert!(
        stacks
            .lines()
            .all(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().is_ok())
    );
}

#[test]
fn functions_of_one_name_stay_apart() {
    let mut genome = example();
    let twin = genome.functions.iter().next().unwrap().1.as_ref().clone();
    let other = crate::function::FunctionInfo {
        module: "libtwin.so".into(),
        path: "/lib/libtwin.so".into(),
        ..twin
    };
    genome.functions.insert(other);
    let subject = Subject::of(&genome, 0.001);
    let stacks = text(|out| folded::write(&subject, Weight::Calls, out));
    assert!(stacks.starts_with("serve [shop] 3\n"), "{stacks}");
}

#[test]
fn coverage_claims_nothing_of_what_could_not_be_seen() {
    let mut genome = example();
    for number in 1..=8 {
        let id = crate::event::FuncId::new(number).unwrap();
        let mut info = genome.functions.get(id).unwrap().as_ref().clone();
        (info.file, info.line) = (Some("src/a.c".into()), Some(number));
        info.place.column = (number == 1).then_some(4);
        genome.functions.define(id, info);
    }
    let subject = Subject::of(&genome, 0.001);
    let mut notes = Notes::new();
    let info = text(|out| {
        notes = lcov::write(&subject, out)?;
        Ok(())
    });
    assert!(info.contains("FNDA:0,never_called:6\n"), "{info}");
    assert!(info.contains("FNDA:3,serve:1:5\n"), "{info}");
    assert!(!info.contains("refused"), "{info}");
    assert!(
        notes
            .iter()
            .any(|note| note.contains("could not be watched")),
        "{notes:?}"
    );
}

/// What callgrind's edges to each function cost, as its readers add them up.
fn incoming(file: &str, column: usize) -> std::collections::HashMap<String, u64> {
    let mut sums = std::collections::HashMap::<String, u64>::new();
    let (mut callee, mut after_calls) = (String::new(), false);
    let cost = |line: &str| {
        line.split(' ')
            .nth(column + 1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    for line in file.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            callee = name.split(')').next().unwrap().into();
        } else if line.starts_with("calls=") {
            after_calls = true;
        } else if std::mem::take(&mut after_calls) {
            *sums.entry(callee.clone()).or_default() += cost(line);
        }
    }
    sums
}

fn wall(genome: &Genome, number: u32) -> u64 {
    let own = totals::per_context(&genome.tree, |_| true);
    let sums = totals::functions(&genome.tree, &own, &genome.functions);
    sums[number as usize - 1].metrics.total_wall_ns
}

proptest! {
    /// A reader that adds up the edges to a function finds its total, however functions call themselves and each other.
    #[test]
    fn callgrinds_edges_add_up_to_totals(genome in any_genome()) {
        let subject = Subject::of(&genome, 0.001);
        let Some(column) = subject.weights().iter().position(|weight| *weight == Weight::Wall) else {
            return Ok(());
        };
        let file = text(|out| callgrind::write(&subject, out));
        for (number, total) in incoming(&file, column) {
            let number: u32 = number.trim_start_matches('(').parse().unwrap();
            if number as usize <= genome.functions.len() {
                prop_assert_eq!(total, wall(&genome, number), "function {}", number);
            }
        }
    }

    /// Stacks keep every call and every ns.
    #[test]
    fn folded_stacks_keep_everything(genome in any_genome()) {
        let subject = Subject::of(&genome, 0.001);
        for weight in Weight::ALL {
            let stacks = text(|out| folded::write(&subject, weight, out));
            let sum: u64 = stacks.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
            prop_assert_eq!(sum, subject.own.iter().map(|m| weight.of(m)).sum::<u64>());
        }
    }
}
