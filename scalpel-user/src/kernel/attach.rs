//! Attaches functions in groups, cold to hot; drops what is too dear; takes everything off again.
//!
//! Must not choose functions, sites or exit strategies: it does what the requests say and reports what the kernel
//! refused.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use scalpel_common::kernel::{cookie, programs};

use super::breaker::{Breaker, Observation, Verdict, Watched};
use super::calibrate::ProbeCosts;
use super::calls::CallPrograms;
use super::error::{Hint, KernelError};
use super::groups::share_out;
use super::hits::Hits;
use super::load::{Kernel, Mechanism, ProgramStats, stats};
pub use super::uprobe_multi::ProbedFile;
use super::uprobe_multi::{self, Site, Target, close_all};
use super::{sys, uprobe_perf};
use crate::event::{FuncId, MonoTime, Pid};
use crate::function::ExitStrategy;
use crate::input::Bound;

/// One function to probe.
#[derive(Clone, Debug)]
pub struct SiteRequest {
    /// Function; its number is the attach cookie.
    pub func: FuncId,
    /// The file it is in.
    pub file: Arc<ProbedFile>,
    /// File offset of the chosen site. The stack pointer there must be the one of the function's entry.
    pub offset: u64,
    /// The kernel single-steps the instruction at the site instead of emulating it: about ten times as dear in a VM.
    pub stepped: bool,
    /// How its end is to be seen.
    pub exit: ExitStrategy,
    /// File offsets of its `ret` instructions, for [`ExitStrategy::RetOffsets`].
    pub ret_offsets: Vec<u64>,
    /// Guess of how often it is called, relative to the others.
    pub heat: u8,
    /// The only process to watch, for files that strangers map too; `None` = whoever runs it, and the programs leave
    /// strangers alone at once.
    pub pid_filter: Option<Pid>,
}

/// Limits of an [`Attachments`].
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Overhead allowed in percent of the targets' own work; `None` = no breaker.
    pub max_overhead_percent: Option<f64>,
    /// What a probe costs on this host.
    pub costs: ProbeCosts,
    /// About how many links to use. They close in parallel, but one after the other (60 to 100 ms each) when this
    /// process is killed: 16 are gone after about a second.
    pub max_links: usize,
    /// Most probes of the perf mechanism.
    pub max_perf_probes: usize,
    /// How long a group is watched before the next goes in, when there is a breaker.
    pub settle: Duration,
}

impl Default for AttachOptions {
    fn default() -> Self {
        Self {
            max_overhead_percent: None,
            costs: ProbeCosts::default(),
            max_links: 16,
            max_perf_probes: 500,
            settle: Duration::from_millis(10),
        }
    }
}

/// How far an attach is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Functions done (attached, refused or dropped).
    pub done: usize,
    /// Functions asked for.
    pub total: usize,
}

/// What an attach did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttachReport {
    /// Functions attached, also those that the breaker dropped again.
    pub attached: usize,
    /// Functions not attached, each with the reason.
    pub refused: Vec<(FuncId, String)>,
    /// Functions that the breaker dropped while others were still being attached.
    pub bounds: Vec<Bound>,
}

/// What was there to take off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetachReport {
    /// Functions that were still attached.
    pub functions: usize,
    /// Links closed.
    pub links: usize,
    /// How long it took.
    pub took: Duration,
    /// Sum over the call programs of the runs that the kernel skipped: lost events.
    pub recursion_misses: u64,
    /// The call programs one by one.
    pub programs: Vec<ProgramStats>,
}

/// Links beyond this are refused: a killed collector would take more than half a minute to go.
const MOST_LINKS: usize = 512;

/// Everything that is attached. Dropping it takes everything off.
#[derive(Debug)]
pub struct Attachments {
    programs: Arc<CallPrograms>,
    hits: Arc<Hits>,
    mechanism: Mechanism,
    options: AttachOptions,
    breaker: Option<Breaker>,
    targets: Vec<Pid>,
    files: Vec<Arc<ProbedFile>>,
    groups: Vec<LiveGroup>,
    attached: HashSet<(FuncId, Option<Pid>)>,
    generation: u32,
    closing: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct LiveGroup {
    key: Key,
    members: Vec<Member>,
    links: Links,
}

/// What the members of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    file: usize,
    shape: Shape,
    pid: Option<Pid>,
}

/// Which programs a function gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    EntryOnly,
    Session,
    EntryAndReturn,
    EntryAndRets,
}

