//! callgrind's format: self cost a function, and call edges with what they cost.
//!
//! A reader takes the sum of the edges to a function for what it cost with its callees, and recursion would be there once a
//! level. So an edge is charged for outermost activations of its callee only: the sum is the function's total, and never
//! more than the whole.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Subject, Weight};
use crate::event::FuncId;
use crate::function::FunctionInfo;
use crate::genome::walk::Step;
use crate::sink::text::clean;
use crate::tree::{ContextId, Metrics};

/// What was called from nothing that was watched hangs below this.
const ROOT: &str = "[root]";

/// Writes `subject`.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    let weights = subject.weights();
    head(subject, &weights, out)?;
    let sums = Sums::of(subject, &weights);
    let mut names = Names {
        subject,
        told: FxHashSet::default(),
    };
    let mut edges = sums.edges.iter().peekable();
    for (func, own) in &sums.functions {
        names.begin(*func, out)?;
        writeln!(out, "{}{}", names.line(*func), numbers(own.iter()))?;
        while let Some(((_, callee), edge)) = edges.next_if(|((caller, _), _)| caller == func) {
            names.call(*func, *callee, out)?;
            // Where nobody counted (samples, return addresses) there was one at least; readers take 0 for no edge.
            writeln!(out, "calls={} {}", edge.calls.max(1), names.line(*callee))?;
            writeln!(out, "{}{}", names.line(*func), numbers(edge.cost.iter()))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn head(subject: &Subject<'_>, weights: &[Weight], out: &mut dyn Write) -> io::Result<()> {
    let run = &subject.report.run;
    writeln!(out, "# callgrind format\nversion: 1")?;
    writeln!(out, "creator: scalpel-ebpf {}", run.version)?;
    writeln!(out, "pid: {}\ncmd: {}", run.pid, clean(&run.command))?;
    for caveat in subject.caveats() {
        writeln!(out, "desc: Doubt: {}", clean(&caveat))?;
    }
    for weight in weights {
        writeln!(
            out,
            "event: {} : {} ({})",
            weight.word(),
            weight.title(),
            weight.unit()
        )?;
    }
    let words: Vec<&str> = weights.iter().map(|weight| weight.word()).collect();
    writeln!(out, "positions: line\nevents: {}", words.join(" "))?;
    // Without it readers take the sum of what includes callees for the whole.
    let whole = |weight: &Weight| sum(subject.own.iter().map(|m| weight.of(m)));
    writeln!(out, "summary:{}\n", numbers(weights.iter().map(whole)))
}

fn sum(costs: impl Iterator<Item = u64>) -> u64 {
    costs.fold(0, u64::saturating_add)
}

fn numbers(costs: impl Iterator<Item = impl std::fmt::Display>) -> String {
    costs.fold(String::new(), |text, cost| format!("{text} {cost}"))
}

/// A function, or what has none: the root, and contexts that the caps folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Node {
    Root,
    Folded,
    Function(FuncId),
}

/// What is known of one edge.
#[derive(Clone, Debug, Default)]
struct Edge {
    calls: u64,
    /// In the order of the weights.
    cost: Vec<u64>,
}

/// Self costs by function, and edges.
#[derive(Default)]
struct Sums {
    functions: BTreeMap<Node, Vec<u64>>,
    edges: BTreeMap<(Node, Node), Edge>,
}

impl Sums {
    fn of(subject: &Subject<'_>, weights: &[Weight]) -> Self {
        let mut sums = Self::default();
        let costs = |m: &Metrics| -> Vec<u64> { weights.iter().map(|w| w.of(m)).collect() };
        let mut inclusive: Vec<Vec<u64>> = subject.own.iter().map(costs).collect();
        let mut path = Path::new();
        sums.add_self(Node::Root, inclusive.first());
        subject.walk(|step| match step {
            Step::Enter(id) => {
                let node = node(subject, id);
                sums.add_self(node, inclusive.get(id.0 as usize));
                path.enter(node);
            }
            Step::Leave(id) => {
                let cost = inclusive.get(id.0 as usize).cloned().unwrap_or_default();
                let context = subject.genome.tree.contexts.get(id.0 as usize);
                let above = context.and_then(|it| inclusive.get_mut(it.parent.0 as usize));
                add(above.into_iter().flatten(), &cost);
                let calls = subject.own.get(id.0 as usize).map_or(0, |m| m.calls);
                if let Some((caller, callee, outermost)) = path.leave() {
                    let cost = if outermost { cost } else { vec![0; cost.len()] };
                    sums.add_edge((caller, callee), calls, &cost);
                }
            }
        });
        sums
    }

    fn add_self(&mut self, node: Node, cost: Option<&Vec<u64>>) {
        let cost = cost.map_or(&[][..], Vec::as_slice);
        let sum = self.functions.entry(node).or_default();
        sum.resize(cost.len(), 0);
        add(sum.iter_mut(), cost);
    }

    fn add_edge(&mut self, edge: (Node, Node), calls: u64, cost: &[u64]) {
        let edge = self.edges.entry(edge).or_default();
        edge.calls = edge.calls.saturating_add(calls);
        edge.cost.resize(cost.len(), 0);
        add(edge.cost.iter_mut(), cost);
    }
}

fn add<'a>(sums: impl Iterator<Item = &'a mut u64>, cost: &[u64]) {
    sums.zip(cost)
        .for_each(|(sum, cost)| *sum = sum.saturating_add(*cost));
}

