//! A server of many processes: what is too dear is found in one of them, and the others get the rest.
//!
//! A probe goes into the memory of every process that maps its file, so that attaching to fifty takes fifty times as long as
//! attaching to one, and for all that time fifty pay for what the breaker is going to drop.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::super::breaker::{Breaker, PATIENCE};
use super::super::error::KernelError;
use super::super::load::Mechanism;
use super::govern::monotonic_now;
use super::paying::Paying;
use super::shape::{Key, Links, Shape};
use super::{AttachReport, Attachments, LiveGroup, Planned, Steps};
use crate::event::{FuncId, Pid};

/// Fewer processes all get everything at once.
const MANY: usize = 3;
/// How long the processes are compared.
const COMPARED: Duration = Duration::from_millis(100);
/// The trial goes on while functions are dropped, but no longer than this.
const LONGEST_TRIAL: Duration = Duration::from_secs(3);
const JUDGED_EVERY: Duration = Duration::from_millis(50);

impl Attachments {
    /// The process of many that works most now, if one does, and if probes can be tried in one alone.
    pub(super) fn pilot(&self) -> Option<Pid> {
        let is_possible = self.mechanism != Mechanism::Perf && self.options.trust_pid_filter;
        if !is_possible || self.breaker.is_none() || self.targets.len() < MANY {
            return None;
        }
        let before = self.targets.each();
        std::thread::sleep(COMPARED);
        let now = self.targets.each();
        let used = |(pid, before): &(Pid, u64)| {
            let (_, now) = now.iter().find(|(same, _)| same == pid)?;
            Some((now.saturating_sub(*before), *pid))
        };
        let busiest = before.iter().filter_map(used).max();
        // One that does nothing says nothing about the others.
        busiest
            .filter(|(ns, _)| u128::from(*ns) >= self.options.pilot_works.as_nanos())
            .map(|(_, pid)| pid)
    }

    /// Attaches to `pilot` what is to be attached to all, drops what exceeds its budget, and gives the others what remains.
    /// Returns what is left to attach: groups that are of one process anyway, and all if the pilot has ended.
    pub(super) fn attach_to_one_first(
        &mut self,
        pilot: Pid,
        groups: Vec<Planned>,
        report: &mut AttachReport,
        steps: &mut Steps<'_>,
    ) -> Result<Vec<Planned>, KernelError> {
        let (of_all, of_one): (Vec<Planned>, Vec<Planned>) =
            groups.into_iter().partition(|(key, _)| key.pid.is_none());
        let percent = self.options.max_overhead_percent;
        let breaker = std::mem::replace(&mut self.breaker, percent.map(Breaker::new));
        let targets = std::mem::replace(&mut self.targets, Paying::of(&[pilot]));
        let mut trial = AttachReport::default();
        let tried = self.try_in(pilot, &of_all, &mut trial, steps);
        (self.breaker, self.targets) = (breaker, targets);
        if tried.is_err() {
            // It has ended, most likely; what else there is shows when all are attached to.
            let gone: HashSet<FuncId> = trial.bounds.iter().map(|bound| bound.func).collect();
            report.bounds.extend(trial.bounds);
            self.end_trial();
            let mut left: Vec<Planned> = of_all.into_iter().chain(of_one).collect();
            for (_, members) in &mut left {
                members.retain(|member| !gone.contains(&member.func));
            }
            return Ok(left);
        }
        report.attached += trial.attached;
        report.refused.extend(trial.refused);
        report.bounds.extend(trial.bounds);
        // One after the other, so that the breaker sees what each brings.
        for mut group in self.taken_from_trial() {
            let count = group.members.len();
            let key = group.after_trial.take().unwrap_or(group.key);
            let lost = self.renew(vec![(key, group)], monotonic_now());
            report.bounds.extend(lost);
            report.bounds.extend(self.settle());
            steps.forward(count);
        }
        Ok(of_one)
    }

    fn try_in(
        &mut self,
        pilot: Pid,
        groups: &[Planned],
        report: &mut AttachReport,
        steps: &mut Steps<'_>,
    ) -> Result<(), KernelError> {
        for (key, members) in groups {
            let known = self.groups.len();
            // Its children meet the probes, too, where none of our programs runs: a return probe without the program that
            // guards it would do harm. So only entries are tried, and judged as if they had their exits.
            let entries = Key {
                pid: Some(pilot),
                shape: Shape::EntryOnly,
                ..*key
            };
            self.attach_group(entries, members.clone(), report)?;
            for group in self.groups.iter_mut().skip(known) {
                group.after_trial = Some(*key);
            }
            report.bounds.extend(self.settle());
            steps.forward(0);
        }
        let start = Instant::now();
        let mut calm = start;
        while calm.elapsed() < PATIENCE + JUDGED_EVERY && start.elapsed() < LONGEST_TRIAL {
            std::thread::sleep(JUDGED_EVERY);
            let bounds = self.govern(monotonic_now());
            if !bounds.is_empty() {
                calm = Instant::now();
            }
            report.bounds.extend(bounds);
            // Whoever is told takes what the probes say meanwhile.
            steps.forward(0);
        }
        Ok(())
    }

    fn taken_from_trial(&mut self) -> Vec<LiveGroup> {
        self.groups
            .extract_if(.., |group| group.after_trial.is_some())
            .collect()
    }

    fn end_trial(&mut self) {
        let mut links = Links::default();
        for group in self.taken_from_trial() {
            for member in &group.members {
                self.attached.remove(&(member.func, group.key.pid));
            }
            links.absorb(group.links);
        }
        self.close_aside(links);
    }
}
