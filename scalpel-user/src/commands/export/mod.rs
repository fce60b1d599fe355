//! `export`: a recording for another program.

mod file;
mod stream;

use std::io::Write;

use anyhow::bail;

use super::recording;
use crate::cli::{FormatArg, WeightArg};
use crate::exit::Outcome;
use crate::function::FunctionInfo;
use crate::genome::Genome;
use crate::lay;
use crate::output::Output;
use crate::plan::ExportPlan;
use crate::sink::export::{
    Notes, Subject, Weight, callgrind, cobertura, dot, flame, folded, lcov, ndjson, pprof,
    speedscope,
};
use crate::sink::{csv, json};
pub(super) use file::Destination;

pub(super) fn run(plan: &ExportPlan, output: &Output) -> anyhow::Result<Outcome> {
    let is_stream = recording::is_stream(&plan.file)?;
    refuse_binary_on_terminal(plan, output)?;
    match plan.format {
        FormatArg::Speedscope if is_stream => stream::run(plan, output),
        FormatArg::Speedscope if plan.calls.is_a_part() => bail!(no_single_calls(plan)),
        FormatArg::Chrome | FormatArg::Perfetto if is_stream => stream::run(plan, output),
        FormatArg::Chrome | FormatArg::Perfetto => bail!(no_single_calls(plan)),
        _ => whole(plan, output),
    }
}

/// The whole recording, added up.
fn whole(plan: &ExportPlan, output: &Output) -> anyhow::Result<Outcome> {
    let mut genome = recording::open(&plan.file, output)?;
    lay::complete(&mut genome, false, output);
    let base = plan
        .base
        .as_ref()
        .map(|base| recording::open(base, output))
        .transpose()?;
    let pattern = recording::pattern(plan.func.as_ref())?;
    let meant = |info: &FunctionInfo| {
        pattern
            .as_ref()
            .is_some_and(|pattern| pattern.matches_recorded(info))
    };
    if pattern.is_some() && !genome.functions.iter().any(|(_, info)| meant(info)) {
        bail!("no function of this recording matches --func; `scalpel-ebpf report` lists them");
    }
    let subject = Subject::of(&genome, plan.max_loss);
    let mut destination = Destination::open(plan.output.as_deref())?;
    let notes = write(plan, &subject, base.as_ref(), &meant, destination.writer())?;
    finish(plan, destination, &notes, output)?;
    Ok(judged(&genome, plan, output))
}

fn write(
    plan: &ExportPlan,
    subject: &Subject<'_>,
    base: Option<&Genome>,
    meant: &dyn Fn(&FunctionInfo) -> bool,
    out: &mut dyn Write,
) -> anyhow::Result<Notes> {
    let weight = || weight(plan, subject);
    match plan.format {
        FormatArg::Pprof => return Ok(pprof::write(subject, weight()?, out)?),
        FormatArg::Folded => folded::write(subject, weight()?, out)?,
        FormatArg::Svg => match base {
            Some(base) => {
                let base = Subject::of(base, plan.max_loss);
                flame::write_difference(&base, subject, weight()?, out)?;
            }
            None => flame::write(subject, weight()?, out)?,
        },
        FormatArg::Speedscope => speedscope::write(subject, weight()?, out)?,
        FormatArg::Callgrind => callgrind::write(subject, out)?,
        FormatArg::Dot => return Ok(dot::write(subject, meant, plan.depth, out)?),
        FormatArg::Lcov => return Ok(lcov::write(subject, out)?),
        FormatArg::Cobertura => return Ok(cobertura::write(subject, out)?),
        FormatArg::Json => json::write(subject.report(), out)?,
        FormatArg::Ndjson => ndjson::write(subject, out)?,
        FormatArg::Csv => csv::functions(&subject.report().functions, out)?,
        // `run` gives these to `stream`.
        FormatArg::Chrome | FormatArg::Perfetto => bail!(no_single_calls(plan)),
    }
    Ok(Notes::new())
}

/// What was asked for, if it was measured; else what says most of what was.
fn weight(plan: &ExportPlan, subject: &Subject<'_>) -> anyhow::Result<Weight> {
    let measured = subject.weights();
    let words: Vec<&str> = measured.iter().map(|weight| weight.title()).collect();
    let wanted = plan.weight.map(|weight| match weight {
        WeightArg::Cpu => Weight::Cpu,
        WeightArg::Wall => Weight::Wall,
        WeightArg::OffCpu => Weight::OffCpu,
        WeightArg::Calls => Weight::Calls,
        WeightArg::Samples => Weight::Samples,
        WeightArg::Sampled => Weight::Sampled,
    });
    match wanted.or_else(|| measured.first().copied()) {
        Some(weight) if measured.contains(&weight) => Ok(weight),
        Some(weight) => bail!(
            "this recording has no {}; it has: {}",
            weight.title(),
            words.join(", ")
        ),
        None => bail!("nothing ran in this recording: there is nothing to export"),
    }
}

fn finish(
    plan: &ExportPlan,
    destination: Destination,
    notes: &[String],
    output: &Output,
) -> anyhow::Result<()> {
    destination.finish()?;
    notes.iter().for_each(|note| output.warn(note));
    if let Some(path) = &plan.output {
        output.say(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// Partial data are never exported without a word, for not every format has room for one.
fn judged(genome: &Genome, plan: &ExportPlan, output: &Output) -> Outcome {
    if !genome.is_partial(plan.max_loss) {
        return Outcome::Done;
    }
    let why = if genome.cut {
        "the recording was cut".into()
    } else {
        format!(
            "{:.2} % of its events were lost",
            genome.lost_share() * 100.0
        )
    };
    output.warn(&format!("the export is partial: {why}"));
    Outcome::Partial
}

fn no_single_calls(plan: &ExportPlan) -> String {
    format!(
        "{} is a genome, which has no single calls: record with --keep-stream STREAM and export that, or choose an added-up format (pprof, svg, speedscope without --from, --to and --thread)",
        plan.file.display()
    )
}

fn refuse_binary_on_terminal(plan: &ExportPlan, output: &Output) -> anyhow::Result<()> {
    let binary = matches!(plan.format, FormatArg::Pprof | FormatArg::Perfetto);
    if binary && plan.output.is_none() && output.stdout().terminal {
        bail!("this format is binary and stdout is a terminal: give -o FILE");
    }
    Ok(())
}
