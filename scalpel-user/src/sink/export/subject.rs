//! What every export of a genome starts from: sums a context, names, and what to doubt.

use std::io;

use super::Weight;
use super::labels::{Labels, NO_STACK};
use crate::genome::Genome;
use crate::genome::totals;
use crate::genome::walk::{Children, Step};
use crate::report::Report;
use crate::sink::head::where_it_ran;
use crate::sink::text::clean;
use crate::tree::{ContextId, Metrics};

/// A genome, prepared for its way out.
#[derive(Debug)]
pub struct Subject<'a> {
    pub(super) genome: &'a Genome,
    pub(super) report: Report,
    /// Sums a context, over windows and threads.
    pub(super) own: Vec<Metrics>,
    pub(super) labels: Labels,
    children: Children,
}

impl<'a> Subject<'a> {
    /// Prepares `genome`; `max_loss` is the share (0 to 1) of lost events above which loss is a doubt.
    pub fn of(genome: &'a Genome, max_loss: f64) -> Self {
        Self {
            genome,
            report: Report::of(genome, max_loss),
            own: totals::per_context(&genome.tree, |_| true),
            labels: Labels::of(&genome.functions),
            children: Children::of(&genome.tree),
        }
    }

    /// The report of the same genome.
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// The weights that were measured, the one that says most first.
    pub fn weights(&self) -> Vec<Weight> {
        Weight::ALL
            .into_iter()
            .filter(|weight| weight.is_measured(&self.own))
            .collect()
    }

    /// Visits every context with the path that leads to it, itself last. The root has an empty path.
    pub(super) fn visit(
        &self,
        mut visit: impl FnMut(&[ContextId], &Metrics) -> io::Result<()>,
    ) -> io::Result<()> {
        let nothing = Metrics::default();
        let own = |id: ContextId| self.own.get(id.0 as usize).unwrap_or(&nothing);
        let mut path = Vec::new();
        let mut result = visit(&path, own(ContextId::ROOT));
        self.children.walk(|step| match step {
            Step::Enter(id) => {
                path.push(id);
                if result.is_ok() {
                    result = visit(&path, own(id));
                }
            }
            Step::Leave(_) => drop(path.pop()),
        });
        result
    }

    /// Walks the contexts below the root.
    pub(super) fn walk(&self, visit: impl FnMut(Step)) {
        self.children.walk(visit);
    }

    /// The label of a context.
    pub(super) fn label(&self, id: ContextId) -> &str {
        match self.genome.tree.contexts.get(id.0 as usize) {
            Some(context) if id != ContextId::ROOT => self.labels.get(context.func),
            _ => NO_STACK,
        }
    }

    /// What happened, a line a doubt, for formats with room for words.
    pub(super) fn caveats(&self) -> Vec<String> {
        self.report
            .doubts
            .iter()
            .map(|doubt| clean(&doubt.what).into_owned())
            .collect()
    }

    /// Which recording it is, in one line.
    pub(super) fn title(&self) -> String {
        let run = &self.report.run;
        let title = format!("{} ({})", run.command, where_it_ran(run.pid, &run.host));
        clean(&title).into_owned()
    }
}
