//! Counters of a segment: calls that were counted instead of written, and what was lost.

use scalpel_common::segment::{CPU_NOT_READ, note_kind, unseen};

use super::{Holder, LaneState, Reader};
use crate::event::{CPU_NOT_MEASURED, Event, FuncId, Kind, MonoTime, Pid, Tid};
use crate::input::{Input, ProbeWord};
use crate::probe::layout::{function, header};
use crate::probe::shared::{Give, Gone, Shared, send};

impl Reader {
    /// Calls counted since the last time, as events of the process's main thread or of the isolate that counted.
    pub(in crate::probe) fn counts(
        &mut self,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let last = self.segment.last_function();
        self.counted.resize(last as usize + 1, 0);
        let pid = self.family.owner().pid();
        let mut found = Vec::new();
        for (local, counted) in (0..=last).zip(&mut self.counted) {
            let calls = self.segment.function_u64(local, function::CALLS);
            let more = calls.saturating_sub(std::mem::replace(counted, calls));
            if more > 0 && local > 0 {
                found.push((local, more));
            }
        }
        self.tell_counts(&found, (pid, Tid(pid.0)), 0, shared, give)?;
        for index in self.active.clone() {
            self.isolate_counts(index, last, shared, give)?;
        }
        Ok(())
    }

    fn isolate_counts(
        &mut self,
        index: u32,
        last: u32,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let place = |lanes: &mut Vec<LaneState>| lanes.get_mut(index as usize)?.holder.take();
        let Some(mut holder) = place(&mut self.lanes) else {
            return Ok(());
        };
        let told = self.counts_of(index, &mut holder, last, shared, give);
        if let Some(lane) = self.lanes.get_mut(index as usize) {
            lane.holder = Some(holder);
        }
        told
    }

    /// What the holder of a lane has counted since the last time, if it counts there.
    pub(super) fn counts_of(
        &mut self,
        index: u32,
        holder: &mut Holder,
        last: u32,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let Some(memory) = self.segment.lane_memory(index) else {
            return Ok(());
        };
        let who = holder.writer.as_ref().map(|writer| writer.who);
        let Some(who) = who.filter(|_| holder.claim.is_counters) else {
            return Ok(());
        };
        let source = holder.claim.source;
        holder
            .counted
            .resize((u64::from(last) + 1).min(memory.slots * 8) as usize, 0);
        let mut found = Vec::new();
        for (local, counted) in (0u32..).zip(&mut holder.counted) {
            let calls = whole(self.segment.memory.u64(memory.at + u64::from(local) * 8));
            let more = calls.saturating_sub(*counted);
            if more > 0 && local > 0 {
                *counted = calls;
                found.push((local, more));
            }
        }
        self.tell_counts(&found, who, source, shared, give)
    }

    fn tell_counts(
        &mut self,
        found: &[(u32, u64)],
        who: (Pid, Tid),
        source: u8,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let mut events = Vec::with_capacity(found.len());
        for &(local, calls) in found {
            let func = self.global(local, source, shared, give)?;
            let source = self
                .global
                .get(local as usize)
                .map_or(self.source, |&(_, source)| source);
            events.push(Event {
                time: shared.now,
                cpu_ns: CPU_NOT_MEASURED,
                pid: who.0.0,
                tid: who.1.0,
                func,
                seq: shared.sequences.next(who, 0),
                value: calls,
                kind: Kind::Count as u8,
                source,
                cpu: CPU_NOT_READ,
                ..Event::default()
            });
        }
        if events.is_empty() {
            Ok(())
        } else {
            send(give, Input::Events(events))
        }
    }

    /// Brings the sums of what was lost up to date.
    pub(in crate::probe) fn losses(
        &mut self,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let last = self.segment.last_function();
        self.lost.resize(last as usize + 1, 0);
        for local in 1..=last {
            let lost = self.segment.function_u64(local, function::LOST);
            let more = match self.lost.get_mut(local as usize) {
                Some(known) => lost.saturating_sub(std::mem::replace(known, lost)),
                None => 0,
            };
            if more > 0 {
                self.tally.charged = self.tally.charged.saturating_add(more);
                let id = self.global(local, 0, shared, give)?;
                if let Some(func) = FuncId::new(id) {
                    shared.functions.lose(func, more);
                }
            }
        }
        let word = |at| self.segment.memory.u64(at);
        let (mut calls, mut events) = (self.gone_calls, self.gone_events);
        for &index in &self.active {
            let holder = self
                .lanes
                .get(index as usize)
                .and_then(|lane| lane.holder.as_ref());
            let (lost_calls, lost_events) =
                holder.map_or((0, 0), |holder| self.lost_on(index, holder));
            calls = calls.saturating_add(lost_calls);
            events = events.saturating_add(lost_events);
        }
        let since = |at, before| word(at).saturating_sub(before);
        calls = calls.saturating_add(since(header::CALLS_WITHOUT_LANE, self.before.without_lane));
        self.tally.lost_calls = calls
            .max(self.tally.charged)
            .saturating_add(since(header::CALLS_PAST_LEASE, self.before.past_lease));
        self.tally.lost_events = events;
        let past_lease = since(header::CALLS_PAST_LEASE, self.before.past_lease);
        let is_unseen = past_lease > 0 || self.refusals() != (0, 0);
        if is_unseen && !std::mem::replace(&mut self.told_unseen, true) {
            send(give, Input::Probe(self.unseen(shared.now)))?;
        }
        Ok(())
    }

    /// Nobody knows of which functions calls were lost.
    fn unseen(&self, now: u64) -> ProbeWord {
        ProbeWord {
            pid: self.family.owner().pid(),
            source: self.source,
            kind: note_kind::UNSEEN,
            time: MonoTime(now),
            value: unseen::UNWATCHED,
            text: String::new(),
        }
    }

    /// What could not be named, for the reader of the result.
    pub(in crate::probe) fn refusals(&self) -> (u64, u64) {
        let word = |at| self.segment.memory.u64(at);
        (word(header::FUNCTIONS_REFUSED), word(header::NAMES_REFUSED))
    }
}

/// A count that JavaScript keeps as a number with a fraction: anything that is no count is none.
pub(super) fn whole(bits: u64) -> u64 {
    let number = f64::from_bits(bits);
    let is_count = number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number);
    if is_count { number as u64 } else { 0 }
}
