//! Which programs ran in the family of a recording, and whether a probe spoke in each. Pure: changes and looks in, runtimes
//! of which nothing was seen out.
//!
//! A process runs one program after another. Each *stay* lasts from a birth or an exec to the next exec or the end; a probe
//! speaks for the stay in which it said HELLO, and for children that are forked from it and execute nothing.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::event::{Control, MonoTime, Pid};
use crate::target::{FileId, Runtime};

/// No interpreter is ready to run a function so shortly after an exec: the fastest start of those with a probe takes some
/// 5 ms of CPU time.
const READY_AFTER_NS: u64 = 2_000_000;

/// A look shortly before an exec may have met the next program: the kernel tells of it only when it is loaded.
const LOADED_WITHIN_NS: u64 = 10_000_000;

/// What is known of the program of a stay.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Program {
    /// Its runtimes are all that it has.
    Known,
    /// It executed something; which program it is will be told by its first mapping, or by a look.
    New,
    /// This file, which nobody has looked into yet.
    Unread(String),
    /// Nothing.
    Unknown,
}

#[derive(Clone, Debug)]
struct Stay {
    pid: Pid,
    from: MonoTime,
    /// When the program was executed, in this process or in the one that it was forked from.
    began: MonoTime,
    until: Option<MonoTime>,
    /// Whether `until` is an exec.
    replaced: bool,
    /// The first thread has ended: so has the process, unless others go on.
    is_ending: bool,
    /// The stay that it was forked from.
    parent: Option<u64>,
    has_children: bool,
    program: Program,
    /// When it was looked at first, and the file that was its program.
    looked: Option<(MonoTime, FileId)>,
    /// The next program was another file: what was looked at was this one.
    is_told_apart: bool,
    /// The stay that this one replaced.
    before: Option<u64>,
    /// Since when each is known to be there; `None` = the kernel has told.
    runtimes: Vec<(Runtime, Option<MonoTime>)>,
}

/// A file to be looked into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    stay: u64,
    pub(super) pid: Pid,
    pub(super) path: String,
}

/// Of whom nothing was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Silence {
    /// Runtimes that were there, and whose probe did not speak.
    pub(super) runtimes: Vec<(Pid, Runtime)>,
    /// Processes of which nobody knows what they ran.
    pub(super) unknown: Vec<Pid>,
    /// Why there may be more of those.
    pub(super) why_unknown: Option<String>,
    /// Runtimes with a probe that spoke at all.
    pub(super) spoken: Vec<Runtime>,
}

/// The family.
#[derive(Debug, Default)]
pub(super) struct Household {
    stays: FxHashMap<u64, Stay>,
    current: FxHashMap<Pid, u64>,
    last: u64,
    /// Why not every member is known.
    incomplete: Option<String>,
    heard: FxHashMap<Pid, Vec<(Runtime, MonoTime)>>,
}

impl Household {
    /// A process that is there when the recording begins.
    pub(super) fn begin(&mut self, pid: Pid, runtimes: impl IntoIterator<Item = Runtime>) {
        let runtimes = runtimes.into_iter().map(|runtime| (runtime, None));
        let mut stay = Stay::new(pid, MonoTime(0), Program::Known);
        stay.runtimes.extend(runtimes);
        self.add(stay);
    }

    fn add(&mut self, stay: Stay) {
        self.last += 1;
        self.current.insert(stay.pid, self.last);
        self.stays.insert(self.last, stay);
    }

    /// Takes a change; those of one process come in order.
    pub(super) fn control(&mut self, control: &Control) {
        match control {
            Control::Fork {
                time,
                parent,
                child,
                ..
            } => self.born(*time, *parent, *child),
            Control::Exec { time, pid, .. } => self.executed(*time, *pid),
            Control::Exit { time, pid, tid, .. } => {
                if let Some(stay) = self.now_of(*pid) {
                    stay.is_ending |= tid.0 == pid.0;
                    if stay.is_ending {
                        stay.until = stay.until.max(Some(*time));
                    }
                }
            }
            Control::Map { pid, path, .. } => self.mapped(*pid, path),
        }
    }

