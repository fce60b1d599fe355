//! Reading one segment: claims, events, names, notes, losses. Everything in it is hostile until it was looked at.

mod counters;
mod inherited;
mod room;
mod words;

use rustc_hash::FxHashMap;
use scalpel_common::segment::lane_state;

use crate::event::Event;
use crate::input::Input;
use crate::probe::lane::{Claim, Cursor, Fill};
use crate::probe::layout::lane;
use crate::probe::peer::{self, Family};
use crate::probe::segment::Segment;
use crate::probe::shared::{Give, Gone, Shared, Tally, ended, send};
use crate::probe::writer::Writer;

pub(in crate::probe) use inherited::Left;
use inherited::{Before, Inherited};

/// Events go to the session in batches of at most so many.
const BATCH: u64 = 4096;

/// An idle lane's thread is looked for this often, in ns.
const LOOK_EVERY: u64 = 1_000_000_000;

/// Who writes a lane.
#[derive(Debug)]
struct Holder {
    claim: Claim,
    /// `None`: it does not belong here, and nothing of it is believed.
    writer: Option<Writer>,
    heard: u64,
    looked: u64,
    /// Calls per local id that its counters had.
    counted: Vec<u64>,
    /// Lost calls and events that its entry counted when it changed hands.
    lost_before: (u64, u64),
    /// It may still tell of calls that were lost before it changed hands.
    untold_before: bool,
}

#[derive(Debug, Default)]
struct LaneState {
    cursor: Cursor,
    holder: Option<Holder>,
    /// It changed hands with its segment, and its holder was not looked at since.
    inherited: Option<Inherited>,
}

/// One segment and what is known of it.
#[derive(Debug)]
pub(in crate::probe) struct Reader {
    pub(in crate::probe) segment: Segment,
    pub(in crate::probe) family: Family,
    pub(in crate::probe) tally: Tally,
    lanes: Vec<LaneState>,
    /// Held lanes in the order of their claims: what a thread wrote on its first lane came before what is on its second.
    active: Vec<u32>,
    /// Global id and source of each local id; 0 = not looked up yet.
    global: Vec<(u32, u8)>,
    /// How many functions of generated code had the same description so far, by a hash of it.
    twins: FxHashMap<u64, u32>,
    /// Source of the HELLO: of what says none.
    source: u8,
    counted: Vec<u64>,
    lost: Vec<u64>,
    notes_read: u32,
    notes_inherited: u32,
    before: Before,
    /// It was told that functions may have run of which nothing is known.
    told_unseen: bool,
    demand: room::Demand,
    /// Sums of lanes that changed hands.
    gone_calls: u64,
    gone_events: u64,
}

impl Reader {
    pub(in crate::probe) fn new(segment: Segment, family: Family, source: u8) -> Self {
        Self {
            segment,
            family,
            tally: Tally::default(),
            lanes: Vec::new(),
            active: Vec::new(),
            global: Vec::new(),
            twins: FxHashMap::default(),
            source,
            counted: Vec::new(),
            lost: Vec::new(),
            notes_read: 0,
            notes_inherited: 0,
            before: Before::default(),
            told_unseen: false,
            demand: room::Demand::default(),
            gone_calls: 0,
            gone_events: 0,
        }
    }

