//! `genome build`: what exists in source trees and executables, written to a file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use crate::catalog::{Catalog, File, Kept};
use crate::exit::Outcome;
use crate::genome::store::GenomeError;
use crate::lay::Sources;
use crate::output::Output;
use crate::plan::BuildPlan;
use crate::static_::Built;

pub(in super::super) fn run(plan: &BuildPlan, output: &Output) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let sources = Sources::of(&plan.sources, &plan.executables)?;
    let before = before(&plan.output)?;
    let built = sources.build(&before, &|| false)?;
    built.kept.write(&plan.output)?;
    let seconds = began.elapsed().as_secs_f64();
    output.say(&summary(&built, &plan.output, seconds));
    Ok(Outcome::Done)
}

/// What an earlier build left in the output; a recording there is never replaced.
fn before(output: &Path) -> anyhow::Result<Kept> {
    if !output.exists() {
        return Ok(Kept::default());
    }
    match Kept::read(output) {
        Ok(kept) => Ok(kept),
        Err(error @ GenomeError::IsRecording { .. }) => Err(error.into()),
        // A file that cannot be used is kept aside as FILE.old, as every output is.
        Err(_) => Ok(Kept::default()),
    }
}

fn summary(built: &Built, output: &Path, seconds: f64) -> String {
    let catalog = &built.kept.catalog;
    let lines = sum(catalog, |file| file.lines);
    let written = catalog.definitions.iter();
    let written = written
        .filter(|definition| definition.kind.is_written())
        .count();
    let mut text = format!(
        "{}: {} files ({} unchanged), {lines} lines, {written} functions, {} calls in {seconds:.1} s",
        output.display(),
        catalog.files.len(),
        built.reused,
        catalog.edges.len(),
    );
    text += &calls(catalog);
    text += &gaps(catalog);
    text
}

fn sum(catalog: &Catalog, of: fn(&File) -> u32) -> u64 {
    catalog.files.iter().map(|file| u64::from(of(file))).sum()
}

/// How much of the calls is known, so that nobody takes an edge that is not there for a call that is not there.
fn calls(catalog: &Catalog) -> String {
    let (all, resolved) = (
        sum(catalog, |file| file.calls),
        sum(catalog, |file| file.resolved),
    );
    if all == 0 {
        return String::new();
    }
    let share = 100.0 * resolved as f64 / all as f64;
    format!(
        "\n{resolved} of {all} call sites ({share:.0} %) are certain; the others may call anything"
    )
}

fn gaps(catalog: &Catalog) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for gap in &catalog.gaps {
        *kinds.entry(gap.kind.word()).or_default() += 1;
    }
    let told: Vec<_> = kinds
        .iter()
        .map(|(kind, count)| format!("{kind} in {count}"))
        .collect();
    if told.is_empty() {
        return String::new();
    }
    format!(
        "\nnot all was read: {} files (the table static_gaps tells where)",
        told.join(", ")
    )
}