    fn now_of(&mut self, pid: Pid) -> Option<&mut Stay> {
        let stay = self.current.get(&pid)?;
        self.stays.get_mut(stay)
    }

    fn born(&mut self, time: MonoTime, parent: Pid, child: Pid) {
        if parent == child {
            return;
        }
        let from = self.current.get(&parent).copied();
        let like = from.and_then(|from| self.stays.get_mut(&from));
        let mut stay = Stay::new(child, time, Program::Unknown);
        if let Some(like) = like {
            stay.began = like.began;
            stay.program = like.program.clone();
            stay.looked = like.looked;
            stay.runtimes.clone_from(&like.runtimes);
            stay.parent = from;
            like.has_children = true;
        }
        self.close(child);
        self.add(stay);
    }

    fn executed(&mut self, time: MonoTime, pid: Pid) {
        if let Some(stay) = self.now_of(pid) {
            stay.until = Some(time);
            stay.replaced = true;
        }
        let mut stay = Stay::new(pid, time, Program::New);
        stay.before = self.current.get(&pid).copied();
        self.close(pid);
        self.add(stay);
    }

    /// The process goes on as another: what is known to be harmless is forgotten, and so is what was seen, unless its
    /// children rest on it.
    fn close(&mut self, pid: Pid) {
        let Some(id) = self.current.remove(&pid) else {
            return;
        };
        let is_seen = |stay: &Stay| {
            stay.is_known()
                && !stay.has_children
                && stay.runtimes().all(|one| self.is_covered(stay, one))
        };
        let settled = |stay: &Stay| stay.is_harmless() || is_seen(stay);
        if self.stays.get(&id).is_some_and(settled) {
            self.stays.remove(&id);
        }
    }

    fn mapped(&mut self, pid: Pid, path: &str) {
        let runtime = Runtime::by_file(std::path::Path::new(path));
        if !self.current.contains_key(&pid) {
            // It has joined the recording by itself.
            self.begin(pid, []);
        }
        let Some(stay) = self.now_of(pid) else {
            return;
        };
        if stay.program == Program::New {
            // The kernel maps the program first.
            stay.program = match runtime {
                Some(_) => Program::Known,
                None => Program::Unread(path.to_owned()),
            };
        }
        if let Some(runtime) = runtime {
            stay.runtimes.push((runtime, None));
            stay.tidy();
        }
    }

    /// Somebody has looked at a process: which file its program was, and all runtimes that this has or has loaded. Every
    /// change that was told before the look began was taken.
    pub(super) fn looked(&mut self, pid: Pid, now: MonoTime, file: FileId, found: &[Runtime]) {
        let Some(stay) = self.now_of(pid) else {
            return;
        };
        stay.looked.get_or_insert((now, file));
        let new = found
            .iter()
            .filter(|&one| !stay.runtimes.iter().any(|(known, _)| known == one));
        let new: Vec<_> = new.map(|&runtime| (runtime, Some(now))).collect();
        stay.runtimes.extend(new);
        if let Some(id) = stay.before
            && let Some(before) = self.stays.get_mut(&id)
            && before.looked.is_some_and(|(_, other)| other != file)
        {
            before.is_told_apart = true;
            if before.is_harmless() {
                self.stays.remove(&id);
            }
        }
    }

    /// Files to be looked into.
    pub(super) fn unread(&self) -> Vec<Unread> {
        let unread = self
            .stays
            .iter()
            .filter_map(|(&id, stay)| match &stay.program {
                Program::Unread(path) => Some(Unread {
                    stay: id,
                    pid: stay.pid,
                    path: path.clone(),
                }),
                _ => None,
            });
        unread.collect()
    }

    /// What was found in one; `None` = it could not be read.
    pub(super) fn read(&mut self, file: &Unread, found: Option<&[Runtime]>) {
        let Some(stay) = self.stays.get_mut(&file.stay) else {
            return;
        };
        stay.program = match found {
            Some(_) => Program::Known,
            None => Program::Unknown,
        };
        let found = found.unwrap_or_default().iter();
        stay.runtimes.extend(found.map(|&runtime| (runtime, None)));
        stay.tidy();
        let is_current = self.current.get(&file.pid) == Some(&file.stay);
        if stay.is_harmless() && !is_current {
            self.stays.remove(&file.stay);
        }
    }