    /// Reads all that is new. Tells how full the fullest lane was, in 1/256.
    pub(in crate::probe) fn pass(
        &mut self,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<u64, Gone> {
        // Where threads begin others will: the next pass comes soon.
        let mut fullest = u64::from(self.find_claims(shared, give)?);
        for index in std::mem::take(&mut self.active) {
            let (held, fill) = self.drain(index, shared, give)?;
            fullest = fullest.max(fill);
            if held {
                self.active.push(index);
            }
        }
        self.notes(shared, give)?;
        Ok(fullest)
    }

    /// Switches off what is to write nothing.
    pub(in crate::probe) fn obey(&self, shared: &Shared) {
        let off = (0u32..)
            .zip(&self.global)
            .filter(|(_, (global, _))| shared.off.contains(global));
        let locals: Vec<u32> = off.map(|(local, _)| local).collect();
        if !locals.is_empty() {
            self.segment.switch_off(&locals);
        }
    }

    /// Whether there were any.
    fn find_claims(&mut self, shared: &Shared, give: &mut Give<'_>) -> Result<bool, Gone> {
        let open = self.segment.lanes_open();
        self.lanes.resize_with(open as usize, LaneState::default);
        let mut new = Vec::new();
        for index in 0..open {
            let Some(state) = self
                .lanes
                .get(index as usize)
                .filter(|lane| lane.holder.is_none())
            else {
                continue;
            };
            if !matches!(
                self.segment.lane_u32(index, lane::STATE),
                lane_state::CLAIMED | lane_state::RELEASED
            ) {
                continue;
            }
            let slots = self
                .segment
                .lane_memory(index)
                .map_or(1, |memory| memory.slots);
            let has_events = state.cursor.fill(&self.segment, index, slots) != Fill::Holds(0);
            // What a claim says is whole when there are events behind it.
            match Claim::read(&self.segment, index) {
                Some(claim) if has_events || claim.is_counters || state.inherited.is_some() => {
                    new.push((claim, index));
                }
                _ if self.segment.lane_u32(index, lane::STATE) == lane_state::RELEASED => {
                    self.segment.free_lane(index)
                }
                _ => {}
            }
        }
        new.sort_by_key(|(claim, _)| claim.claimed_at);
        let found = !new.is_empty();
        for (claim, index) in new {
            self.hold(index, claim, shared, give)?;
        }
        Ok(found)
    }

    fn hold(
        &mut self,
        index: u32,
        claim: Claim,
        shared: &Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let who = self.family.outside(claim.pid, claim.tid);
        self.tally.strangers += u64::from(who.is_none());
        if let Some((pid, tid)) = who
            && let Some(name) = peer::thread_name(pid, tid)
        {
            send(give, Input::ThreadName(pid, tid, name))?;
        }
        let claimed_ns = shared.clock.ns(claim.claimed_at).min(shared.now);
        let mut holder = Holder {
            claim,
            writer: who.map(|who| Writer::new(who, claimed_ns)),
            heard: shared.now,
            looked: shared.now,
            counted: Vec::new(),
            lost_before: (0, 0),
            untold_before: false,
        };
        if let Some(lane) = self.lanes.get_mut(index as usize) {
            if let Some(inherited) = lane.inherited.take() {
                holder.inherit(inherited);
            }
            lane.holder = Some(holder);
            self.active.push(index);
        }
        Ok(())
    }

    /// Reads one lane. False = it has no holder any more.
    fn drain(
        &mut self,
        index: u32,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(bool, u64), Gone> {
        // Before its head: what is released has its last word.
        let released = self.segment.lane_u32(index, lane::STATE) == lane_state::RELEASED;
        let Some(memory) = self.segment.lane_memory(index) else {
            return Ok((false, 0));
        };
        let Some(mut state) = self.lanes.get_mut(index as usize).map(std::mem::take) else {
            return Ok((false, 0));
        };
        let Some(mut holder) = state.holder.take() else {
            return Ok((false, 0));
        };
        let fill = match state.cursor.fill(&self.segment, index, memory.slots) {
            Fill::Holds(count) if holder.claim.is_counters || holder.writer.is_none() => {
                state.cursor.skip(&self.segment, index);
                count
            }
            Fill::Holds(count) => {
                self.read(index, count, &mut state.cursor, &mut holder, shared, give)?;
                count
            }
            Fill::Absurd => {
                self.tally.faults += 1;
                state.cursor.skip(&self.segment, index);
                holder.writer.iter_mut().for_each(Writer::expect_anything);
                memory.slots
            }
        };
        let over = fill == 0 && (released || self.has_ended(&mut holder, shared.now));
        if over {
            // What it has counted since the last look.
            let last = self.segment.last_function();
            self.counts_of(index, &mut holder, last, shared, give)?;
            self.let_go(index, &holder, released, shared, give)?;
        } else {
            state.holder = Some(holder);
        }
        if let Some(place) = self.lanes.get_mut(index as usize) {
            *place = state;
        }
        Ok((!over, fill * 256 / memory.slots))
    }

    fn read(
        &mut self,
        index: u32,
        count: u64,
        cursor: &mut Cursor,
        holder: &mut Holder,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let Some(memory) = self.segment.lane_memory(index) else {
            return Ok(());
        };
        if count > 0 {
            holder
                .writer
                .iter_mut()
                .for_each(|writer| writer.look(shared));
        }
        let mut left = count;
        while left > 0 {
            let some = left.min(BATCH);
            let mut events = Vec::with_capacity(some as usize);
            cursor.take(
                &self.segment,
                index,
                (memory.at, memory.slots),
                some,
                &mut events,
            );
            left -= some;
            holder.heard = shared.now;
            self.tally.events += some;
            let old_loss = holder.old_loss(&events);
            let after = old_loss.map(|at| (at, events.remove(at)));
            let (before, rest) = events.split_at_mut(after.map_or(0, |(at, _)| at));
            self.translate(before, holder, shared, give)?;
            if let (Some((_, loss)), Some(writer)) = (after, &mut holder.writer) {
                writer.pass_over(loss.seq, shared);
            }
            self.translate(rest, holder, shared, give)?;
            if !events.is_empty() {
                send(give, Input::Events(events))?;
            }
        }
        Ok(())
    }

    /// From what the probe wrote to what the session reads.
    fn translate(
        &mut self,
        events: &mut [Event],
        holder: &mut Holder,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let Some(writer) = &mut holder.writer else {
            return Ok(());
        };
        for event in events {
            let time_ns = shared.clock.ns(event.time);
            writer.mend(event, time_ns, self.source, shared, &mut self.tally);
            if event.func != 0 {
                event.func = self.global(event.func, event.source, shared, give)?;
            }
        }
        Ok(())
    }

    fn has_ended(&self, holder: &mut Holder, now: u64) -> bool {
        if now.saturating_sub(holder.heard.max(holder.looked)) < LOOK_EVERY {
            return false;
        }
        holder.looked = now;
        holder
            .writer
            .as_ref()
            .is_none_or(|writer| peer::is_gone(writer.who.0, writer.who.1))
    }

    /// The lane's holder is done with it, or dead.
    fn let_go(
        &mut self,
        index: u32,
        holder: &Holder,
        released: bool,
        shared: &Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let (calls, events) = self.lost_on(index, holder);
        self.gone_calls = self.gone_calls.saturating_add(calls);
        self.gone_events = self.gone_events.saturating_add(events);
        if holder.claim.is_counters {
            self.segment.clear_counters(index);
        }
        self.segment.free_lane(index);
        match &holder.writer {
            Some(writer) if !released && !shared.end_is_told(writer.who.0) => {
                send(give, ended(writer.who, writer.last_ns))
            }
            _ => Ok(()),
        }
    }

    /// Calls and events that a lane's holder has lost.
    fn lost_on(&self, index: u32, holder: &Holder) -> (u64, u64) {
        let lost = |field| self.segment.lane_u64(index, field);
        holder.lost_since((lost(lane::LOST_CALLS), lost(lane::LOST_EVENTS)))
    }

    /// Threads whose end nobody else tells: all of them, when their process is gone.
    pub(in crate::probe) fn is_over(&self) -> bool {
        self.active.is_empty() && !self.family.lives()
    }
}
