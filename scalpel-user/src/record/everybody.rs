//! A recording of the whole host: samples and changes of all processes in the order of time, and each process looked at
//! when its first sample comes.
//!
//! Nothing is asked of a process that never runs. What one has mapped its `/proc` tells while it lives, and else what the
//! kernel told of it since it was born; where neither does, its samples have no names, and it is said whose they are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::live::Live;
use crate::event::{Control, MonoTime, Pid, Sample, Tid};
use crate::input::Input;

/// Numbers of the address spaces of processes that have executed another program since they were sampled, and of those
/// whose pid another one had before: beyond every pid.
const FIRST_SPACE: u32 = 1 << 30;

/// Processes without names that are told one by one, and that are counted one by one.
const MOST_TOLD: usize = 8;
const MOST_UNREAD: usize = 1 << 12;

/// Processes whose mappings are kept until the end, where their addresses are named: some 2 KiB each.
const MOST_PROCESSES: usize = 1 << 15;

/// Mappings that are kept of a process which nobody needed yet.
const MOST_MAPS: usize = 1 << 10;

/// How long a thread may still be sampled after the kernel told its end, in ns: what it had is given back then.
const MOURNED_NS: u64 = 2_000_000_000;

/// Why there are no names of those beyond.
const TOO_MANY: &str = "too many processes ran to keep what each had mapped";

/// Why there are no names, as a rule.
pub(super) const ENDED: &str = "it ended before it could be looked at";

/// All processes, as far as they were heard of.
pub(super) struct Host {
    own: Pid,
    /// It and the processes that it started.
    ours: FxHashSet<Pid>,
    waiting: Vec<Turn>,
    known: FxHashMap<Pid, Known>,
    /// Threads whose names were told.
    threads: FxHashSet<(Pid, Tid)>,
    /// Pids that stand for an address space already.
    used: FxHashSet<Pid>,
    spaces: u32,
    /// Threads that have ended, in the order of time: they may be sampled while they end.
    ended: VecDeque<(MonoTime, Pid, Tid)>,
    idle: u64,
    own_samples: u64,
    processes: u64,
    unread: BTreeMap<(Pid, String), Unread>,
    /// Samples of those beyond the number that is kept apart.
    unread_others: u64,
}

/// What comes in the order of time.
enum Turn {
    Sample(Sample),
    Control(Control),
}

/// A process that was born, has executed a program or was sampled since the recording began.
#[derive(Clone, Default)]
struct Known {
    name: String,
    /// Whose memory it was born with.
    parent: Option<Pid>,
    /// It has executed a program since: `maps` are all that it has.
    is_program: bool,
    /// What it has mapped since then, as long as nobody needed it.
    maps: Arc<Vec<Control>>,
    /// The number of its address space, once it was sampled.
    space: Option<Pid>,
    /// Why its addresses have no names.
    unread: Option<String>,
    has_ended: bool,
}

/// Samples without names.
struct Unread {
    why: String,
    samples: u64,
}

/// Where processes are looked at.
pub(super) trait Eyes {
    /// Takes over what `pid` has mapped now, as the address space `space`. Its name, or why it cannot be read.
    fn look(&mut self, pid: Pid, space: Pid) -> Result<String, String>;
    /// Takes over a mapping of the address space `space` that the kernel told of. `processes`: who sees the file at its
    /// path, the likeliest first.
    fn told(&mut self, processes: &[Pid], space: Pid, map: &Control);
    /// `to` has what `from` has.
    fn inherit(&mut self, from: Pid, to: Pid);
    /// The name of a thread that is there.
    fn thread(&mut self, pid: Pid, tid: Tid) -> Option<String>;
}

impl Host {
    /// Nobody was heard of yet. `own`: the recorder.
    pub(super) fn new(own: Pid) -> Self {
        Self {
            own,
            ours: FxHashSet::from_iter([own]),
            waiting: Vec::new(),
            known: FxHashMap::default(),
            threads: FxHashSet::default(),
            used: FxHashSet::default(),
            spaces: FIRST_SPACE,
            ended: VecDeque::new(),
            idle: 0,
            own_samples: 0,
            processes: 0,
            unread: BTreeMap::new(),
            unread_others: 0,
        }
    }

    /// Keeps a sample until its turn.
    pub(super) fn sample(&mut self, sample: Sample) {
        let pid = Pid(sample.event.pid);
        if pid == Pid(0) {
            self.idle += 1;
        } else {
            self.waiting.push(Turn::Sample(sample));
        }
    }

    /// Keeps a change until its turn.
    pub(super) fn control(&mut self, control: Control) {
        self.waiting.push(Turn::Control(control));
    }

