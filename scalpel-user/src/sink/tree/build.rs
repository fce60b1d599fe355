//! Merges contexts into the tree that is shown, and weighs its nodes.

use rustc_hash::FxHashMap;

use super::{View, Way};
use crate::event::FuncId;
use crate::genome::Genome;
use crate::genome::totals;
use crate::genome::walk::{Children, Step};
use crate::report::Sort;
use crate::sink::units;
use crate::tree::{ContextId, Metrics, Tree};

/// One node that can be shown. Node 0 is the root of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) func: Option<FuncId>,
    pub(super) weight: u64,
    pub(super) calls: u64,
    /// Something in it was measured: a weight of 0 is a 0.
    pub(super) measured: bool,
    pub(super) parent: usize,
    /// How far from the root of all.
    pub(super) level: usize,
    pub(super) children: Vec<usize>,
}

/// What weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Cpu,
    Wall,
    Sampled,
    Samples,
    OffCpu,
    Calls,
}

/// What weighs, and whether callees count too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight {
    unit: Unit,
    inclusive: bool,
}

impl Weight {
    /// What the view asks for, or the next best that was measured.
    fn choose(own: &[Metrics], view: &View<'_>) -> Self {
        let any = |is: fn(&Metrics) -> bool| own.iter().any(is);
        let sampled = if any(|m| m.sampled_ns > 0) {
            Unit::Sampled
        } else {
            Unit::Samples
        };
        let unit = match view.sort {
            Sort::Calls => Unit::Calls,
            Sort::Samples => Unit::Samples,
            Sort::SelfOffCpu | Sort::TotalOffCpu if any(|m| m.waits > 0) => Unit::OffCpu,
            Sort::SelfWall | Sort::TotalWall if any(|m| m.timed > 0) => Unit::Wall,
            Sort::SelfCpu | Sort::TotalCpu | Sort::Name if any(|m| m.cpu_timed > 0) => Unit::Cpu,
            _ if any(|m| m.samples > 0) => sampled,
            _ => Unit::Calls,
        };
        let total = matches!(
            view.sort,
            Sort::TotalCpu | Sort::TotalWall | Sort::TotalOffCpu
        );
        Self {
            unit,
            inclusive: unit != Unit::Calls && (total || view.way == Way::Callees),
        }
    }

    pub(super) fn heading(self) -> &'static str {
        match (self.unit, self.inclusive) {
            (Unit::Cpu, true) => "TOTAL CPU",
            (Unit::Cpu, false) => "SELF CPU",
            (Unit::Wall, true) => "TOTAL WALL",
            (Unit::Wall, false) => "SELF WALL",
            (Unit::Sampled, _) => "SAMPLED",
            (Unit::Samples, _) => "SAMPLES",
            (Unit::OffCpu, true) => "TOTAL OFF",
            (Unit::OffCpu, false) => "SELF OFF",
            (Unit::Calls, _) => "CALLS",
        }
    }

    pub(super) fn show(self, weight: u64) -> String {
        match self.unit {
            Unit::Cpu | Unit::Wall | Unit::OffCpu => units::duration(weight),
            Unit::Sampled => format!("~{}", units::duration(weight)),
            Unit::Samples | Unit::Calls => units::count(weight),
        }
    }

    pub(super) fn is_time(self) -> bool {
        matches!(
            self.unit,
            Unit::Cpu | Unit::Wall | Unit::Sampled | Unit::OffCpu
        )
    }

    pub(super) fn is_calls(self) -> bool {
        self.unit == Unit::Calls
    }

    const fn measured(self, m: &Metrics) -> bool {
        match self.unit {
            Unit::Cpu => m.cpu_timed > 0,
            Unit::Wall => m.timed > 0,
            Unit::Sampled | Unit::Samples | Unit::OffCpu | Unit::Calls => true,
        }
    }

    const fn of(self, m: &Metrics) -> u64 {
        match (self.unit, self.inclusive) {
            (Unit::Cpu, true) => m.total_cpu_ns,
            (Unit::Cpu, false) => m.self_cpu_ns,
            (Unit::Wall, true) => m.total_wall_ns,
            (Unit::Wall, false) => m.self_wall_ns,
            (Unit::Sampled, _) => m.sampled_ns,
            (Unit::Samples, _) => m.samples,
            (Unit::OffCpu, _) => m.off_cpu_ns,
            (Unit::Calls, _) => m.calls,
        }
    }

    /// Weight of each context. Samples count themselves only, and untimed frames have no total of their own: an
    /// inclusive weight is never less than that of what is below it.
    fn contexts(self, tree: &Tree, own: &[Metrics], children: &Children) -> Vec<u64> {
        let mut weights: Vec<u64> = own.iter().map(|m| self.of(m)).collect();
        if !self.inclusive {
            return weights;
        }
        let adds = matches!(self.unit, Unit::Sampled | Unit::Samples | Unit::OffCpu);
        children.walk(|step| {
            if let Step::Leave(id) = step {
                let below = children
                    .iter(id)
                    .filter_map(|child| weights.get(child.0 as usize))
                    .fold(0u64, |sum, w| sum.saturating_add(*w));
                if let Some(weight) = weights.get_mut(id.0 as usize) {
                    *weight = if adds {
                        weight.saturating_add(below)
                    } else {
                        below.max(*weight)
                    };
                }
            }
        });
        debug_assert_eq!(weights.len(), tree.contexts.len());
        weights
    }
}