fn node(subject: &Subject<'_>, id: ContextId) -> Node {
    let context = subject.genome.tree.contexts.get(id.0 as usize);
    context
        .and_then(|context| context.func)
        .map_or(Node::Folded, Node::Function)
}

/// The path from the root to a context, and how often each node stands on it.
struct Path {
    nodes: Vec<Node>,
    open: FxHashMap<Node, u32>,
}

impl Path {
    fn new() -> Self {
        Self {
            nodes: vec![Node::Root],
            open: FxHashMap::default(),
        }
    }

    fn enter(&mut self, node: Node) {
        *self.open.entry(node).or_default() += 1;
        self.nodes.push(node);
    }

    /// Takes off the innermost node: who called it, itself, and whether it stands nowhere above.
    fn leave(&mut self) -> Option<(Node, Node, bool)> {
        let node = self.nodes.pop()?;
        let open = self.open.get_mut(&node)?;
        *open -= 1;
        Some((*self.nodes.last()?, node, *open == 0))
    }
}

/// Writes names: in full the first time, by their number from then on.
struct Names<'a, 'g> {
    subject: &'a Subject<'g>,
    told: FxHashSet<Node>,
}

impl Names<'_, '_> {
    fn begin(&mut self, node: Node, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "ob={}\nfl={}", self.object(node), self.file(node))?;
        let name = self.name(node);
        writeln!(out, "fn={name}")
    }

    /// Object and file are those of the caller unless they are told: `callgrind_annotate` takes a file that is told twice
    /// for two, where it cuts its own folder off one of them.
    fn call(&mut self, caller: Node, node: Node, out: &mut dyn Write) -> io::Result<()> {
        if self.object(node) != self.object(caller) {
            writeln!(out, "cob={}", self.object(node))?;
        }
        if self.file(node) != self.file(caller) {
            writeln!(out, "cfi={}", self.file(node))?;
        }
        let name = self.name(node);
        writeln!(out, "cfn={name}")
    }

    fn name(&mut self, node: Node) -> String {
        let number = match node {
            Node::Root => 0,
            Node::Folded => self.subject.genome.functions.len() + 1,
            Node::Function(id) => id.get() as usize,
        };
        if !self.told.insert(node) {
            return format!("({number})");
        }
        let label = match node {
            Node::Root => ROOT,
            Node::Folded => self.subject.labels.get(None),
            Node::Function(id) => self.subject.labels.get(Some(id)),
        };
        format!("({number}) {label}")
    }

    fn info(&self, node: Node) -> Option<&FunctionInfo> {
        match node {
            Node::Function(id) => self.subject.genome.functions.get(id).map(|info| &**info),
            _ => None,
        }
    }

    fn object(&self, node: Node) -> String {
        self.info(node)
            .map_or_else(|| "???".into(), |info| clean(&info.module).into_owned())
    }

    fn file(&self, node: Node) -> String {
        self.info(node)
            .and_then(|info| info.file.as_deref())
            .map_or_else(|| "???".into(), |file| clean(file).into_owned())
    }

    fn line(&self, node: Node) -> u32 {
        self.info(node).and_then(|info| info.line).unwrap_or(0)
    }
}