    /// A probe has said HELLO.
    pub(super) fn heard(&mut self, pid: Pid, runtime: Runtime, time: MonoTime) {
        self.heard.entry(pid).or_default().push((runtime, time));
    }

    /// Whether a probe has said HELLO in a process before `time`.
    pub(super) fn spoke_before(&self, pid: Pid, time: MonoTime) -> bool {
        let heard = self.heard.get(&pid).into_iter().flatten();
        heard.map(|(_, at)| *at).any(|at| at < time)
    }

    /// Not every member is known.
    pub(super) fn is_incomplete(&mut self, why: String) {
        self.incomplete.get_or_insert(why);
    }

    fn spoken(&self) -> Vec<Runtime> {
        let heard = self.heard.values().flatten();
        let spoken: BTreeSet<Runtime> = heard.map(|(runtime, _)| *runtime).collect();
        spoken.into_iter().collect()
    }

    /// Who lives now, as far as was told.
    pub(super) fn living(&self) -> Vec<Pid> {
        let lives = |stay: &u64| {
            self.stays
                .get(stay)
                .is_some_and(|stay| stay.until.is_none())
        };
        let current = self.current.iter();
        current
            .filter(|(_, stay)| lives(stay))
            .map(|(pid, _)| *pid)
            .collect()
    }

    /// All of which nothing was seen.
    pub(super) fn silence(&self) -> Silence {
        let mut silence = Silence {
            spoken: self.spoken(),
            why_unknown: self.incomplete.clone(),
            ..Silence::default()
        };
        for stay in self.stays.values().filter(|stay| stay.may_have_run()) {
            for runtime in stay.runtimes() {
                if !self.is_covered(stay, runtime) {
                    silence.runtimes.push((stay.pid, runtime));
                }
            }
            let spoke = |&runtime: &Runtime| self.is_covered(stay, runtime);
            if !self.is_known(stay) && !silence.spoken.iter().all(spoke) {
                silence.unknown.push(stay.pid);
            }
        }
        silence.runtimes.sort_unstable();
        silence.runtimes.dedup();
        silence.unknown.sort_unstable();
        silence.unknown.dedup();
        silence
    }

    /// A forked child has the program of its parent; a parent that was forgotten was harmless.
    fn is_known(&self, stay: &Stay) -> bool {
        stay.is_known()
            || stay
                .parent
                .is_some_and(|parent| self.stays.get(&parent).is_none_or(|it| self.is_known(it)))
    }

    fn is_covered(&self, stay: &Stay, runtime: Runtime) -> bool {
        let mut before = None;
        let mut at = Some(stay);
        while let Some(stay) = at {
            let heard = self.heard.get(&stay.pid).into_iter().flatten();
            let within = |time: MonoTime| {
                stay.from <= time
                    && stay.until.is_none_or(|until| time <= until)
                    && before.is_none_or(|before| time <= before)
            };
            if heard
                .filter(|(one, _)| *one == runtime)
                .any(|(_, time)| within(*time))
            {
                return true;
            }
            before = Some(stay.from);
            at = stay.parent.and_then(|parent| self.stays.get(&parent));
        }
        false
    }
}

impl Stay {
    const fn new(pid: Pid, from: MonoTime, program: Program) -> Self {
        Self {
            pid,
            from,
            began: from,
            until: None,
            replaced: false,
            is_ending: false,
            parent: None,
            has_children: false,
            program,
            looked: None,
            is_told_apart: false,
            before: None,
            runtimes: Vec::new(),
        }
    }

    fn is_harmless(&self) -> bool {
        self.is_known() && self.runtimes().next().is_none()
    }

    /// Each once.
    fn tidy(&mut self) {
        self.runtimes
            .sort_unstable_by_key(|(runtime, since)| (*runtime, *since));
        self.runtimes.dedup_by_key(|(runtime, _)| *runtime);
    }