#[derive(Clone, Debug)]
struct Member {
    func: FuncId,
    offset: u64,
    ret_offsets: Vec<u64>,
    cost_ns: u64,
}

/// Open links. Exits are attached before entries and closed after them: an entry without its exit would leave its
/// frame open, an exit without its entry is recognised and counted.
#[derive(Debug, Default)]
struct Links {
    exits: Vec<Owned>,
    entries: Vec<Owned>,
}

/// A link and the only function it serves, if it serves only one (perf).
type Owned = (Option<FuncId>, OwnedFd);

/// One program of a shape, and where it goes.
struct Part {
    program: &'static str,
    on_return: bool,
    at_rets: bool,
    is_exit: bool,
}

impl Shape {
    const fn of(exit: ExitStrategy, rets: usize, mechanism: Mechanism) -> Option<Self> {
        match (exit, mechanism) {
            (ExitStrategy::None, _) => None,
            (ExitStrategy::Return, Mechanism::Session) => Some(Self::Session),
            (ExitStrategy::Return, _) => Some(Self::EntryAndReturn),
            (ExitStrategy::RetOffsets, _) if rets > 0 => Some(Self::EntryAndRets),
            // Without a `ret` it never returns, and there is nothing to see.
            (ExitStrategy::RetOffsets | ExitStrategy::EntryOnly, _) => Some(Self::EntryOnly),
        }
    }

    /// In the order of attaching.
    const fn parts(self) -> &'static [Part] {
        const fn at_entry(program: &'static str) -> Part {
            Part {
                program,
                on_return: false,
                at_rets: false,
                is_exit: false,
            }
        }
        const RETURN: Part = Part {
            program: programs::CALL_RETURN,
            on_return: true,
            at_rets: false,
            is_exit: true,
        };
        const RETS: Part = Part {
            program: programs::CALL_RET,
            on_return: false,
            at_rets: true,
            is_exit: true,
        };
        match self {
            Self::EntryOnly => const { &[at_entry(programs::CALL_ENTRY)] },
            Self::Session => const { &[at_entry(programs::CALL_SESSION)] },
            Self::EntryAndReturn => const { &[RETURN, at_entry(programs::CALL_ENTER)] },
            Self::EntryAndRets => const { &[RETS, at_entry(programs::CALL_ENTER)] },
        }
    }
}

impl Part {
    /// The sites of `members`, and whose each is.
    fn sites(&self, members: &[Member], generation: u32) -> (Vec<Site>, Vec<usize>) {
        let sites_of = |(index, member): (usize, &Member)| {
            let offsets = if self.at_rets {
                member.ret_offsets.clone()
            } else {
                vec![member.offset]
            };
            let cookie = cookie(member.func.get(), generation);
            offsets
                .into_iter()
                .map(move |offset| (Site { offset, cookie }, index))
        };
        members.iter().enumerate().flat_map(sites_of).unzip()
    }
}

impl Links {
    fn len(&self) -> usize {
        self.exits.len() + self.entries.len()
    }

    /// Closes entries before exits, each in parallel.
    fn close(self) {
        for part in [self.entries, self.exits] {
            close_all(part.into_iter().map(|(_, link)| link).collect());
        }
    }

    fn absorb(&mut self, other: Self) {
        self.exits.extend(other.exits);
        self.entries.extend(other.entries);
    }

    /// Splits off the links that serve only functions in `funcs`.
    fn take(&mut self, funcs: &HashSet<FuncId>) -> Self {
        let serves = |owned: &mut Owned| owned.0.is_some_and(|func| funcs.contains(&func));
        Self {
            exits: self.exits.extract_if(.., serves).collect(),
            entries: self.entries.extract_if(.., serves).collect(),
        }
    }
}

/// Why a group could not be attached.
enum Failure {
    /// Single members are to blame (their indices, with the reason).
    Members(Vec<(usize, String)>),
    /// Nothing more can be attached.
    Fatal(KernelError),
}

impl Attachments {
    /// Nothing is attached yet.
    pub fn new(kernel: &Kernel, options: AttachOptions) -> Self {
        if kernel.mechanism == Mechanism::Perf {
            uprobe_perf::raise_open_files();
        }
        Self {
            programs: Arc::clone(&kernel.calls),
            hits: Arc::clone(&kernel.hits),
            mechanism: kernel.mechanism,
            breaker: options.max_overhead_percent.map(Breaker::new),
            options,
            targets: Vec::new(),
            files: Vec::new(),
            groups: Vec::new(),
            attached: HashSet::new(),
            generation: 0,
            closing: Vec::new(),
        }
    }

