//! A recording without the rest of the collector: probes on a fixture's functions, and all inputs that came of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context as _, ensure};
use scalpel_tests::target::Target;
use scalpel_user::decode;
use scalpel_user::event::{Control, Event, Kind, Pid, Sample};
use scalpel_user::function::ExitStrategy;
use scalpel_user::input::{Feed, Input, Loss};
use scalpel_user::kernel::attach::{AttachOptions, Attachments, ProbedFile};
use scalpel_user::kernel::lease::Lease;
use scalpel_user::kernel::process::Mappings;
use scalpel_user::kernel::ring::{Decoders, Poller, PollerReport};
use scalpel_user::kernel::{Kernel, LoadOptions, Mechanism};

use crate::subject::{functions, request};

/// How a recording differs from the usual.
pub(crate) struct Plan {
    pub(crate) exit: ExitStrategy,
    pub(crate) options: LoadOptions<'static>,
    /// Inputs that the channel holds before the draining thread waits.
    pub(crate) room: usize,
}

impl Plan {
    /// A session on every function, rings that lose nothing.
    pub(crate) fn new(exit: ExitStrategy) -> Self {
        let mut options = LoadOptions::new(Mechanism::Session);
        options.functions = 1_000;
        Self {
            exit,
            options,
            room: 1 << 16,
        }
    }
}

/// A recording under way.
pub(crate) struct Recording {
    pub(crate) kernel: Kernel,
    pub(crate) lease: Option<Lease>,
    attachments: Attachments,
    poller: Poller,
    inputs: Receiver<(Feed, Input)>,
    names: Vec<String>,
}

/// What came of it.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) events: Vec<Event>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) controls: Vec<Control>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) report: PollerReport,
    /// Events that were older than a `Drained` before them.
    pub(crate) late: u64,
    drained: u64,
    names: Vec<String>,
}

impl Recording {
    /// Probes `names` in `target`.
    pub(crate) fn start(
        target: &Target,
        path: &Path,
        names: &[&str],
        plan: Plan,
    ) -> anyhow::Result<Self> {
        let mut kernel = Kernel::load(&plan.options)?;
        kernel.observe()?;
        let lease = kernel.lease()?;
        kernel.watch(Pid(target.pid()), 0)?;
        let mappings = Mappings::open(&kernel)?;
        let (sender, inputs) = sync_channel(plan.room);
        let decoders = Decoders {
            sample: |bytes| decode::sample(bytes).ok(),
            control: |bytes| decode::control(bytes).ok(),
        };
        let poller = Poller::start(&mut kernel, Some(mappings), decoders, sender)?;
        let mut attachments = Attachments::new(&kernel, AttachOptions::default());
        let all = functions(path)?;
        let file = Arc::new(ProbedFile::open(path)?);
        let mut requests = Vec::new();
        for (id, name) in (1..).zip(names) {
            let function = all
                .iter()
                .find(|function| function.name == *name)
                .with_context(|| format!("no {name}"))?;
            requests.push(request(id, &file, function, plan.exit)?);
        }
        let report = attachments.attach(&requests, &mut |_| {})?;
        ensure!(report.refused.is_empty(), "{:?}", report.refused);
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(Self {
            kernel,
            lease: Some(lease),
            attachments,
            poller,
            inputs,
            names,
        })
    }

    /// Detaches and takes what is left in the rings.
    pub(crate) fn finish(mut self) -> anyhow::Result<Stream> {
        self.attachments.detach_all();
        let inputs = self.inputs;
        let reader: JoinHandle<Stream> = std::thread::spawn(move || {
            let mut stream = Stream::default();
            inputs
                .into_iter()
                .for_each(|(_feed, input)| stream.add(input));
            stream
        });
        let report = self.poller.finish();
        let mut stream = reader
            .join()
            .map_err(|_panic| anyhow::anyhow!("the reader panicked"))?;
        ensure!(report.bad_records == 0, "{report:?}");
        ensure!(
            stream.late == 0,
            "{} events came after a `Drained` that excludes them",
            stream.late
        );
        stream.report = report;
        stream.names = self.names;
        Ok(stream)
    }
}

impl Stream {
    fn add(&mut self, input: Input) {
        match input {
            Input::Events(events) => {
                let drained = self.drained;
                self.late += events.iter().filter(|event| event.time < drained).count() as u64;
                self.events.extend(events);
            }
            Input::Sample(sample) => self.samples.push(sample),
            Input::Control(control) => self.controls.push(control),
            Input::Losses(losses) => self.losses = losses,
            Input::Drained(time) => self.drained = time.0,
            _ => {}
        }
    }

    /// Events of one kind by function name.
    pub(crate) fn count(&self, kind: Kind) -> BTreeMap<String, u64> {
        let mut counts: BTreeMap<String, u64> =
            self.names.iter().map(|name| (name.clone(), 0)).collect();
        for event in self.events.iter().filter(|event| event.kind == kind as u8) {
            let name = self
                .names
                .get(event.func as usize - 1)
                .cloned()
                .unwrap_or_default();
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// Events of each thread in the order of their sequence numbers, which must have no gap.
    pub(crate) fn threads(&self) -> anyhow::Result<BTreeMap<u32, Vec<Event>>> {
        let mut threads: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
        for &event in &self.events {
            threads.entry(event.tid).or_default().push(event);
        }
        for (tid, events) in &mut threads {
            events.sort_by_key(|event| event.seq);
            for (expected, event) in (1..).zip(&*events) {
                ensure!(
                    event.seq == expected,
                    "thread {tid}: number {} where {expected} should be",
                    event.seq
                );
            }
            ensure!(
                events.is_sorted_by_key(|event| event.time),
                "thread {tid}: time runs backwards"
            );
            ensure!(events.is_sorted_by_key(|event| event.seq), "thread {tid}");
        }
        Ok(threads)
    }

    /// The name of an event's function.
    pub(crate) fn name(&self, event: &Event) -> &str {
        self.names
            .get(event.func as usize - 1)
            .map_or("?", String::as_str)
    }

    /// Total of a loss class over all CPUs.
    pub(crate) fn lost(&self, class: scalpel_common::kernel::LossClass) -> u64 {
        self.losses
            .iter()
            .filter(|loss| loss.class == class && loss.func.is_none())
            .map(|loss| loss.count)
            .sum()
    }

    /// Total of a loss class over all functions.
    pub(crate) fn lost_by_functions(&self, class: scalpel_common::kernel::LossClass) -> u64 {
        self.losses
            .iter()
            .filter(|loss| loss.class == class && loss.func.is_some())
            .map(|loss| loss.count)
            .sum()
    }
}