    /// What is certain of a time before the next program was loaded.
    fn is_certain(&self, time: MonoTime) -> bool {
        let loaded = |until: MonoTime| time.0.saturating_add(LOADED_WITHIN_NS) <= until.0;
        !self.replaced || self.is_told_apart || self.until.is_none_or(loaded)
    }

    fn is_known(&self) -> bool {
        self.program == Program::Known || self.looked.is_some_and(|(time, _)| self.is_certain(time))
    }

    fn runtimes(&self) -> impl Iterator<Item = Runtime> {
        let certain = |since: &Option<MonoTime>| since.is_none_or(|time| self.is_certain(time));
        let kept = self
            .runtimes
            .iter()
            .filter(move |(_, since)| certain(since));
        kept.map(|(runtime, _)| *runtime)
    }

    /// Whether it lasted long enough for anything that a probe would have seen.
    fn may_have_run(&self) -> bool {
        let lasted = |until: MonoTime| until.0.saturating_sub(self.began.0);
        self.until
            .is_none_or(|until| lasted(until) >= READY_AFTER_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Addr, Tid, made};

    const MS: u64 = 1_000_000;
    const PYTHON: &str = "/usr/bin/python3.13";

    fn fork(time: u64, parent: u32, child: u32) -> Control {
        made::fork(time * MS, parent, child)
    }

    fn exec(time: u64, pid: u32) -> Control {
        made::exec(time * MS, pid, "")
    }

    fn map(time: u64, pid: u32, path: &str) -> Control {
        Control::Map {
            time: MonoTime(time * MS),
            pid: Pid(pid),
            start: Addr(0),
            end: Addr(1),
            offset: 0,
            path: path.into(),
        }
    }

    fn exit(time: u64, pid: u32, tid: u32) -> Control {
        Control::Exit {
            time: MonoTime(time * MS),
            pid: Pid(pid),
            tid: Tid(tid),
            process_ended: None,
        }
    }

    fn file(inode: u64) -> FileId {
        FileId { device: 1, inode }
    }

    fn is_empty(silence: &Silence) -> bool {
        silence.runtimes.is_empty() && silence.unknown.is_empty()
    }

    /// A family whose first process, 1, runs Python from 10 on, with a probe since 12.
    fn family(then: &[Control]) -> Household {
        let mut household = Household::default();
        household.begin(Pid(1), []);
        household.control(&exec(10, 1));
        household.control(&map(10, 1, PYTHON));
        household.heard(Pid(1), Runtime::Python, MonoTime(12 * MS));
        then.iter().for_each(|one| household.control(one));
        household
    }

    fn read(household: &mut Household, found: Option<&[Runtime]>) {
        for file in household.unread() {
            household.read(&file, found);
        }
    }

    #[test]
    fn a_fork_of_a_process_with_a_probe_is_seen_and_what_it_executes_is_not() {
        assert!(is_empty(&family(&[fork(20, 1, 2)]).silence()));
        let mut family = family(&[fork(20, 1, 2), exec(30, 2), map(30, 2, PYTHON)]);
        let silent = vec![(Pid(2), Runtime::Python)];
        assert_eq!(family.silence().runtimes, silent);
        family.heard(Pid(2), Runtime::Python, MonoTime(40 * MS));
        assert!(is_empty(&family.silence()));
    }

    #[test]
    fn a_child_that_was_forked_before_the_probe_came_is_not_seen() {
        let silence = family(&[fork(11, 1, 2), exit(90, 2, 2)]).silence();
        assert_eq!(silence.runtimes, [(Pid(2), Runtime::Python)]);
    }

    #[test]
    fn a_probe_speaks_for_its_own_program_and_not_for_the_next_in_the_process() {
        let silence = family(&[exec(50, 1), map(50, 1, PYTHON)]).silence();
        assert_eq!(silence.runtimes, [(Pid(1), Runtime::Python)]);
        let silence = family(&[map(50, 1, "/usr/lib/libnode.so.115")]).silence();
        assert_eq!(silence.runtimes, [(Pid(1), Runtime::Node)]);
    }

    #[test]
    fn a_program_with_a_name_of_its_own_is_looked_into_and_unknown_if_it_cannot_be() {
        let child = [fork(20, 1, 2), exec(30, 2), map(30, 2, "/srv/app")];
        let mut plain = family(&child);
        read(&mut plain, Some(&[]));
        assert!(is_empty(&plain.silence()));
        let mut bundle = family(&child);
        read(&mut bundle, Some(&[Runtime::Node]));
        assert_eq!(bundle.silence().runtimes, [(Pid(2), Runtime::Node)]);
        let mut gone = family(&child);
        read(&mut gone, None);
        assert_eq!(gone.silence().unknown, [Pid(2)]);
    }

    #[test]
    fn a_child_at_which_nobody_looked_may_have_run_anything_unless_it_had_no_time_to() {
        let unseen = [fork(20, 1, 2), exec(30, 2), exit(33, 2, 2)];
        assert_eq!(family(&unseen).silence().unknown, [Pid(2)]);
        let brief = [fork(20, 1, 2), exec(30, 2), exit(31, 2, 2)];
        assert!(is_empty(&family(&brief).silence()));
        // Its grandchild, too, runs what it has executed.
        let forked = [fork(20, 1, 2), exec(30, 2), fork(31, 2, 3), exit(31, 2, 2)];
        assert_eq!(family(&forked).silence().unknown, [Pid(3)]);
    }

    #[test]
    fn a_look_tells_what_a_program_is_unless_another_one_was_being_loaded() {
        let looked = |found: &[Runtime], at: u64, then: &[Control]| {
            let mut family = family(&[fork(20, 1, 2), exec(30, 2)]);
            family.looked(Pid(2), MonoTime(at * MS), file(2), found);
            then.iter().for_each(|one| family.control(one));
            family.silence()
        };
        let ended = [exit(80, 2, 2)];
        assert!(is_empty(&looked(&[], 31, &ended)));
        let silence = looked(&[Runtime::Python], 31, &ended);
        assert_eq!(silence.runtimes, [(Pid(2), Runtime::Python)]);
        // It may have been the next program's.
        let next = [exec(38, 2), exit(39, 2, 2)];
        let silence = looked(&[], 31, &next);
        assert_eq!((silence.unknown, silence.runtimes), (vec![Pid(2)], vec![]));
        let silence = looked(&[Runtime::Python], 31, &next);
        assert_eq!((silence.unknown, silence.runtimes), (vec![Pid(2)], vec![]));
    }

    #[test]
    fn a_look_shortly_before_an_exec_counts_if_the_next_program_is_another_file() {
        let looked = |next: u64| {
            let mut family = family(&[fork(20, 1, 2), exec(30, 2)]);
            family.looked(Pid(2), MonoTime(33 * MS), file(2), &[]);
            family.control(&exec(34, 2));
            family.looked(Pid(2), MonoTime(35 * MS), file(next), &[]);
            family.control(&exit(90, 2, 2));
            family.silence().unknown
        };
        assert_eq!(looked(3), []);
        assert_eq!(looked(2), [Pid(2)]);
    }

    #[test]
    fn the_end_of_a_thread_is_not_that_of_its_process() {
        let mut family = family(&[exit(20, 1, 7)]);
        assert_eq!(family.living(), [Pid(1)]);
        family.heard(Pid(1), Runtime::Python, MonoTime(30 * MS));
        family.control(&exit(40, 1, 1));
        assert!(family.living().is_empty());
        assert!(is_empty(&family.silence()));
    }

    #[test]
    fn what_is_harmless_is_not_kept() {
        let mut family = family(&[]);
        for child in 2..100 {
            family.control(&fork(20, 1, child));
            family.control(&exec(30, child));
            family.control(&map(30, child, "/usr/bin/true"));
            read(&mut family, Some(&[]));
            family.control(&exec(40, child));
            family.control(&map(40, child, "/usr/bin/true"));
            read(&mut family, Some(&[]));
            family.control(&exit(50, child, child));
        }
        // Of each child what it ended as.
        assert!(family.stays.len() < 110, "{}", family.stays.len());
    }
}
