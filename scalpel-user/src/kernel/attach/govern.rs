//! The breaker's hands: reads counters, asks [`Breaker`](super::Breaker) and drops what it names.

use std::collections::HashSet;
use std::thread::ScopedJoinHandle;

use super::super::breaker::{Observation, Verdict, Watched};
use super::super::error::KernelError;
use super::super::load::Mechanism;
use super::super::marks::CountMarks;
use super::place::Failure;
use super::shape::{Key, Links, Member};
use super::{Attachments, LiveGroup};
use crate::event::{FuncId, MonoTime};
use crate::input::Bound;

impl Attachments {
    /// Looks at the hit counters and drops what exceeds the budget, hottest first. To be called about every 100 ms.
    pub fn govern(&mut self, now: MonoTime) -> Vec<Bound> {
        let Some(mut breaker) = self.breaker.take() else {
            return Vec::new();
        };
        let watched = self.watched();
        let seen = self.observation(now, &watched);
        let verdicts = breaker.observe(seen, &watched);
        self.breaker = Some(breaker);
        let mut bounds: Vec<Bound> = verdicts
            .iter()
            .map(|verdict| over_budget_bound(verdict, now))
            .collect();
        let funcs: HashSet<FuncId> = verdicts.iter().map(|verdict| verdict.func).collect();
        bounds.extend(self.drop_functions(&funcs, now));
        bounds
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
    pub fn drop_functions(&mut self, funcs: &HashSet<FuncId>, now: MonoTime) -> Vec<Bound> {
        let mut given_up = Vec::new();
        if funcs.is_empty() {
            return given_up;
        }
        for &func in funcs {
            self.mark(|marks| marks.going(func));
        }
        let affected = |group: &mut LiveGroup| {
            group
                .members
                .iter()
                .any(|member| funcs.contains(&member.func))
        };
        let groups: Vec<LiveGroup> = self.groups.extract_if(.., affected).collect();
        given_up.extend(self.regroup(groups, funcs, now));
        self.attached.retain(|(func, _)| !funcs.contains(func));
        given_up
    }

    fn regroup(
        &mut self,
        mut groups: Vec<LiveGroup>,
        funcs: &HashSet<FuncId>,
        now: MonoTime,
    ) -> Vec<Bound> {
        for group in &mut groups {
            group.members.retain(|member| !funcs.contains(&member.func));
        }
        if self.mechanism == Mechanism::Perf {
            for mut group in groups {
                let gone = group.links.take(funcs);
                self.close_aside(gone);
                self.keep(group);
            }
            return Vec::new();
        }
        let groups = groups.into_iter().map(|group| (group.key, group));
        self.renew(groups.collect(), now)
    }

    /// Attaches groups anew, each as the key says that stands with it. The functions of those that could not be are returned.
    pub(super) fn renew(&mut self, groups: Vec<(Key, LiveGroup)>, now: MonoTime) -> Vec<Bound> {
        self.generation += 1;
        let renewed = self.links_of(&groups);
        self.mark(CountMarks::replaced);
        let mut given_up = Vec::new();
        for ((key, mut group), links) in groups.into_iter().zip(renewed) {
            match links {
                Ok(links) => {
                    for member in &group.members {
                        self.attached.remove(&(member.func, group.key.pid));
                        self.attached.insert((member.func, key.pid));
                    }
                    group.key = key;
                    let old = std::mem::replace(&mut group.links, links);
                    self.keep(group);
                    self.close_aside(old);
                }
                Err(failure) => {
                    self.close_aside(std::mem::take(&mut group.links));
                    given_up.extend(self.give_up(&group, &failure.into_reason(), now));
                }
            }
        }
        given_up
    }

    /// New links for groups that have no member in common, at once: each waits for the target's memory and for a processor
    /// beside a program that is busy, and all the while too much is probed.
    fn links_of(&self, groups: &[(Key, LiveGroup)]) -> Vec<Result<Links, Failure>> {
        let anew = |(key, group): &(Key, LiveGroup)| self.links_for(*key, &group.members);
        std::thread::scope(|scope| {
            let begin = |group| scope.spawn(move || anew(group));
            let begun: Vec<_> = groups.iter().map(begin).collect();
            let panicked = |_panic| Err(Failure::Members(Vec::new()));
            let links = begun.into_iter().map(ScopedJoinHandle::join);
            links.map(|one| one.unwrap_or_else(panicked)).collect()
        })
    }

    /// Tells counting programs. Should that fail, calls that were open are timed up to when their caller ends: the kernel
    /// refuses no write to an array that it let us make.
    fn mark(&self, tell: impl FnOnce(&CountMarks) -> Result<(), KernelError>) {
        if let Some(marks) = &self.marks {
            let told = tell(marks);
            debug_assert!(told.is_ok(), "{told:?}");
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
    pub(super) fn close_aside(&mut self, links: Links) {
        self.closing.retain(|thread| !thread.is_finished());
        if links.len() > 0 {
            self.closing.push(std::thread::spawn(move || links.close()));
        }
    }

    /// With a breaker, watches the group that just went in for a moment.
    pub(super) fn settle(&mut self) -> Vec<Bound> {
        if self.breaker.is_none() {
            return Vec::new();
        }
        let mut bounds = self.govern(monotonic_now());
        std::thread::sleep(self.options.settle);
        bounds.extend(self.govern(monotonic_now()));
        bounds
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

    fn observation(&mut self, now: MonoTime, watched: &[Watched]) -> Observation {
        let highest = watched
            .iter()
            .map(|one| one.func.get() as usize)
            .max()
            .unwrap_or(0);
        let (mut hits, mut strangers) = (vec![0; highest + 1], vec![0; highest + 1]);
        for one in watched {
            let index = one.func.get() as usize;
            if let (Some(hits), Some(strangers)) = (hits.get_mut(index), strangers.get_mut(index)) {
                (*hits, *strangers) = (self.hits.of(one.func), self.hits.of_strangers(one.func));
            }
        }
        Observation {
            at: now,
            cpu_ns: self.targets.look(),
            hits,
            strangers,
            beside_ns: self.beside_ns,
        }
    }
}

fn over_budget_bound(verdict: &Verdict, now: MonoTime) -> Bound {
    let whose = if verdict.by_strangers {
        ", most of them by other processes of the same program"
    } else {
        ""
    };
    let reason = format!(
        "over budget: {:.0} calls/s, an estimated {:.1} % of the target's own work{whose}",
        verdict.calls_per_s, verdict.percent
    );
    Bound {
        func: verdict.func,
        since: Some(now),
        reason,
    }
}

pub(super) fn monotonic_now() -> MonoTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    MonoTime(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