    /// The processes whose CPU time the breaker compares the probes with.
    pub fn set_targets(&mut self, targets: &[Pid]) {
        self.targets = targets.to_vec();
    }

    /// Attaches `requests`, cold groups first. Functions that are attached already are left alone. May be called
    /// again for files that are mapped later.
    pub fn attach(
        &mut self,
        requests: &[SiteRequest],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<AttachReport, KernelError> {
        let mut report = AttachReport::default();
        let keyed = self.keyed(requests, &mut report)?;
        self.check_perf_limit(&keyed)?;
        let items: Vec<(Key, u8)> = keyed.iter().map(|(key, _, heat)| (*key, *heat)).collect();
        let total = keyed.len();
        let mut done = 0;
        let limit = self.groups_left(&items);
        for group in share_out(&items, limit) {
            let member_of = |&index: &usize| keyed.get(index).map(|(_, member, _)| member.clone());
            let members: Vec<Member> = group.members.iter().filter_map(member_of).collect();
            done += members.len();
            self.attach_group(group.key, members, &mut report)?;
            report.bounds.extend(self.settle()?);
            progress(Progress { done, total });
        }
        Ok(report)
    }

    /// Looks at the hit counters and drops what exceeds the budget, hottest first. To be called about every 100 ms.
    pub fn govern(&mut self, now: MonoTime) -> Result<Vec<Bound>, KernelError> {
        let Some(mut breaker) = self.breaker.take() else {
            return Ok(Vec::new());
        };
        let watched = self.watched();
        let verdicts = breaker.observe(self.observation(now, &watched), &watched);
        self.breaker = Some(breaker);
        if verdicts.is_empty() {
            return Ok(Vec::new());
        }
        let mut bounds: Vec<Bound> = verdicts
            .iter()
            .map(|verdict| over_budget_bound(verdict, now))
            .collect();
        let funcs: HashSet<FuncId> = verdicts.iter().map(|verdict| verdict.func).collect();
        bounds.extend(self.drop_functions(&funcs, now)?);
        Ok(bounds)
    }

    /// Takes everything off, and tells what the kernel counted about the call programs.
    pub fn detach_all(&mut self) -> DetachReport {
        let start = Instant::now();
        let functions = self.attached.len();
        let links = self.take_all();
        let count = links.len();
        links.close();
        for thread in self.closing.drain(..) {
            drop(thread.join());
        }
        let programs: Vec<ProgramStats> = self
            .programs
            .iter()
            .filter_map(|program| stats(program.name(), program.fd()).ok())
            .collect();
        DetachReport {
            functions,
            links: count,
            took: start.elapsed(),
            recursion_misses: programs
                .iter()
                .map(|program| program.recursion_misses)
                .sum(),
            programs,
        }
    }

    /// Functions attached now.
    pub fn len(&self) -> usize {
        self.attached.len()
    }

    /// Whether nothing is attached.
    pub fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }

    /// Links open now.
    pub fn link_count(&self) -> usize {
        self.groups.iter().map(|group| group.links.len()).sum()
    }

    /// Drops single functions. A link cannot lose one of its sites, so the rest of the group is attached anew.
    ///
    /// The new link goes in before the old one is closed, or the calls between would be missed (closing takes about
    /// 60 ms). While both are there each call would count twice: hence the generation in the cookie. The kernel runs
    /// the newest consumer of a site first (`consumer_add` in kernel/events/uprobes.c adds at the head of the list);
    /// it leaves its generation in the thread's state, and the older link's program, run next for the same hit, finds
    /// a newer one and returns. So every call counts exactly once, whichever links it meets. Calls that are open at
    /// the change lose their exit with the old link and are closed by their parent's.
    ///
    /// Functions whose new link fails are given up as well, and returned.
    pub fn drop_functions(
        &mut self,
        funcs: &HashSet<FuncId>,
        now: MonoTime,
    ) -> Result<Vec<Bound>, KernelError> {
        let mut given_up = Vec::new();
        let affected = |group: &mut LiveGroup| {
            group
                .members
                .iter()
                .any(|member| funcs.contains(&member.func))
        };
        let groups: Vec<LiveGroup> = self.groups.extract_if(.., affected).collect();
        for group in groups {
            given_up.extend(self.regroup(group, funcs, now));
        }
        self.attached.retain(|(func, _)| !funcs.contains(func));
        Ok(given_up)
    }

