//! A fixture as a subject of attaching: its functions, its `ret` instructions, and the loaded object.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use scalpel_common::kernel::settings_flags;
use scalpel_tests::target::Target;
use scalpel_user::event::{FuncId, Kind, MonoTime, Pid};
use scalpel_user::function::ExitStrategy;
use scalpel_user::input::{Input, Loss};
use scalpel_user::kernel::attach::{
    AttachOptions, AttachReport, Attachments, ProbedFile, SiteRequest,
};
use scalpel_user::kernel::ring::{Decoders, Poller};
use scalpel_user::kernel::{Kernel, KernelError, LoadOptions, Mechanism};

/// Loads the object for `mechanism`; every process is watched, for ever.
pub(crate) fn kernel(mechanism: Mechanism) -> anyhow::Result<Kernel> {
    Ok(Kernel::load(&options(mechanism))?)
}

/// How it is loaded.
pub(crate) fn options(mechanism: Mechanism) -> LoadOptions<'static> {
    let mut options = LoadOptions::new(mechanism);
    options.call_ring_bytes = 32 << 20;
    options.functions = 5_000;
    options.flags = settings_flags::ALL_PROCESSES;
    options.lease_until = MonoTime(u64::MAX);
    options
}

/// A function of a file.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// Demangled name.
    pub(crate) name: String,
    /// File offset of its first instruction that the kernel probes: fixtures begin with `lock add` now and then.
    pub(crate) offset: u64,
    /// The kernel single-steps that instruction.
    pub(crate) stepped: bool,
    /// File offset of its start.
    pub(crate) start: u64,
    /// File offsets of its `ret` instructions.
    pub(crate) rets: Vec<u64>,
}

/// The functions of `path` by file offset: aliases once.
pub(crate) fn functions(path: &Path) -> anyhow::Result<Vec<Function>> {
    let data = std::fs::read(path)?;
    let file = object::File::parse(&*data)?;
    let mut found = BTreeMap::new();
    for symbol in file.symbols() {
        if symbol.kind() != SymbolKind::Text || symbol.size() == 0 || !symbol.is_definition() {
            continue;
        }
        let Some(offset) = file_offset(&file, symbol.address()) else {
            continue;
        };
        let code = data
            .get(offset as usize..(offset + symbol.size()) as usize)
            .unwrap_or_default();
        let name = symbolic_demangle::demangle(symbol.name().unwrap_or_default()).into_owned();
        let (site, stepped) = site(code, offset);
        let rets = rets(code, offset);
        let function = Function {
            name,
            offset: site,
            stepped,
            start: offset,
            rets,
        };
        found.entry(offset).or_insert(function);
    }
    Ok(found.into_values().collect())
}

fn file_offset(file: &object::File<'_>, address: u64) -> Option<u64> {
    file.segments().find_map(|segment| {
        let (start, size) = segment.file_range();
        let within = address.checked_sub(segment.address())?;
        (within < size).then_some(start + within)
    })
}

/// The first instruction that the kernel probes, and whether it single-steps it.
fn site(code: &[u8], offset: u64) -> (u64, bool) {
    // Go's functions begin with a look at the stack's limit, and come back to it after the stack has grown.
    let check = Decoder::with_ip(64, code, offset, DecoderOptions::NONE)
        .into_iter()
        .take(4)
        .position(|insn| insn.mnemonic() == Mnemonic::Jbe);
    let behind_check = check.map_or(0, |position| position + 1);
    let decoder = Decoder::with_ip(64, code, offset, DecoderOptions::NONE);
    let mut instructions = decoder.into_iter().skip(behind_check);
    let first = instructions.find(|insn| !insn.has_lock_prefix());
    let emulated = [Mnemonic::Push, Mnemonic::Nop, Mnemonic::Jmp, Mnemonic::Call];
    first.map_or((offset, true), |insn| {
        (insn.ip(), !emulated.contains(&insn.mnemonic()))
    })
}

fn rets(code: &[u8], offset: u64) -> Vec<u64> {
    let decoder = Decoder::with_ip(64, code, offset, DecoderOptions::NONE);
    decoder
        .into_iter()
        .filter(|insn| insn.mnemonic() == Mnemonic::Ret)
        .map(|insn| insn.ip())
        .collect()
}

/// Probes of a fixture's functions.
pub(crate) struct Probes {
    pub(crate) kernel: Kernel,
    pub(crate) events: Events,
    pub(crate) attachments: Attachments,
    pub(crate) names: Vec<String>,
    pub(crate) requests: Vec<SiteRequest>,
}

impl Probes {
    /// Loads the object, and makes a request for each of `names` in `path`. Nothing is attached yet.
    pub(crate) fn new(
        path: &Path,
        names: &[&str],
        mechanism: Mechanism,
        exit: ExitStrategy,
        options: AttachOptions,
    ) -> anyhow::Result<Self> {
        Self::on(kernel(mechanism)?, path, names, exit, options)
    }

