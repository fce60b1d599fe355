//! Attaches functions in groups, cold to hot; drops what is too dear; takes everything off again.
//!
//! Must not choose functions, sites or exit strategies: it does what the requests say and reports what the kernel
//! refused.

mod govern;
mod paying;
mod pilot;
mod place;
mod request;
mod shape;

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use super::breaker::Breaker;
use super::calls::CallPrograms;
use super::error::KernelError;
use super::groups::share_out;
use super::hits::Hits;
use super::load::{Kernel, Mechanism, ProgramStats, stats};
use super::marks::CountMarks;
use super::uprobe_multi::Target;
use super::uprobe_perf;
use crate::event::{FuncId, Pid};

pub use super::uprobe_multi::ProbedFile;
pub use request::{AttachOptions, AttachReport, DetachReport, Progress, SiteRequest};

use paying::Paying;
use place::{Failure, attach_error, attach_multi, attach_perf};
use shape::{Key, Links, Member, Owned, Part, Shape};

/// Links beyond this are refused: a killed collector would take more than half a minute to go.
const MOST_LINKS: usize = 512;

/// Everything that is attached. Dropping it takes everything off.
#[derive(Debug)]
pub struct Attachments {
    programs: Arc<CallPrograms>,
    hits: Arc<Hits>,
    marks: Option<Arc<CountMarks>>,
    mechanism: Mechanism,
    options: AttachOptions,
    breaker: Option<Breaker>,
    targets: Paying,
    beside_ns: u64,
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
    /// In one process of many until what is too dear there is gone: what it becomes then.
    after_trial: Option<Key>,
}

/// A group that is to be attached.
type Planned = (Key, Vec<Member>);

/// How far an attach is, and who is told.
struct Steps<'a> {
    done: usize,
    total: usize,
    tell: &'a mut dyn FnMut(Progress),
}

impl Steps<'_> {
    fn forward(&mut self, functions: usize) {
        self.done += functions;
        (self.tell)(Progress {
            done: self.done,
            total: self.total,
        });
    }
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
            marks: kernel.marks.clone(),
            mechanism: kernel.mechanism,
            breaker: options.max_overhead_percent.map(Breaker::new),
            options,
            targets: Paying::default(),
            beside_ns: 0,
            files: Vec::new(),
            groups: Vec::new(),
            attached: HashSet::new(),
            generation: 0,
            closing: Vec::new(),
        }
    }

    /// The processes whose CPU time the breaker compares the probes with.
    pub fn set_targets(&mut self, targets: &[Pid]) {
        self.targets = Paying::of(targets);
    }

    /// One more, if anybody compares: who has ended is forgotten when they are looked at.
    pub fn add_target(&mut self, pid: Pid) {
        if self.breaker.is_some() {
            self.targets.add(pid);
        }
    }

    /// CPU time so far, in ns, of what is not the probes and has to fit into the same budget.
    pub fn set_beside(&mut self, ns: u64) {
        self.beside_ns = ns;
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
        let member_of = |index: usize| keyed.get(index).map(|(_, member, _)| member.clone());
        let groups: Vec<Planned> = share_out(&items, self.groups_left(&items))
            .into_iter()
            .map(|group| {
                (
                    group.key,
                    group.members.into_iter().filter_map(member_of).collect(),
                )
            })
            .collect();
        let mut steps = Steps {
            done: 0,
            total: keyed.len(),
            tell: progress,
        };
        let groups = match self.pilot() {
            Some(pilot) => self.attach_to_one_first(pilot, groups, &mut report, &mut steps)?,
            None => groups,
        };
        for (key, members) in groups {
            let count = members.len();
            self.attach_group(key, members, &mut report)?;
            report.bounds.extend(self.settle());
            steps.forward(count);
        }
        Ok(report)
    }

    /// Takes everything off, and tells what the kernel counted about the call programs.
    pub fn detach_all(&mut self) -> DetachReport {
        let start = Instant::now();
        let functions = self.attached.len();
        let links = self.close_everything();
        let programs: Vec<ProgramStats> = self
            .programs
            .iter()
            .filter_map(|program| stats(program.name(), program.fd()).ok())
            .collect();
        DetachReport {
            functions,
            links,
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

    /// The requests that are new and can be attached, with what they share.
    fn keyed(
        &mut self,
        requests: &[SiteRequest],
        report: &mut AttachReport,
    ) -> Result<Vec<(Key, Member, u8)>, KernelError> {
        let mut seen: HashSet<(FuncId, Option<Pid>)> = HashSet::new();
        let mut keyed = Vec::with_capacity(requests.len());
        for request in requests {
            let pid = request.pid_filter.filter(|_| self.options.trust_pid_filter);
            let identity = (request.func, pid);
            if self.attached.contains(&identity) || !seen.insert(identity) {
                continue;
            }
            match Shape::of(request.exit, request.ret_offsets.len(), self.mechanism) {
                Some(shape) => {
                    let key = Key {
                        file: self.file_index(&request.file)?,
                        shape,
                        pid,
                        lasting: request.heat == 0,
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
        if let Some(same) = self.files.iter().position(|known| Arc::ptr_eq(known, file)) {
            return Ok(same);
        }
        let inode = |file: &ProbedFile| file.file().metadata().map(|data| (data.dev(), data.ino()));
        let wanted = inode(file).map_err(|source| attach_error(file, 0, source, &[]))?;
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
                        after_trial: None,
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
            let made: Vec<Owned> = self.attach_part(key, part, members)?;
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

    /// Closes all links, waits for those that close aside, and tells how many there were.
    fn close_everything(&mut self) -> usize {
        let links = self.take_all();
        let count = links.len();
        links.close();
        for thread in self.closing.drain(..) {
            // A thread that panicked has dropped its links, which closes them.
            let _ended = thread.join();
        }
        count
    }

    fn take_all(&mut self) -> Links {
        let mut all = Links::default();
        for group in self.groups.drain(..) {
            all.absorb(group.links);
        }
        self.attached.clear();
        all
    }
}

impl Drop for Attachments {
    fn drop(&mut self) {
        self.close_everything();
    }
}
