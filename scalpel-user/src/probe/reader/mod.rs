//! Reading one segment: claims, events, names, notes, losses. Everything in it is hostile until it was looked at.

mod counters;
mod words;

use rustc_hash::FxHashMap;
use scalpel_common::segment::lane_state;

use crate::event::{CPU_NOT_MEASURED, Control, Event, Kind, MonoTime, Pid, Source, Tid, flags};
use crate::input::Input;
use crate::probe::EndsTold;
use crate::probe::clock::LaneClock;
use crate::probe::cpu::{self, Estimate};
use crate::probe::functions::Functions;
use crate::probe::lane::{Claim, Cursor, Fill, Numbers, Step};
use crate::probe::layout::lane;
use crate::probe::names::is_probe;
use crate::probe::peer::{self, Family};
use crate::probe::segment::Segment;

/// Events go to the session in batches of at most so many.
const BATCH: u64 = 4096;

/// An idle lane's thread is looked for this often, in ns.
const LOOK_EVERY: u64 = 1_000_000_000;

/// Where inputs go. False = nobody takes them any more.
pub(in crate::probe) type Give<'a> = dyn FnMut(Input) -> bool + 'a;

/// Nobody takes inputs any more.
#[derive(Clone, Copy, Debug)]
pub(in crate::probe) struct Gone;

/// The next number of each thread's events, over all its lanes.
#[derive(Debug, Default)]
pub(in crate::probe) struct Sequences(FxHashMap<(Pid, Tid), u32>);

impl Sequences {
    /// The number of a thread's next event, behind `missing` others.
    fn next(&mut self, thread: (Pid, Tid), missing: u32) -> u32 {
        let next = self.0.entry(thread).or_insert(1);
        let number = next.wrapping_add(missing);
        *next = number.wrapping_add(1);
        number
    }
}

/// What all segments share.
pub(in crate::probe) struct Shared {
    pub(in crate::probe) functions: Functions,
    pub(in crate::probe) sequences: Sequences,
    pub(in crate::probe) clock: LaneClock,
    /// `CLOCK_MONOTONIC` at the start of the pass.
    pub(in crate::probe) now: u64,
    /// For whom somebody else tells when threads end.
    pub(in crate::probe) ends: EndsTold,
    pub(in crate::probe) targets: Vec<Pid>,
}

impl Shared {
    fn end_is_told(&self, pid: Pid) -> bool {
        match self.ends {
            EndsTold::Nobody => false,
            EndsTold::Targets => self.targets.contains(&pid),
            EndsTold::All => true,
        }
    }
}

/// What went wrong in a segment, or was lost; sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::probe) struct Tally {
    pub(in crate::probe) events: u64,
    /// Heads, ids, times, kinds that cannot be.
    pub(in crate::probe) faults: u64,
    /// Lanes of processes that do not belong to the segment.
    pub(in crate::probe) strangers: u64,
    pub(in crate::probe) lost_calls: u64,
    pub(in crate::probe) lost_events: u64,
    /// Calls whose function is known that were lost.
    pub(in crate::probe) charged: u64,
}

/// Who writes a lane.
#[derive(Debug)]
struct Holder {
    claim: Claim,
    /// `None`: it does not belong here, and nothing of it is believed.
    who: Option<(Pid, Tid)>,
    numbers: Numbers,
    last_ns: u64,
    heard: u64,
    looked: u64,
    cpu: Estimate,
    /// Calls per local id that its counters had.
    counted: Vec<u64>,
}

#[derive(Debug, Default)]
struct LaneState {
    cursor: Cursor,
    holder: Option<Holder>,
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
    /// Source of the HELLO: of what says none.
    source: u8,
    counted: Vec<u64>,
    lost: Vec<u64>,
    notes_read: u32,
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
            source,
            counted: Vec::new(),
            lost: Vec::new(),
            notes_read: 0,
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
        self.find_claims(shared, give)?;
        let mut fullest = 0;
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

    /// Opens lanes, so that threads that begin find some; at most as the budget allows.
    pub(in crate::probe) fn make_room(&mut self) {
        let wanted = (self.active.len() as u32 / 2).max(4);
        let mut free = self
            .segment
            .lanes_open()
            .saturating_sub(self.active.len() as u32);
        while free < wanted && self.segment.open_lane().is_ok() {
            free += 1;
        }
        // Without memory ahead the target's own is used: worse for it, but nothing is lost.
        let _backed = self.segment.back_ahead();
    }