/// Whether one of the callers that are asked for is on the path.
fn comes_from(path: &[Option<FuncId>], view: &View<'_>) -> bool {
    view.caller
        .is_none_or(|wanted| path.iter().flatten().any(|&func| wanted(func)))
}

/// The merged tree and what all of it weighs.
#[derive(Debug)]
pub(super) struct Forest {
    pub(super) nodes: Vec<Node>,
    pub(super) weight: Weight,
    pub(super) whole: u64,
    places: FxHashMap<(usize, Option<FuncId>), usize>,
}

impl Forest {
    pub(super) fn of(genome: &Genome, view: &View<'_>) -> Self {
        let tree = &genome.tree;
        let own = totals::per_context(tree, |_| true);
        let weight = Weight::choose(&own, view);
        let children = Children::of(tree);
        let weights = weight.contexts(tree, &own, &children);
        let counted = |at: usize| {
            !weight.inclusive
                || tree
                    .contexts
                    .get(at)
                    .is_some_and(|c| at > 0 && c.parent == ContextId::ROOT)
        };
        let whole = weights
            .iter()
            .enumerate()
            .filter(|&(at, _)| counted(at))
            .fold(0u64, |sum, (_, w)| sum.saturating_add(*w));
        let mut forest = Self {
            nodes: vec![Node::default()],
            weight,
            whole,
            places: FxHashMap::default(),
        };
        match view.way {
            Way::Callees => forest.callees(tree, &own, &weights, &children, view),
            Way::Callers => forest.callers(tree, &own, &weights, &children, view),
        }
        forest
    }

    fn callees(
        &mut self,
        tree: &Tree,
        own: &[Metrics],
        weights: &[u64],
        children: &Children,
        view: &View<'_>,
    ) {
        let mut places: Vec<Option<usize>> = vec![None; tree.contexts.len()];
        let mut path: Vec<Option<FuncId>> = Vec::new();
        children.walk(|step| {
            let Step::Enter(id) = step else {
                path.pop();
                return;
            };
            let func = tree.contexts.get(id.0 as usize).and_then(|c| c.func);
            let comes_from = comes_from(&path, view);
            path.push(func);
            let Some(context) = tree.contexts.get(id.0 as usize) else {
                return;
            };
            let above = places.get(context.parent.0 as usize).copied().flatten();
            let is_root = view
                .func
                .map_or(context.parent == ContextId::ROOT, |wanted| {
                    context.func.is_some_and(wanted)
                })
                && comes_from;
            if let Some(parent) = above.or(is_root.then_some(0))
                && self.level(parent) <= view.depth
            {
                let node = self.child(parent, context.func);
                self.add(node, id, own, weights);
                if let Some(place) = places.get_mut(id.0 as usize) {
                    *place = Some(node);
                }
            }
        });
    }

    fn callers(
        &mut self,
        tree: &Tree,
        own: &[Metrics],
        weights: &[u64],
        children: &Children,
        view: &View<'_>,
    ) {
        let mut path: Vec<Option<FuncId>> = Vec::new();
        children.walk(|step| match step {
            Step::Leave(_) => drop(path.pop()),
            Step::Enter(id) => {
                let func = tree
                    .contexts
                    .get(id.0 as usize)
                    .and_then(|context| context.func);
                let outermost = !self.weight.inclusive || !path.contains(&func);
                let wanted = view.func.is_none_or(|wanted| func.is_some_and(wanted))
                    && comes_from(&path, view);
                path.push(func);
                if wanted
                    && outermost
                    && weights.get(id.0 as usize).is_some_and(|&weight| weight > 0)
                {
                    let levels = view.depth.saturating_add(1);
                    path.iter().rev().take(levels).fold(0, |node, &func| {
                        let node = self.child(node, func);
                        self.add(node, id, own, weights);
                        node
                    });
                }
            }
        });
    }

    fn level(&self, node: usize) -> usize {
        self.nodes.get(node).map_or(0, |node| node.level)
    }

    fn child(&mut self, parent: usize, func: Option<FuncId>) -> usize {
        let new = self.nodes.len();
        let at = *self.places.entry((parent, func)).or_insert(new);
        if at == new {
            self.nodes.push(Node {
                func,
                parent,
                level: self.level(parent) + 1,
                ..Node::default()
            });
            if let Some(parent) = self.nodes.get_mut(parent) {
                parent.children.push(at);
            }
        }
        at
    }

    fn add(&mut self, node: usize, id: ContextId, own: &[Metrics], weights: &[u64]) {
        let weighs = self.weight;
        if let Some(node) = self.nodes.get_mut(node)
            && let (Some(m), Some(weight)) = (own.get(id.0 as usize), weights.get(id.0 as usize))
        {
            node.weight = node.weight.saturating_add(*weight);
            node.calls = node.calls.saturating_add(m.calls);
            node.measured |= *weight > 0 || weighs.measured(m);
        }
    }
}
