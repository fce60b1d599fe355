//! Instruction scopes: a step against the bare trap, a copied block against the step and against valgrind, a callee at full
//! speed, and a step by ptrace against gdb's. What is measured is `examples/cost` of the scopes' crate.
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::results::Section;
use crate::{apt, cmd};

/// Each ratio: the row, what it is taken against, and its target.
const RATIOS: &[(&str, &str, &str)] = &[
    ("a step", "a bare trap", "<= 1.15"),
    ("a block of a copy, by the dispatcher", "a step", "<= 20 ns"),
    ("a block of a copy, joined", "a step", "<= 20 ns"),
    (
        "a block under valgrind",
        "a block of a copy, by the dispatcher",
        "",
    ),
    (
        "a block, natively",
        "a block of a copy, by the dispatcher",
        "",
    ),
    ("a call-out", "a step", ""),
    ("a step by ptrace", "a step", ""),
    ("a step by gdb", "a step by ptrace", ""),
];

/// `rounds` times all of them.
pub(super) fn run(rounds: usize, yes: bool) -> Result<Section> {
    apt::ensure(&["valgrind", "gdb"], "the bench of scopes", yes)?;
    cmd::build_release("scalpel-scope", &["--example", "cost"])?;
    let program = cmd::target().join("release/examples/cost");
    let mut section = Section {
        title: "Scopes",
        about: "ns, by the example `cost`: a loop of three blocks a turn (an indirect call, a return, the loop's end), \
stepped, from a copy with its log, natively, and under `valgrind --tool=none`, which logs nothing. A call-out is a turn of \
a loop that calls a function outside of its region, the region's own instructions with it. The oracle checks each step of \
the trace at the close, apart from what runs."
            .into(),
        unit: "ns",
        ..Section::default()
    };
    let (mut traps, mut ioctls) = (0.0_f64, 0.0_f64);
    for round in 1..=rounds {
        cmd::say(format_args!("scope: round {round} of {rounds}"));
        for (what, value) in figures(&cmd::output(&mut cmd::command(&program))?) {
            match what {
                "traps of a call-out" => traps = traps.max(value),
                "ioctls of a call-out" => ioctls = ioctls.max(value),
                _ => section.add(what, value),
            }
        }
        section.add(
            "a block, natively",
            block(cmd::command(&program), "10000000")?,
        );
        let mut valgrind = cmd::command("valgrind");
        valgrind.args(["--quiet", "--tool=none"]).arg(&program);
        section.add("a block under valgrind", block(valgrind, "1000000")?);
        section.add("a step by gdb", gdb(&program)?);
    }
    section.remarks.push(if traps > 0.0 {
        format!(
            "A call-out took {traps:.2} traps (target: at most 3) and {ioctls:.2} ioctls (target: at most 2), the scope's \
own with them."
        )
    } else {
        "Call-outs were stepped: this machine gives no debug registers.".into()
    });
    name_ratios(&mut section);
    Ok(section)
}

fn name_ratios(section: &mut Section) {
    for row in &mut section.rows {
        let ratio = RATIOS.iter().find(|(name, ..)| *name == row.name);
        row.base = Some(ratio.map_or_else(|| row.name.clone(), |(_, base, _)| (*base).to_owned()));
        row.target = ratio.map_or("", |(.., target)| target);
    }
}

/// The lines of an example: what, a tab, ns.
pub(super) fn figures(printed: &str) -> impl Iterator<Item = (&str, f64)> {
    printed.lines().filter_map(|line| {
        let (what, value) = line.split_once('\t')?;
        Some((what, value.parse().ok()?))
    })
}

/// ns a block of so many turns.
fn block(mut command: std::process::Command, turns: &str) -> Result<f64> {
    let printed = cmd::output(command.args(["native", turns]))?;
    let found = figures(&printed).find(|(what, _)| *what == "a block");
    let (_, value) = found.with_context(|| format!("no block in: {printed}"))?;
    Ok(value)
}

/// ns a step: many steps less few, so that starting is not in it.
fn gdb(program: &Path) -> Result<f64> {
    const FEW: u32 = 500;
    const MANY: u32 = 4_500;
    let run = |steps: u32| -> Result<f64> {
        let begun = Instant::now();
        let mut command = cmd::command("gdb");
        command
            .args(["-q", "-nx", "-batch"])
            .args(["-ex", "break scope_cost_loop", "-ex", "run"])
            .args(["-ex", &format!("stepi {steps}")])
            .arg("--args")
            .arg(program)
            .args(["native", "1000000"]);
        cmd::output(&mut command)?;
        Ok(begun.elapsed().as_secs_f64())
    };
    Ok((run(MANY)? - run(FEW)?) * 1e9 / f64::from(MANY - FEW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_example_are_read() {
        let found: Vec<_> = figures("a step\t12.500\nnoise\na block\tx\na block\t3\n").collect();
        assert_eq!(found, [("a step", 12.5), ("a block", 3.0)]);
    }
}