    /// What is certain to have happened before `until`, in its order.
    pub(super) fn release(&mut self, until: MonoTime, eyes: &mut dyn Eyes) -> Vec<Input> {
        self.waiting.sort_by_key(Turn::time);
        let later = self.changes();
        let ready = self.waiting.partition_point(|turn| turn.time() < until);
        let ready: Vec<Turn> = self.waiting.drain(..ready).collect();
        let mut inputs = Vec::with_capacity(ready.len());
        for turn in ready {
            match turn {
                Turn::Sample(sample) => {
                    let pid = Pid(sample.event.pid);
                    if self.ours.contains(&pid) {
                        self.own_samples += 1;
                        continue;
                    }
                    let time = MonoTime(sample.event.time);
                    let changes = later.get(&pid).is_some_and(|change| *change > time);
                    let tid = Tid(sample.event.tid);
                    self.sampled((pid, tid), time, changes, (&mut *eyes, &mut inputs));
                    inputs.push(Input::Sample(sample));
                }
                Turn::Control(control) => self.changed(control, eyes, &mut inputs),
            }
        }
        self.forget(until);
        inputs
    }

    /// Threads that ended long enough ago.
    fn forget(&mut self, now: MonoTime) {
        let oldest = now.0.saturating_sub(MOURNED_NS);
        while let Some((_, pid, tid)) = self.ended.pop_front_if(|(time, ..)| time.0 < oldest) {
            self.threads.remove(&(pid, tid));
            if pid.0 == tid.0 && self.known.get(&pid).is_some_and(|known| known.has_ended) {
                self.known.remove(&pid);
            }
        }
    }

    /// The last moment in which each process became another one or none, as far as it was told.
    fn changes(&self) -> FxHashMap<Pid, MonoTime> {
        let changes = self.waiting.iter().filter_map(|turn| match turn {
            Turn::Control(Control::Exec { time, pid, .. }) => Some((*pid, *time)),
            Turn::Control(Control::Exit { time, pid, tid, .. }) if pid.0 == tid.0 => {
                Some((*pid, *time))
            }
            _ => None,
        });
        changes.collect()
    }

    /// A process ran. `changes`: it has ended or executed another program by now.
    fn sampled(
        &mut self,
        (pid, tid): (Pid, Tid),
        time: MonoTime,
        changes: bool,
        (eyes, inputs): (&mut dyn Eyes, &mut Vec<Input>),
    ) {
        if self
            .known
            .get(&pid)
            .is_none_or(|known| known.space.is_none())
        {
            self.meet(pid, time, changes, (&mut *eyes, &mut *inputs));
        }
        let Some(known) = self.known.get(&pid) else {
            return;
        };
        if self.threads.insert((pid, tid)) && pid.0 != tid.0 {
            let name = eyes.thread(pid, tid);
            let name = name.unwrap_or_else(|| known.name.clone());
            inputs.push(Input::ThreadName(pid, tid, name));
        }
        if let Some(why) = &known.unread {
            let key = (pid, known.name.clone());
            if self.unread.len() >= MOST_UNREAD && !self.unread.contains_key(&key) {
                self.unread_others += 1;
                return;
            }
            let unread = self.unread.entry(key);
            let new = || Unread {
                why: why.clone(),
                samples: 0,
            };
            unread.or_insert_with(new).samples += 1;
        }
    }

    /// The first sample of a process, or of a program that it has become.
    fn meet(
        &mut self,
        pid: Pid,
        time: MonoTime,
        changes: bool,
        (eyes, inputs): (&mut dyn Eyes, &mut Vec<Input>),
    ) {
        self.processes += u64::from(!self.used.contains(&pid));
        let space = self.space_of(pid);
        let mut known = self.known.get(&pid).cloned().unwrap_or_default();
        let looked = match changes {
            _ if self.used.len() > MOST_PROCESSES => Err(TOO_MANY.into()),
            false => eyes.look(pid, space),
            true => Err(ENDED.into()),
        };
        match looked {
            Ok(name) => known.name = name,
            Err(why) => {
                let told = why != TOO_MANY && self.remember((pid, space), &known, eyes);
                known.unread = (!told).then_some(why);
            }
        }
        if known.name.is_empty() {
            let called = |pid: Pid| eyes.thread(pid, Tid(pid.0));
            let candidates = [(!changes).then_some(pid), known.parent];
            let mut names = candidates.into_iter().flatten().filter_map(called);
            known.name = names.next().unwrap_or_default();
        }
        known.maps = Arc::default();
        known.space = Some(space);
        let (tid, name) = (Tid(pid.0), known.name.clone());
        self.threads.insert((pid, tid));
        if space == pid {
            inputs.push(Input::ThreadName(pid, tid, name));
        } else {
            // Its addresses are told apart from those that the number stood for before, once these have been taken.
            inputs.push(Input::Drained(time));
            inputs.push(Input::Control(Control::Fork {
                time,
                parent: space,
                child: pid,
                tid,
                name,
            }));
        }
        self.known.insert(pid, known);
    }