    fn regroup(
        &mut self,
        mut group: LiveGroup,
        funcs: &HashSet<FuncId>,
        now: MonoTime,
    ) -> Vec<Bound> {
        group.members.retain(|member| !funcs.contains(&member.func));
        if self.mechanism == Mechanism::Perf {
            let gone = group.links.take(funcs);
            self.close_aside(gone);
            self.keep(group);
            return Vec::new();
        }
        self.generation += 1;
        match self.links_for(group.key, &group.members) {
            Ok(links) => {
                let old = std::mem::replace(&mut group.links, links);
                self.keep(group);
                self.close_aside(old);
                Vec::new()
            }
            Err(failure) => {
                let reason = failure.into_reason();
                self.close_aside(std::mem::take(&mut group.links));
                self.give_up(&group, &reason, now)
            }
        }
    }

    fn keep(&mut self, group: LiveGroup) {
        if !group.members.is_empty() {
            self.groups.push(group);
        }
    }

    fn give_up(&mut self, group: &LiveGroup, reason: &str, now: MonoTime) -> Vec<Bound> {
        let bound = |member: &Member| Bound {
            func: member.func,
            since: Some(now),
            reason: format!("lost when its group was attached anew: {reason}"),
        };
        for member in &group.members {
            self.attached.remove(&(member.func, group.key.pid));
        }
        group.members.iter().map(bound).collect()
    }

    /// Closes links in the background: the breaker must not wait for grace periods.
    fn close_aside(&mut self, links: Links) {
        self.closing.retain(|thread| !thread.is_finished());
        if links.len() > 0 {
            self.closing.push(std::thread::spawn(move || links.close()));
        }
    }

    /// The requests that are new and can be attached, with what they share.
    fn keyed(
        &mut self,
        requests: &[SiteRequest],
        report: &mut AttachReport,
    ) -> Result<Vec<(Key, Member, u8)>, KernelError> {
        let mut seen: HashSet<(FuncId, Option<Pid>)> = HashSet::new();
        let mut keyed = Vec::with_capacity(requests.len());
        for request in requests {
            let identity = (request.func, request.pid_filter);
            if self.attached.contains(&identity) || !seen.insert(identity) {
                continue;
            }
            match Shape::of(request.exit, request.ret_offsets.len(), self.mechanism) {
                Some(shape) => {
                    let key = Key {
                        file: self.file_index(&request.file)?,
                        shape,
                        pid: request.pid_filter,
                    };
                    keyed.push((key, self.member(request, shape), request.heat));
                }
                None => report
                    .refused
                    .push((request.func, "it is not to be probed".into())),
            }
        }
        Ok(keyed)
    }

    fn member(&self, request: &SiteRequest, shape: Shape) -> Member {
        let ret_offsets = if shape == Shape::EntryAndRets {
            request.ret_offsets.clone()
        } else {
            Vec::new()
        };
        let returns = matches!(shape, Shape::Session | Shape::EntryAndReturn);
        let cost_ns = self
            .options
            .costs
            .of_call(request.stepped, returns, !ret_offsets.is_empty());
        Member {
            func: request.func,
            offset: request.offset,
            ret_offsets,
            cost_ns,
        }
    }

    /// Index of the file, by inode: one file opened twice still shares links.
    fn file_index(&mut self, file: &Arc<ProbedFile>) -> Result<usize, KernelError> {
        let inode = |file: &ProbedFile| file.file().metadata().map(|data| (data.dev(), data.ino()));
        let wanted = inode(file).map_err(|source| attach_error(file, 0, source))?;
        let known = self
            .files
            .iter()
            .position(|known| inode(known).is_ok_and(|known| known == wanted));
        Ok(known.unwrap_or_else(|| {
            self.files.push(Arc::clone(file));
            self.files.len() - 1
        }))
    }

    /// How many more groups keep the number of links within bounds; pairs of links count double.
    fn groups_left(&self, items: &[(Key, u8)]) -> usize {
        let left = self.options.max_links.saturating_sub(self.link_count());
        let parts = items.iter().map(|(key, _)| key.shape.parts().len()).max();
        (left / parts.unwrap_or(1)).max(1)
    }

