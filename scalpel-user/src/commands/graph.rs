//! `graph`: one function between its callers and its callees, of a recording or of a process as it runs.

use std::cell::Cell;
use std::io::{BufWriter, Write};

use super::report::sort;
use super::{record, recording};
use crate::event::FuncId;
use crate::exit::Outcome;
use crate::genome::Genome;
use crate::image::Pattern;
use crate::lay;
use crate::output::{Output, Stream};
use crate::plan::{GraphPlan, GraphSource};
use crate::report::Sort;
use crate::sink::{Page, tree};

pub(super) fn run(plan: &GraphPlan, output: &Output) -> anyhow::Result<Outcome> {
    let func = Pattern::parse(&plan.func.to_string())?;
    let caller = recording::pattern(plan.caller.as_ref())?;
    let found = Cell::new(true);
    let show = |genome: &Genome, stream: Stream, out: &mut dyn Write| -> anyhow::Result<()> {
        let page = Page::new(stream.width, stream.color);
        let is = |pattern: &Pattern, id: FuncId| {
            let info = genome.functions.get(id);
            info.is_some_and(|info| pattern.matches_recorded(info))
        };
        let wanted = |id| is(&func, id);
        let above = |id| caller.as_ref().is_some_and(|caller| is(caller, id));
        let graph = tree::Graph {
            func: &wanted,
            caller: caller.is_some().then_some(&above),
            depth: plan.depth.unwrap_or(usize::MAX),
            least: plan.min_ns,
            sort: plan.sort.map_or(Sort::TotalCpu, sort),
            limit: plan.limit.unwrap_or(0),
        };
        found.set(tree::write_graph(genome, &graph, page, out)?);
        Ok(())
    };
    match &plan.source {
        GraphSource::File(file) => {
            let mut genome = recording::open(file, output)?;
            lay::complete(&mut genome, false, output);
            let mut out = BufWriter::new(std::io::stdout().lock());
            show(&genome, output.stdout(), &mut out)?;
            out.flush()?;
        }
        GraphSource::Live(record) => {
            let shown = |recorded: crate::record::Recorded<'_>| {
                record::beside_the_target(&record.target, output, |stream, out| {
                    show(recorded.genome, stream, out)
                })
            };
            let outcome = record::recorded(record, &shown, output)?;
            if found.get() {
                return Ok(outcome);
            }
        }
    }
    if found.get() {
        return Ok(Outcome::Done);
    }
    anyhow::bail!("no function that matches {} was seen to run", plan.func)
}