    /// What the kernel told of a process that cannot be looked at any more; false = not enough.
    fn remember(&self, (pid, space): (Pid, Pid), known: &Known, eyes: &mut dyn Eyes) -> bool {
        if !known.is_program {
            let Some(parent) = known.parent else {
                return false;
            };
            match self.known.get(&parent).and_then(|parent| parent.space) {
                Some(from) => eyes.inherit(from, space),
                None if eyes.look(parent, space).is_err() => return false,
                None => {}
            }
        }
        for map in known.maps.iter() {
            eyes.told(&family(pid, known), space, map);
        }
        true
    }

    fn space_of(&mut self, pid: Pid) -> Pid {
        if self.used.insert(pid) {
            return pid;
        }
        self.spaces = self.spaces.saturating_add(1);
        Pid(self.spaces)
    }

    fn changed(&mut self, control: Control, eyes: &mut dyn Eyes, inputs: &mut Vec<Input>) {
        match &control {
            Control::Fork { parent, child, .. } => {
                let of = self.known.get(parent);
                let born = Known {
                    name: of.map(|of| of.name.clone()).unwrap_or_default(),
                    parent: Some(*parent),
                    // Of a parent that nobody needed yet: the child needs it after its end.
                    maps: of.map(|of| Arc::clone(&of.maps)).unwrap_or_default(),
                    is_program: of.is_some_and(|of| of.is_program && of.space.is_none()),
                    ..Known::default()
                };
                self.known.insert(*child, born);
                if self.ours.contains(parent) {
                    self.ours.insert(*child);
                } else {
                    self.ours.remove(child);
                }
            }
            Control::Exec { pid, path, .. } => {
                let program = Known {
                    name: path.clone(),
                    is_program: true,
                    parent: self.known.get(pid).and_then(|was| was.parent),
                    ..Known::default()
                };
                let was = self.known.insert(*pid, program);
                if was.is_some_and(|was| was.space.is_some()) {
                    self.threads.retain(|(of, _)| of != pid);
                    inputs.push(Input::Drained(control.time()));
                    inputs.push(Input::Control(control));
                }
            }
            Control::Map { pid, .. } => {
                // Of one that nobody heard of its own `/proc` will tell.
                let Some(known) = self.known.get_mut(pid) else {
                    return;
                };
                match known.space {
                    Some(space) if known.unread.is_none() => {
                        eyes.told(&family(*pid, known), space, &control);
                    }
                    None if known.maps.len() < MOST_MAPS => {
                        Arc::make_mut(&mut known.maps).push(control);
                    }
                    _ => {}
                }
            }
            Control::Exit { time, pid, tid, .. } => {
                if let Some(known) = self.known.get_mut(pid).filter(|_| pid.0 == tid.0) {
                    known.has_ended = true;
                }
                self.ended.push_back((*time, *pid, *tid));
                if self.threads.contains(&(*pid, *tid)) {
                    inputs.push(Input::Control(control));
                }
            }
        }
    }

    /// What to say about who was seen and who was not.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "{} processes ran while the host was sampled; left out are {} samples of processors without work, and {} of the \
             recorder itself (pid {})",
            self.processes, self.idle, self.own_samples, self.own
        )];
        let mut unread: Vec<_> = self.unread.iter().collect();
        unread.sort_by_key(|(_, unread)| std::cmp::Reverse(unread.samples));
        for ((pid, name), unread) in unread.iter().take(MOST_TOLD) {
            let name = if name.is_empty() { "?" } else { name };
            notes.push(format!(
                "process {pid} ({name}): {} samples have no names: {}",
                unread.samples, unread.why
            ));
        }
        if let Some(rest) = unread.get(MOST_TOLD..).filter(|rest| !rest.is_empty()) {
            let samples: u64 = rest.iter().map(|(_, unread)| unread.samples).sum();
            notes.push(format!(
                "{} more processes have {} samples without names",
                rest.len(),
                samples + self.unread_others
            ));
        }
        notes
    }
}

/// Who sees files as a process does that may be gone.
fn family(pid: Pid, known: &Known) -> Vec<Pid> {
    std::iter::once(pid).chain(known.parent).collect()
}

