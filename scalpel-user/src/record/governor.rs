//! Keeps probes in language runtimes within `--max-overhead`: what they write is counted, what an event costs here was
//! measured, and the functions that exceed the budget are named.
//!
//! The same breaker as for kernel probes decides. Must not know how a function is switched off.

use rustc_hash::FxHashSet;
use scalpel_common::wire::transport;

use crate::event::{Event, FuncId, Kind, MonoTime, Pid, Source};
use crate::function::FunctionTable;
use crate::input::{Bound, ProbeWord};
use crate::kernel::breaker::{Breaker, Observation, Verdict, Watched};
use crate::plan::words::Overhead;
use crate::probe;
use crate::target::Process;

use super::cost::TargetCpu;

/// What a runtime and its probe need for an event beside writing it, in ns: `CPython`'s own way to a callback, JavaScript's
/// to the addon (the benches of `probes/python` and `probes/node`).
const HOOK_NS: u64 = 20;

/// What a call costs a program that is watched by `sys.setprofile` and sends frames, in ns (`probes/socket/README.md`).
const FRAMES_CALL_NS: u64 = 3_000;

/// Judgements are so far apart at least, in ns: events come in batches, and a batch that was held up is no burst of calls.
const EVERY: u64 = 500_000_000;

/// Counts and decides.
pub(super) struct Governor {
    breaker: Breaker,
    /// What a call costs its program: it begins and it ends.
    call_ns: u64,
    cpu: TargetCpu,
    pids: Vec<Pid>,
    /// Those of them that send frames, and the functions that ran there.
    senders: Vec<Pid>,
    dear: FxHashSet<u32>,
    /// Begun and resumed calls, by function id.
    hits: Vec<u64>,
    off: Vec<FuncId>,
    judged: Option<MonoTime>,
}

impl Governor {
    /// What was asked for; `None` = probes write as much as there is.
    pub(super) fn of(allowed: Overhead) -> Option<Self> {
        match allowed {
            Overhead::Percent(percent) => Some(Self::new(percent, probe::event_cost_ns()?)),
            Overhead::Off => None,
        }
    }

    /// One that allows so much, where writing an event was measured to take `event_ns`.
    fn new(percent: f64, event_ns: u64) -> Self {
        Self {
            breaker: Breaker::new(percent),
            call_ns: 2 * (event_ns + HOOK_NS),
            cpu: TargetCpu::default(),
            pids: Vec::new(),
            senders: Vec::new(),
            dear: FxHashSet::default(),
            hits: Vec::new(),
            off: Vec::new(),
            judged: None,
        }
    }

    /// A process has a probe: its work is what overhead is measured by.
    pub(super) fn watch(&mut self, word: &ProbeWord) {
        if word.value == u64::from(transport::SOCKET) && !self.senders.contains(&word.pid) {
            self.senders.push(word.pid);
        }
        if !self.pids.contains(&word.pid)
            && let Ok(process) = Process::open(word.pid)
        {
            self.pids.push(word.pid);
            self.cpu.add(&process);
        }
    }

    /// Counts what probes wrote: events of one lane.
    pub(super) fn count(&mut self, events: &[Event]) {
        let is_watched = |event: &Event| self.pids.contains(&Pid(event.pid));
        let Some(first) = events.first().filter(|event| is_watched(event)) else {
            return;
        };
        let is_dear = self.senders.contains(&Pid(first.pid));
        for event in events {
            let begins = event.kind == Kind::Enter as u8 || event.kind == Kind::Resume as u8;
            if !begins || event.source < Source::Python as u8 || event.func > FunctionTable::MOST {
                continue;
            }
            let index = event.func as usize;
            if self.hits.len() <= index {
                self.hits.resize(index + 1, 0);
            }
            if let Some(hits) = self.hits.get_mut(index) {
                *hits += 1;
            }
            if is_dear {
                self.dear.insert(event.func);
            }
        }
    }