    fn check_perf_limit(&self, keyed: &[(Key, Member, u8)]) -> Result<(), KernelError> {
        if self.mechanism != Mechanism::Perf {
            return Ok(());
        }
        let probes = |(key, member, _): &(Key, Member, u8)| match key.shape {
            Shape::EntryAndRets => 1 + member.ret_offsets.len(),
            shape => shape.parts().len(),
        };
        let wanted = self.link_count() + keyed.iter().map(probes).sum::<usize>();
        let limit = self.options.max_perf_probes;
        if wanted > limit {
            Err(KernelError::TooManyForPerf { wanted, limit })
        } else {
            Ok(())
        }
    }

    /// Attaches a group, without the members that the kernel refuses.
    fn attach_group(
        &mut self,
        key: Key,
        mut members: Vec<Member>,
        report: &mut AttachReport,
    ) -> Result<(), KernelError> {
        if self.mechanism != Mechanism::Perf && self.link_count() >= MOST_LINKS {
            let reason =
                format!("there are {MOST_LINKS} links already, which take half a minute to close");
            report
                .refused
                .extend(members.iter().map(|member| (member.func, reason.clone())));
            return Ok(());
        }
        while !members.is_empty() {
            match self.links_for(key, &members) {
                Ok(links) => {
                    self.attached
                        .extend(members.iter().map(|member| (member.func, key.pid)));
                    report.attached += members.len();
                    self.groups.push(LiveGroup {
                        key,
                        members,
                        links,
                    });
                    return Ok(());
                }
                Err(Failure::Members(refused)) => {
                    for (index, reason) in refused.into_iter().rev() {
                        report.refused.push((members.remove(index).func, reason));
                    }
                }
                Err(Failure::Fatal(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Attaches all of `members` or none.
    fn links_for(&self, key: Key, members: &[Member]) -> Result<Links, Failure> {
        let mut links = Links::default();
        if members.is_empty() {
            return Ok(links);
        }
        for part in key.shape.parts() {
            let made = self.attach_part(key, part, members)?;
            if part.is_exit {
                links.exits.extend(made)
            } else {
                links.entries.extend(made)
            }
        }
        Ok(links)
    }

    fn attach_part(
        &self,
        key: Key,
        part: &Part,
        members: &[Member],
    ) -> Result<Vec<Owned>, Failure> {
        let program = self.programs.get(part.program).map_err(Failure::Fatal)?;
        let missing = || KernelError::Missing {
            what: "file",
            name: key.file.to_string(),
        };
        let file = self
            .files
            .get(key.file)
            .ok_or_else(missing)
            .map_err(Failure::Fatal)?;
        let target = Target {
            program,
            file,
            pid: key.pid,
            on_return: part.on_return,
        };
        let (sites, owners) = part.sites(members, self.generation);
        match self.mechanism {
            Mechanism::Perf => attach_perf(target, members, &sites, &owners),
            Mechanism::Session | Mechanism::Multi => attach_multi(target, &sites, &owners),
        }
    }

    fn take_all(&mut self) -> Links {
        let mut all = Links::default();
        for group in self.groups.drain(..) {
            all.absorb(group.links);
        }
        self.attached.clear();
        all
    }

    /// With a breaker, watches the group that just went in for a moment.
    fn settle(&mut self) -> Result<Vec<Bound>, KernelError> {
        if self.breaker.is_none() {
            return Ok(Vec::new());
        }
        let mut bounds = self.govern(monotonic_now())?;
        std::thread::sleep(self.options.settle);
        bounds.extend(self.govern(monotonic_now())?);
        Ok(bounds)
    }

    fn watched(&self) -> Vec<Watched> {
        let members = self.groups.iter().flat_map(|group| &group.members);
        let mut watched: Vec<Watched> = members
            .map(|member| Watched {
                func: member.func,
                cost_ns: member.cost_ns,
            })
            .collect();
        watched.sort_by_key(|one| one.func);
        watched.dedup_by_key(|one| one.func);
        watched
    }

    fn observation(&self, now: MonoTime, watched: &[Watched]) -> Observation {
        let highest = watched
            .iter()
            .map(|one| one.func.get() as usize)
            .max()
            .unwrap_or(0);
        let mut hits = vec![0; highest + 1];
        for one in watched {
            if let Some(slot) = hits.get_mut(one.func.get() as usize) {
                *slot = self.hits.of(one.func);
            }
        }
        let cpu: Vec<u64> = self
            .targets
            .iter()
            .filter_map(|pid| sys::process_cpu_ns(pid.0).ok())
            .collect();
        let cpu_ns = (!cpu.is_empty()).then(|| cpu.iter().sum());
        Observation {
            at: now,
            cpu_ns,
            hits,
        }
    }
}

impl Drop for Attachments {
    fn drop(&mut self) {
        self.take_all().close();
    }
}

impl Failure {
    fn into_reason(self) -> String {
        match self {
            Self::Members(refused) => format!("{} of its sites are refused now", refused.len()),
            Self::Fatal(error) => error.to_string(),
        }
    }
}

fn attach_multi(
    target: Target<'_>,
    sites: &[Site],
    owners: &[usize],
) -> Result<Vec<Owned>, Failure> {
    let error = match uprobe_multi::attach(target, sites) {
        Ok(link) => return Ok(vec![(None, link)]),
        Err(error) => error,
    };
    if !uprobe_multi::blames_an_offset(&error) {
        return Err(fatal(target, sites.len(), error));
    }
    let refused = uprobe_multi::refused_sites(target, sites)
        .map_err(|source| fatal(target, sites.len(), source))?;
    if refused.is_empty() {
        return Err(fatal(target, sites.len(), error));
    }
    Err(Failure::Members(blame(&refused, sites, owners)))
}

fn attach_perf(
    target: Target<'_>,
    members: &[Member],
    sites: &[Site],
    owners: &[usize],
) -> Result<Vec<Owned>, Failure> {
    let mut links = Vec::with_capacity(sites.len());
    let mut refused = Vec::new();
    for (index, (site, owner)) in sites.iter().zip(owners).enumerate() {
        match uprobe_perf::attach(target, *site) {
            Ok(link) => links.push((members.get(*owner).map(|member| member.func), link)),
            Err(error) if uprobe_multi::blames_an_offset(&error) => {
                refused.push((index, error.raw_os_error().unwrap_or(0)));
            }
            Err(error) => return Err(fatal(target, sites.len(), error)),
        }
    }
    if refused.is_empty() {
        Ok(links)
    } else {
        Err(Failure::Members(blame(&refused, sites, owners)))
    }
}

/// Members to blame for refused sites, each once, in ascending order.
fn blame(refused: &[(usize, i32)], sites: &[Site], owners: &[usize]) -> Vec<(usize, String)> {
    let mut members: Vec<(usize, String)> = refused
        .iter()
        .filter_map(|&(index, errno)| {
            let (site, owner) = (sites.get(index)?, owners.get(index)?);
            Some((*owner, refusal(site.offset, errno)))
        })
        .collect();
    members.sort_by_key(|(member, _)| *member);
    members.dedup_by_key(|(member, _)| *member);
    members
}

fn refusal(offset: u64, errno: i32) -> String {
    match errno {
        sys::ENOTSUPP => {
            format!("the kernel cannot probe the instruction at file offset {offset:#x}")
        }
        libc::EINVAL => format!("file offset {offset:#x} is beyond the file, or not probeable"),
        _ => format!(
            "the kernel refused file offset {offset:#x}: {}",
            std::io::Error::from_raw_os_error(errno)
        ),
    }
}

fn fatal(target: Target<'_>, sites: usize, source: std::io::Error) -> Failure {
    match (source.raw_os_error(), target.pid) {
        (Some(libc::ESRCH), Some(pid)) => Failure::Fatal(KernelError::ProcessGone(pid.0)),
        _ => Failure::Fatal(attach_error(target.file, sites, source)),
    }
}

fn attach_error(file: &ProbedFile, sites: usize, source: std::io::Error) -> KernelError {
    use caps::Capability::{CAP_BPF, CAP_PERFMON};
    let hint = Hint::for_errno(source.raw_os_error(), &[CAP_BPF, CAP_PERFMON]);
    KernelError::Attach {
        file: file.label().display().to_string(),
        sites,
        hint,
        source,
    }
}

fn over_budget_bound(verdict: &Verdict, now: MonoTime) -> Bound {
    let reason = format!(
        "over budget: {:.0} calls/s, an estimated {:.1} % of the target's own work",
        verdict.calls_per_s, verdict.percent
    );
    Bound {
        func: verdict.func,
        since: Some(now),
        reason,
    }
}

fn monotonic_now() -> MonoTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    MonoTime(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
