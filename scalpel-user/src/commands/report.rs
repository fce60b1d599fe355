//! `report`: a recording as the reader wants it.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::bail;

use crate::cli::{ByArg, SortArg, TreeArg};
use crate::event::Kind;
use crate::exit::Outcome;
use crate::function::FunctionInfo;
use crate::genome::Genome;
use crate::input::Input;
use crate::lay;
use crate::output::{Output, write_private_with};
use crate::plan::{Format, ReportPlan};
use crate::report::{Report, Sort, process};
use crate::sink::choice;
use crate::sink::html;
use crate::sink::tree::Way;
use crate::sink::{By, Choice, Columns, Form, Page};

use super::moments::{self, Seen};
use super::recording;

/// Above this share of lost events a report says so: `record --max-loss` decides when it counts as a failure.
pub(super) const LOSS_WORTH_SAYING: f64 = 0.001;

pub(super) fn run(plan: &ReportPlan, output: &Output) -> anyhow::Result<Outcome> {
    let mut genome = recording::open(&plan.file, output)?;
    lay::complete(&mut genome, false, output);
    if let Some(path) = &plan.html {
        return page(&genome, plan, path, output);
    }
    if let Some(wanted) = &plan.process
        && process::cut_to(&mut genome, wanted) == 0
    {
        bail!(
            "no process of this recording has the number or the name {wanted:?}; `scalpel-ebpf report {} --by process` shows them",
            plan.file.display()
        );
    }
    let pattern = recording::pattern(plan.func.as_ref())?;
    let meant = |info: &FunctionInfo| {
        pattern
            .as_ref()
            .is_none_or(|pattern| pattern.matches_recorded(info))
    };
    let choice = Choice {
        form: form(plan),
        by: by(plan.by),
        columns: if plan.per_call {
            Columns::PerCall
        } else {
            Columns::Usual
        },
        sort: plan.sort.map(sort),
        limit: plan.limit.unwrap_or(0),
        returned: plan.returned || pattern.is_some(),
        func: pattern.is_some().then_some(&meant),
        only_seen: plan.process.is_some(),
        max_loss: LOSS_WORTH_SAYING,
    };
    if pattern.is_some() && !genome.functions.iter().any(|(_, info)| meant(info)) {
        output.warn("no function of this recording matches --func");
    }
    let stdout = output.stdout();
    let page = Page::new(stdout.width, stdout.color);
    let mut out = BufWriter::new(std::io::stdout().lock());
    choice::write(&genome, &choice, page, &mut out)?;
    out.flush()?;
    Ok(Outcome::Done)
}

/// Everything as one page, with the single calls of a stream.
fn page(
    genome: &Genome,
    plan: &ReportPlan,
    path: &Path,
    output: &Output,
) -> anyhow::Result<Outcome> {
    let report = Report::of(genome, LOSS_WORTH_SAYING);
    let calls = if recording::is_stream(&plan.file)? {
        single_calls(genome, plan, output)?
    } else if plan.calls.is_a_part() {
        bail!(
            "{} is a genome, which has no single calls: record with --keep-stream STREAM and report that, or leave out --from and --to",
            plan.file.display()
        );
    } else {
        None
    };
    let write = |out: &mut dyn Write| html::write(genome, &report, calls.as_ref(), out);
    if path == Path::new("-") {
        let mut out = BufWriter::new(std::io::stdout().lock());
        write(&mut out)?;
        out.flush()?;
    } else {
        write_private_with(path, write)?;
        output.say(&format!("wrote {}", path.display()));
    }
    Ok(Outcome::Done)
}

/// The calls of a stream; `None` if it has them as whole calls at their ends, which come in no order.
fn single_calls(
    genome: &Genome,
    plan: &ReportPlan,
    output: &Output,
) -> anyhow::Result<Option<html::Calls>> {
    let part = (
        plan.calls.from_ns,
        plan.calls.to_ns.min(genome.duration_ns()),
    );
    let mut calls = html::Calls::new(genome.run.started, part, html::MOST_CALLS);
    let mut completes = false;
    moments::pass(
        &plan.file,
        plan.calls,
        "reading calls",
        output,
        &mut |seen, _| {
            match seen {
                Seen::Moment(moment) => calls.moment(moment),
                Seen::Input(Input::Events(events)) => {
                    completes |= events
                        .iter()
                        .any(|event| event.kind == Kind::Complete as u8);
                }
                _ => {}
            }
            Ok(())
        },
    )?;
    if completes {
        output.warn("the timeline shows no single calls: the recording has them at their ends only (record --complete)");
        return Ok(None);
    }
    if calls.left_out() > 0 {
        output.warn(&format!(
            "the page has the first {} calls and leaves out {}: --from and --to choose others",
            html::MOST_CALLS,
            calls.left_out()
        ));
    }
    Ok(Some(calls))
}

const fn form(plan: &ReportPlan) -> Form {
    match (plan.format, plan.tree) {
        (Format::Json, _) => Form::Json,
        (Format::Csv, _) => Form::Csv,
        (Format::Text, Some(TreeArg::Callers)) => Form::Tree(Way::Callers),
        (Format::Text, Some(TreeArg::Callees)) => Form::Tree(Way::Callees),
        (Format::Text, None) => Form::Table,
    }
}

const fn by(by: ByArg) -> By {
    match by {
        ByArg::Function => By::Function,
        ByArg::Module => By::Module,
        ByArg::Thread => By::Thread,
        ByArg::Process => By::Process,
    }
}

pub(super) const fn sort(sort: SortArg) -> Sort {
    match sort {
        SortArg::SelfCpu => Sort::SelfCpu,
        SortArg::TotalCpu => Sort::TotalCpu,
        SortArg::SelfWall => Sort::SelfWall,
        SortArg::TotalWall => Sort::TotalWall,
        SortArg::SelfOffCpu => Sort::SelfOffCpu,
        SortArg::TotalOffCpu => Sort::TotalOffCpu,
        SortArg::Calls => Sort::Calls,
        SortArg::Samples => Sort::Samples,
        SortArg::Name => Sort::Name,
    }
}