    /// The functions that cost more than is allowed, with what the reader is to be told. Each is named once.
    pub(super) fn judge(&mut self, now: MonoTime) -> Vec<Bound> {
        let is_early = |last: MonoTime| now.0.saturating_sub(last.0) < EVERY;
        if self.judged.is_some_and(is_early) {
            return Vec::new();
        }
        self.judged = Some(now);
        self.cpu.look();
        let observation = Observation {
            at: now,
            cpu_ns: Some(self.cpu.used_ns()),
            hits: self.hits.clone(),
            strangers: Vec::new(),
            beside_ns: 0,
        };
        let called = (0u32..).zip(&self.hits).filter(|(_, hits)| **hits > 0);
        let watched: Vec<Watched> = called
            .filter_map(|(number, _)| FuncId::new(number))
            .filter(|func| !self.off.contains(func))
            .map(|func| Watched {
                func,
                cost_ns: match self.dear.contains(&func.get()) {
                    true => FRAMES_CALL_NS,
                    false => self.call_ns,
                },
            })
            .collect();
        let verdicts = self.breaker.observe(observation, &watched);
        self.off.extend(verdicts.iter().map(|verdict| verdict.func));
        verdicts.iter().map(|verdict| bound(verdict, now)).collect()
    }
}

fn bound(verdict: &Verdict, now: MonoTime) -> Bound {
    Bound {
        func: verdict.func,
        since: Some(now),
        reason: format!(
            "over budget: {:.0} calls/s, an estimated {:.1} % of the program's own work; its probe was switched off",
            verdict.calls_per_s, verdict.percent
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(func: u32, source: Source, count: usize) -> Vec<Event> {
        let event = Event {
            func,
            pid: 7,
            source: source as u8,
            kind: Kind::Enter as u8,
            ..Event::default()
        };
        vec![event; count]
    }

    /// A process that does nothing is judged by a twentieth of a processor: 50 ms a second, 5 % of which are 2.5 ms.
    #[test]
    fn the_hottest_go_until_the_rest_is_within_the_budget_and_each_once() {
        let mut governor = Governor::new(5.0, 80);
        governor.pids.push(Pid(7));
        assert!(governor.judge(MonoTime(1)).is_empty());
        for (func, count) in [(3, 100), (7, 200_000), (9, 5_000), (11, 40_000)] {
            governor.count(&calls(func, Source::Python, count));
        }
        let now = MonoTime(1_000_000_001);
        let gone = governor.judge(now);
        let funcs: Vec<u32> = gone.iter().map(|bound| bound.func.get()).collect();
        assert_eq!(funcs, [7, 11]);
        assert!(gone[0].since == Some(now) && gone[0].reason.contains("200000 calls/s"));
        governor.count(&calls(7, Source::Python, 100));
        assert!(governor.judge(MonoTime(2_500_000_001)).is_empty());
    }

    /// 1,000 calls a second are 0.2 ms of a lane's writer, and 3 ms of one that sends frames.
    #[test]
    fn a_call_that_is_told_in_frames_is_a_dear_one() {
        for (how, gone) in [(transport::SEGMENT, 0), (transport::SOCKET, 1)] {
            let mut governor = Governor::new(5.0, 80);
            let pid = Pid(std::process::id());
            governor.watch(&ProbeWord {
                pid,
                source: Source::Python as u8,
                kind: scalpel_common::segment::note_kind::RUNTIME,
                time: MonoTime(1),
                value: how.into(),
                text: "CPython 3.12.1".into(),
            });
            assert_eq!(governor.pids, [pid]);
            // Its work is this test's: what counts here is nobody's.
            governor.cpu = TargetCpu::default();
            governor.judge(MonoTime(1));
            let mut events = calls(3, Source::Python, 1000);
            events.iter_mut().for_each(|event| event.pid = pid.0);
            governor.count(&events);
            assert_eq!(governor.judge(MonoTime(1_000_000_001)).len(), gone, "{how}");
        }
    }

    #[test]
    fn what_the_kernel_sees_is_not_its_business_and_absurd_ids_cost_nothing() {
        let mut governor = Governor::new(5.0, 80);
        governor.pids.push(Pid(7));
        governor.judge(MonoTime(1));
        governor.count(&calls(3, Source::Uprobe, 1_000_000));
        governor.count(&calls(u32::MAX, Source::Node, 10));
        assert!(governor.judge(MonoTime(1_000_000_001)).is_empty());
        assert!(governor.hits.is_empty());
    }
}