impl Turn {
    fn time(&self) -> MonoTime {
        match self {
            Self::Sample(sample) => MonoTime(sample.event.time),
            Self::Control(control) => control.time(),
        }
    }
}

impl Live {
    /// Takes what happened on the host before `until`.
    pub(super) fn release_host(&mut self, until: MonoTime) {
        let Some(host) = &mut self.host else { return };
        for input in host.release(until, &mut self.names) {
            match input {
                Input::Sample(sample) => self.sample(sample),
                other => self.take(other),
            }
        }
    }

    /// The same of all, and what there is to say about it.
    pub(super) fn end_host(&mut self) {
        self.release_host(MonoTime(u64::MAX));
        let notes = self.host.as_ref().map(Host::notes).unwrap_or_default();
        for note in notes {
            self.take(Input::Note(note));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::made;
    use crate::event::{Addr, Event};

    /// Processes that can be looked at, by name; and what was asked and told.
    #[derive(Default)]
    struct Fake {
        there: Vec<(u32, &'static str)>,
        done: Vec<String>,
    }

    impl Eyes for Fake {
        fn look(&mut self, pid: Pid, space: Pid) -> Result<String, String> {
            let found = self.there.iter().find(|(there, _)| *there == pid.0);
            let (_, name) = found.ok_or("gone")?;
            self.done.push(format!("look {pid} as {space}"));
            Ok((*name).to_owned())
        }

        fn told(&mut self, processes: &[Pid], space: Pid, map: &Control) {
            let pid = processes[0];
            let Control::Map { path, .. } = map else {
                panic!("{map:?}")
            };
            self.done.push(format!("{pid} as {space} has {path}"));
        }

        fn inherit(&mut self, from: Pid, to: Pid) {
            self.done.push(format!("{to} as {from}"));
        }

        fn thread(&mut self, pid: Pid, tid: Tid) -> Option<String> {
            let is_there = self.there.iter().any(|(there, _)| *there == pid.0);
            is_there.then(|| format!("thread-{tid}"))
        }
    }

    fn sample(time: u64, pid: u32, tid: u32) -> Sample {
        Sample {
            event: Event {
                time,
                pid,
                tid,
                ..Event::default()
            },
            user: Vec::new(),
            kernel: Vec::new(),
            copy: None,
        }
    }

    fn map(time: u64, pid: u32, path: &str) -> Control {
        Control::Map {
            time: MonoTime(time),
            pid: Pid(pid),
            start: Addr(0x1000),
            end: Addr(0x2000),
            offset: 0,
            path: path.into(),
        }
    }

    fn exit(time: u64, pid: u32) -> Control {
        Control::Exit {
            time: MonoTime(time),
            pid: Pid(pid),
            tid: Tid(pid),
            process_ended: None,
        }
    }

    /// What is done, what a thread is called, and what is said, of a host where `there` can be looked at.
    fn check(
        there: &[(u32, &'static str)],
        samples: &[(u64, u32, u32)],
        controls: Vec<Control>,
        (done, names, notes): (&[&str], &[(u32, &str)], &[&str]),
    ) {
        let mut host = Host::new(Pid(1));
        let mut eyes = Fake {
            there: there.to_vec(),
            done: Vec::new(),
        };
        for &(time, pid, tid) in samples {
            host.sample(sample(time, pid, tid));
        }
        for control in controls {
            host.control(control);
        }
        assert!(host.release(MonoTime(0), &mut eyes).is_empty());
        let mut called = Vec::new();
        let mut sampled = 0;
        for input in host.release(MonoTime(u64::MAX), &mut eyes) {
            match input {
                Input::ThreadName(_, tid, name)
                | Input::Control(Control::Fork { tid, name, .. }) => {
                    called.push((tid.0, name));
                }
                Input::Sample(_) => sampled += 1,
                Input::Drained(_) => {}
                Input::Control(Control::Exec { .. } | Control::Exit { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        let apart = samples.iter().filter(|(_, pid, _)| *pid < 2).count();
        assert_eq!(sampled, samples.len() - apart);
        assert_eq!(eyes.done, done);
        let names: Vec<_> = names
            .iter()
            .map(|(tid, name)| (*tid, (*name).to_owned()))
            .collect();
        assert_eq!(called, names);
        let told = host.notes();
        assert_eq!(told.len(), notes.len(), "{told:?}");
        for (told, part) in told.iter().zip(notes) {
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn a_process_is_looked_at_once_and_its_threads_are_named() {
        let samples = [(5, 7, 8), (6, 7, 7), (9, 7, 8), (2, 0, 0), (3, 1, 1)];
        let told = "1 processes ran while the host was sampled; left out are 1 samples of processors without work, and 1 of";
        let expect: (&[&str], &[(u32, &str)], &[&str]) =
            (&["look 7 as 7"], &[(7, "server"), (8, "thread-8")], &[told]);
        check(&[(7, "server"), (9, "idle")], &samples, Vec::new(), expect);
    }

    #[test]
    fn one_that_has_ended_is_known_by_what_the_kernel_told() {
        let born = || {
            vec![
                made::fork(1, 5, 7),
                made::exec(2, 7, "ls"),
                map(3, 7, "/bin/ls"),
                exit(9, 7),
            ]
        };
        let expect: (&[&str], &[(u32, &str)], &[&str]) =
            (&["7 as 7 has /bin/ls"], &[(7, "ls")], &["1 processes"]);
        check(&[(5, "sh")], &[(4, 7, 7)], born(), expect);
        // Its number is another's by now.
        check(&[(7, "other")], &[(4, 7, 7)], born(), expect);
    }

    #[test]
    fn a_child_without_a_program_of_its_own_has_what_its_parent_has() {
        let born = || vec![made::fork(1, 5, 7), exit(9, 7)];
        let samples = [(4, 7, 7)];
        let expect: (&[&str], &[(u32, &str)], &[&str]) =
            (&["look 5 as 7"], &[(7, "thread-5")], &["1 processes"]);
        check(&[(5, "sh")], &samples, born(), expect);
        let samples = [(1, 5, 5), (4, 7, 7)];
        let expect: (&[&str], &[(u32, &str)], &[&str]) = (
            &["look 5 as 5", "7 as 5"],
            &[(5, "sh"), (7, "sh")],
            &["2 processes"],
        );
        let born = vec![made::fork(2, 5, 7), exit(9, 7)];
        check(&[(5, "sh")], &samples, born, expect);
    }

    #[test]
    fn one_of_which_nobody_can_tell_is_named_with_its_samples() {
        let unknown = "process 7 (?): 2 samples have no names: it ended";
        let expect: (&[&str], &[(u32, &str)], &[&str]) =
            (&[], &[(7, "")], &["1 processes", unknown]);
        let born = vec![made::fork(1, 5, 7), exit(9, 7)];
        check(&[], &[(4, 7, 7), (5, 7, 7)], born, expect);
    }

    #[test]
    fn a_process_is_sampled_while_it_ends() {
        let mut host = Host::new(Pid(1));
        let mut eyes = Fake {
            there: vec![(7, "server")],
            done: Vec::new(),
        };
        host.sample(sample(1, 7, 7));
        host.release(MonoTime(2), &mut eyes);
        eyes.there.clear();
        host.control(exit(3, 7));
        host.sample(sample(4, 7, 7));
        let told = host.release(MonoTime(5), &mut eyes);
        assert!(
            matches!(told[..], [Input::Control(_), Input::Sample(_)]),
            "{told:?}"
        );
        assert_eq!(eyes.done, ["look 7 as 7"]);
        assert_eq!(host.notes().len(), 1);
        // What comes later under this number is another one.
        host.release(MonoTime(5 + MOURNED_NS), &mut eyes);
        assert!(host.known.is_empty() && host.threads.is_empty());
    }

    #[test]
    fn what_the_recorder_starts_is_its_own() {
        let controls = vec![made::fork(1, 1, 7), made::exec(2, 7, "reader")];
        let expect: (&[&str], &[(u32, &str)], &[&str]) = (&[], &[], &["0 processes ran"]);
        check(&[(7, "reader")], &[], controls.clone(), expect);
        let mut host = Host::new(Pid(1));
        let mut eyes = Fake::default();
        controls.into_iter().for_each(|one| host.control(one));
        host.sample(sample(3, 7, 7));
        assert!(host.release(MonoTime(9), &mut eyes).is_empty());
        assert_eq!(host.own_samples, 1);
    }

    #[test]
    fn programs_of_one_process_do_not_share_addresses() {
        let samples = [(1, 7, 7), (5, 7, 7)];
        let controls = vec![made::exec(3, 7, "ls"), map(4, 7, "/bin/ls"), exit(9, 7)];
        let apart = FIRST_SPACE + 1;
        let done = format!("7 as {apart} has /bin/ls");
        let unknown = "process 7 (?): 1 samples have no names: it ended";
        let expect: (&[&str], &[(u32, &str)], &[&str]) =
            (&[&done], &[(7, ""), (7, "ls")], &["1 processes", unknown]);
        check(&[], &samples, controls, expect);
    }
}