    /// The same with an object that is loaded already.
    pub(crate) fn on(
        mut kernel: Kernel,
        path: &Path,
        names: &[&str],
        exit: ExitStrategy,
        options: AttachOptions,
    ) -> anyhow::Result<Self> {
        let all = functions(path)?;
        let file = Arc::new(ProbedFile::open(path)?);
        let mut requests = Vec::new();
        for (id, name) in (1..).zip(names) {
            let function = all.iter().find(|function| function.name == *name);
            let function =
                function.with_context(|| format!("{} has no function {name}", path.display()))?;
            requests.push(request(id, &file, function, exit)?);
        }
        let events = Events::start(&mut kernel)?;
        let attachments = Attachments::new(&kernel, options);
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(Self {
            kernel,
            events,
            attachments,
            names,
            requests,
        })
    }

    /// Attaches all requests; none may be refused.
    pub(crate) fn attach(&mut self) -> anyhow::Result<()> {
        let report = self.try_attach()?;
        anyhow::ensure!(report.refused.is_empty(), "refused: {:?}", report.refused);
        anyhow::ensure!(
            report.attached == self.requests.len(),
            "attached {}",
            report.attached
        );
        Ok(())
    }

    /// Attaches all requests.
    pub(crate) fn try_attach(&mut self) -> Result<AttachReport, KernelError> {
        self.attachments.attach(&self.requests, &mut |_| {})
    }

    /// Takes everything off and counts what came through the rings.
    pub(crate) fn finish(mut self) -> anyhow::Result<Counts> {
        self.attachments.detach_all();
        self.events.finish()
    }

    /// Entries counted of each function, by name.
    pub(crate) fn hits(&self) -> BTreeMap<String, u64> {
        let hits = self
            .requests
            .iter()
            .map(|request| self.kernel.hits_of(request.func));
        self.names.iter().cloned().zip(hits).collect()
    }
}

/// Counts the events that come through the rings.
pub(crate) struct Events {
    poller: Poller,
    counter: JoinHandle<Counts>,
}

/// Number of events by function and kind, and what was lost.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    events: BTreeMap<(u32, u8), u64>,
    /// Processes that events of a function came from.
    pids: BTreeMap<u32, BTreeSet<u32>>,
    /// The loss counters as they were told last.
    pub(crate) losses: Vec<Loss>,
}

impl Events {
    fn start(kernel: &mut Kernel) -> anyhow::Result<Self> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(64);
        let decoders = Decoders {
            sample: |_| None,
            control: |_| None,
        };
        let poller = Poller::start(kernel, None, decoders, sender)?;
        let counter = std::thread::spawn(move || {
            let mut counts = Counts::default();
            for (_feed, input) in receiver {
                counts.add(&input);
            }
            counts
        });
        Ok(Self { poller, counter })
    }

    /// Drains the rings a last time. The probes must be off.
    pub(crate) fn finish(self) -> anyhow::Result<Counts> {
        self.poller.finish();
        self.counter
            .join()
            .map_err(|_panic| anyhow::anyhow!("the counter panicked"))
    }
}

impl Counts {
    fn add(&mut self, input: &Input) {
        match input {
            Input::Events(events) => {
                for event in events {
                    *self.events.entry((event.func, event.kind)).or_default() += 1;
                    self.pids.entry(event.func).or_default().insert(event.pid);
                }
            }
            Input::Losses(losses) => self.losses.clone_from(losses),
            _ => {}
        }
    }

    /// How many processes events of a function came from.
    pub(crate) fn processes(&self, func: u32) -> usize {
        self.pids.get(&func).map_or(0, BTreeSet::len)
    }

    /// Events of one kind of a function.
    pub(crate) fn of(&self, func: u32, kind: Kind) -> u64 {
        self.events.get(&(func, kind as u8)).copied().unwrap_or(0)
    }
}

/// A request for one function.
pub(crate) fn request(
    id: u32,
    file: &Arc<ProbedFile>,
    function: &Function,
    exit: ExitStrategy,
) -> anyhow::Result<SiteRequest> {
    Ok(SiteRequest {
        func: FuncId::new(id).context("ids begin at 1")?,
        file: Arc::clone(file),
        offset: function.offset,
        stepped: function.stepped,
        exit,
        ret_offsets: function.rets.clone(),
        heat: 0,
        pid_filter: None,
    })
}

/// `pid` as a filter for all requests.
pub(crate) fn only(requests: &mut [SiteRequest], pid: u32) {
    for request in requests {
        request.pid_filter = Some(Pid(pid));
    }
}

/// Functions of the busy fixture.
pub(crate) const BUSY: &[&str] = &["leaf", "round_of", "body"];

/// A function id.
pub(crate) fn id(number: u32) -> FuncId {
    FuncId::new(number).unwrap_or(FuncId(std::num::NonZeroU32::MIN))
}

/// The clock that bounds are stamped by.
pub(crate) fn now() -> MonoTime {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    MonoTime(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The account of some functions.
pub(crate) fn both(
    truth: &scalpel_tests::truth::Truth,
    names: &[&str],
) -> anyhow::Result<BTreeMap<String, u64>> {
    names
        .iter()
        .map(|name| Ok(((*name).to_owned(), truth.calls(name)?)))
        .collect()
}

/// Starts the busy fixture and waits until its threads run.
pub(crate) fn busy(path: &Path) -> anyhow::Result<Target> {
    let mut target = Target::start(path, &[])?;
    target.running().say("go\n")?;
    target.running().stdout_line(|line| line == "busy\n")?;
    Ok(target)
}
