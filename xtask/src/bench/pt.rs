//! Intel PT: the stream of blocks against libipt's own block decoder, the oracle apart, and text an address. What is
//! measured is `examples/pt_cost` of the scopes' crate and, as a C program would do it, its `examples/pt_alone.c`.
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::results::Section;
use super::scope::figures;
use crate::{apt, cmd};

const PEER: &str = "libipt's block decoder, from C";
/// A recording of a processor with its program: 61,825 instructions.
const TRACE: &str = "cores/45.intelpt_trace";
const PROGRAM: &str = "modules/m.out";
/// Where its code stands in the file, how long it is, and where it ran.
const PLACE: [&str; 3] = ["0", "0x1f82", "0x400000"];
const PROCESSOR: [&str; 3] = ["6", "85", "4"];
/// Our figures: what `pt_cost` calls them, and what the page does.
const ROWS: &[(&str, &str, &str)] = &[
    ("item by item", "the same by this crate, item by item", ""),
    ("stream", "the stream of blocks", "<= 1.1"),
    ("judged", "each block joined and judged by the oracle", ""),
];
const ORACLE: &str = "the oracle alone";
const TEXT: &str = "text of a distinct instruction";

/// `rounds` times all of them.
pub(super) fn run(rounds: usize, yes: bool) -> Result<Section> {
    let mut section = Section {
        title: "Intel PT",
        about: "ns an instruction, of the recording `pt/lldb-multi-core` (61,825 instructions of a loop), by the examples \
`pt_alone.c` and `pt_cost` in turns, each the median of 31 passes. A pass begins with packets and an image of the code; \
text is ns a distinct instruction."
            .into(),
        unit: "ns",
        base: PEER,
        ..Section::default()
    };
    let recording = cmd::root().join("../shared/fixtures/pt/lldb-multi-core");
    if !recording.is_dir() {
        section
            .remarks
            .push("Not measured: the recordings are not beside the repository.".into());
        return Ok(section);
    }
    apt::ensure(&["libipt-dev", "libipt2"], "the bench of Intel PT", yes)?;
    let (ours, peer) = (build()?, build_peer()?);
    for round in 1..=rounds {
        cmd::say(format_args!("pt: round {round} of {rounds}"));
        pass(&mut section, &recording, &ours, &peer)?;
    }
    section.remarks.push(
        "Making each block a checked value costs what the second row is above the first; keeping it until no packet can cut \
it, what the third is above the second."
            .into(),
    );
    for row in &mut section.rows {
        let target = ROWS.iter().find(|(_, name, _)| *name == row.name);
        row.target = target.map_or("", |(.., target)| target);
        row.base = (row.name == TEXT).then(|| TEXT.into());
    }
    Ok(section)
}

fn build() -> Result<PathBuf> {
    cmd::build_release("scalpel-scope", &["--example", "pt_cost"])?;
    Ok(cmd::target().join("release/examples/pt_cost"))
}

fn build_peer() -> Result<PathBuf> {
    let program = cmd::target().join("release/examples/pt_alone");
    let source = cmd::root().join("probes/scope/examples/pt_alone.c");
    let mut compiler = cmd::command("gcc");
    compiler.arg("-O2").arg("-o").arg(&program);
    cmd::run(compiler.arg(source).arg("-lipt"))?;
    Ok(program)
}

/// The peer and ours, once each.
fn pass(section: &mut Section, recording: &Path, ours: &Path, peer: &Path) -> Result<()> {
    let (trace, program) = (recording.join(TRACE), recording.join(PROGRAM));
    let mut alone = cmd::command(peer);
    alone.arg(&trace).arg(&program).args(PLACE).args(PROCESSOR);
    let printed = cmd::output(&mut alone)?;
    section.add(PEER, value(&printed, "from C")?);
    let [.., address] = PLACE;
    let mut code = program.into_os_string();
    code.push(format!("@{address}"));
    let mut cost = cmd::command(ours);
    cost.arg(&trace).arg(code).arg(PROCESSOR.join("/"));
    let printed = cmd::output(&mut cost)?;
    for (what, name, _) in ROWS {
        section.add(name, value(&printed, what)?);
    }
    let oracle = value(&printed, "judged")? - value(&printed, "stream")?;
    section.add(ORACLE, oracle);
    section.add(TEXT, value(&printed, "text")?);
    Ok(())
}

fn value(printed: &str, what: &str) -> Result<f64> {
    let found = figures(printed).find(|(name, _)| *name == what);
    let (_, value) = found.with_context(|| format!("no `{what}` in: {printed}"))?;
    Ok(value)
}