    fn find_claims(&mut self, shared: &Shared, give: &mut Give<'_>) -> Result<(), Gone> {
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
                Some(claim) if has_events || claim.is_counters => new.push((claim, index)),
                _ if self.segment.lane_u32(index, lane::STATE) == lane_state::RELEASED => {
                    self.segment.free_lane(index)
                }
                _ => {}
            }
        }
        new.sort_by_key(|(claim, _)| claim.claimed_at);
        for (claim, index) in new {
            self.hold(index, claim, shared, give)?;
        }
        Ok(())
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
        let holder = Holder {
            claim,
            who,
            numbers: Numbers { next: Some(0) },
            last_ns: claimed_ns,
            heard: shared.now,
            looked: shared.now,
            cpu: Estimate::new(claimed_ns),
            counted: Vec::new(),
        };
        if let Some(lane) = self.lanes.get_mut(index as usize) {
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
            Fill::Holds(count) if holder.claim.is_counters || holder.who.is_none() => {
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
                holder.numbers.next = None;
                memory.slots
            }
        };
        let over = fill == 0 && (released || self.has_ended(&mut holder, shared.now));
        if over {
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
        if count > 0
            && shared.ends == EndsTold::Nobody
            && holder.cpu.is_due(shared.now)
            && let Some(cpu_ns) = holder.who.and_then(|(pid, tid)| cpu::read(pid, tid))
        {
            holder.cpu.add(shared.now, cpu_ns);
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
            self.translate(&mut events, holder, shared, give)?;
            send(give, Input::Events(events))?;
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
        let Some((pid, tid)) = holder.who else {
            return Ok(());
        };
        for event in events {
            (event.pid, event.tid) = (pid.0, tid.0);
            let missing = match holder.numbers.step(event.seq) {
                Step::Lost(missing) => missing,
                Step::Back => {
                    self.tally.faults += 1;
                    0
                }
            };
            event.seq = shared.sequences.next((pid, tid), missing);
            let time = shared.clock.ns(event.time).max(holder.last_ns);
            event.time = self.believable(time, shared);
            holder.last_ns = event.time;
            self.mend_kind(event);
            event.cpu_ns = CPU_NOT_MEASURED;
            if shared.ends == EndsTold::Nobody {
                event.cpu_ns = holder.cpu.at(event.time);
                if event.cpu_ns != CPU_NOT_MEASURED {
                    event.flags |= flags::ESTIMATED_CPU;
                }
            }
            if event.func != 0 {
                event.func = self.global(event.func, event.source, shared, give)?;
            }
        }
        Ok(())
    }

    /// A time that lies before now, give or take what passes during a pass.
    fn believable(&mut self, time: u64, shared: &Shared) -> u64 {
        let latest = shared.now.saturating_add(LOOK_EVERY);
        if time > latest {
            self.tally.faults += 1;
        }
        time.min(latest)
    }

    /// A probe may only say what happens in its own language: other kinds and sources become none, which is counted.
    fn mend_kind(&mut self, event: &mut Event) {
        let own = |source: Source| is_probe(source);
        let mut is_wrong = Kind::from_u8(event.kind).is_none();
        if !Source::from_u8(event.source).is_some_and(own) {
            event.source = self.source;
            is_wrong = true;
        }
        let foreign = matches!(
            Kind::from_u8(event.kind),
            Some(Kind::Complete | Kind::Sample | Kind::SwitchIn | Kind::SwitchOut)
        );
        if is_wrong || foreign {
            event.kind = 0;
            self.tally.faults += 1;
        }
    }

    fn has_ended(&self, holder: &mut Holder, now: u64) -> bool {
        if now.saturating_sub(holder.heard.max(holder.looked)) < LOOK_EVERY {
            return false;
        }
        holder.looked = now;
        holder.who.is_none_or(|(pid, tid)| peer::is_gone(pid, tid))
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
        let lost = |field| self.segment.lane_u64(index, field);
        self.gone_calls = self.gone_calls.saturating_add(lost(lane::LOST_CALLS));
        self.gone_events = self.gone_events.saturating_add(lost(lane::LOST_EVENTS));
        self.segment.free_lane(index);
        match holder.who {
            Some((pid, tid)) if !released && !shared.end_is_told(pid) => {
                let time = MonoTime(holder.last_ns + 1);
                send(
                    give,
                    Input::Control(Control::Exit {
                        time,
                        pid,
                        tid,
                        process_ended: None,
                    }),
                )
            }
            _ => Ok(()),
        }
    }

    /// Threads whose end nobody else tells: all of them, when their process is gone.
    pub(in crate::probe) fn is_over(&self) -> bool {
        self.active.is_empty() && !self.family.lives()
    }
}

fn send(give: &mut Give<'_>, input: Input) -> Result<(), Gone> {
    if give(input) { Ok(()) } else { Err(Gone) }
}
