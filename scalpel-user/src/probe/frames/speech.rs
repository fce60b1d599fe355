//! What the frames of one connection mean. No socket and no clock of its own; every number is a stranger's.

use rustc_hash::{FxHashMap, FxHashSet};
use scalpel_common::segment::{CPU_NOT_READ, NOTE_TEXT, note_kind};

use super::{Known, LAG, MOST_IDS, MOST_THREADS};
use crate::event::{CPU_NOT_MEASURED, Event, FuncId, Kind, MonoTime, Tid};
use crate::function::FunctionInfo;
use crate::input::{Input, ProbeWord};
use crate::probe::names::{self, NameRecord};
use crate::probe::peer::{self, Family};
use crate::probe::shared::{Give, Gone, Shared, Tally, send};
use crate::probe::wire::Frame;
use crate::probe::writer::Writer;

/// What a frame is answered with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Nothing,
    /// Local id, global id; 0 = refused.
    Acknowledge(Vec<(u32, u32)>),
    /// It was the last one.
    Bye,
    /// It makes no sense here, and why.
    Wrong(&'static str),
}

/// A function that the peer has a number for.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Global id.
    id: u32,
    source: u8,
    calls: u64,
    lost: u64,
}

/// What one connection has said so far.
pub(super) struct Speech {
    family: Family,
    source: u8,
    lanes: FxHashMap<u32, Writer>,
    /// By process-local id.
    functions: FxHashMap<u32, Counted>,
    /// Local ids that the peer was told to leave out, and how many functions it had and were off when that was looked at.
    off: FxHashSet<u32>,
    off_among: (usize, usize),
    pub(super) tally: Tally,
}

impl Speech {
    pub(super) fn new(family: Family, source: u8) -> Self {
        Self {
            family,
            source,
            lanes: FxHashMap::default(),
            functions: FxHashMap::default(),
            off: FxHashSet::default(),
            off_among: (0, 0),
            tally: Tally::default(),
        }
    }

    /// Local ids of functions that are off and of which the peer does not know it yet.
    pub(super) fn newly_off(&mut self, shared: &Shared) -> Vec<u32> {
        let among = (self.functions.len(), shared.off.len());
        if shared.off.is_empty() || std::mem::replace(&mut self.off_among, among) == among {
            return Vec::new();
        }
        let is_off = |counted: &Counted| shared.off.contains(&counted.id);
        let all = self.functions.iter().filter(|(_, counted)| is_off(counted));
        let mut new: Vec<u32> = all
            .map(|(local, _)| *local)
            .filter(|local| !self.off.contains(local))
            .collect();
        new.sort_unstable();
        self.off.extend(&new);
        new
    }

    /// Takes one frame.
    pub(super) fn hear(
        &mut self,
        frame: Frame,
        known: &mut Known,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<Reply, Gone> {
        match frame {
            Frame::Hello(_) => return Ok(Reply::Wrong("it said HELLO twice")),
            Frame::Intern(records) => {
                return Ok(Reply::Acknowledge(
                    self.intern(records, known, shared, give)?,
                ));
            }
            Frame::Events(lane, events) => self.events(lane, events, known, shared, give)?,
            Frame::BlindSpots(texts) => {
                for text in texts {
                    self.say(note_kind::BLIND_SPOT, 0, &text, known, shared, give)?;
                }
            }
            Frame::Counts(counts) => self.counts(&counts, known, shared, give)?,
            Frame::Gap(start, end, lost, why) => {
                self.lose(lost, shared);
                let text = format!("{lost} events were lost: {why}");
                let (start, end) = (start.min(shared.now), end.min(shared.now));
                let word = self.word(note_kind::GAP, end, &text, start);
                self.tell(word, known, give)?;
            }
            Frame::Bye(why) => {
                if !why.is_empty() {
                    let text = format!("it took its leave: {why}");
                    self.say(note_kind::NOTE, 0, &text, known, shared, give)?;
                }
                return Ok(Reply::Bye);
            }
            Frame::Note(kind, value, text) => {
                self.say(kind, value, &text, known, shared, give)?;
            }
        }
        Ok(Reply::Nothing)
    }

    fn intern(
        &mut self,
        records: Vec<Result<NameRecord, u32>>,
        known: &mut Known,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<Vec<(u32, u32)>, Gone> {
        let mut pairs = Vec::with_capacity(records.len());
        for record in records {
            let pair = match record {
                Ok(NameRecord { func, source, info }) if func != 0 => {
                    (func, self.define(func, source, info, known, shared, give)?)
                }
                Ok(record) => (record.func, 0),
                Err(func) => (func, 0),
            };
            self.tally.faults += u64::from(pair.1 == 0);
            pairs.push(pair);
        }
        Ok(pairs)
    }

    /// The global id of a function that has no other yet; 0 = the process has had all that it may have.
    fn define(
        &mut self,
        local: u32,
        source: u8,
        info: FunctionInfo,
        known: &mut Known,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<u32, Gone> {
        if let Some(named) = self.functions.get(&local) {
            return Ok(named.id);
        }
        let bytes =
            names::HEAD + (info.raw_name.len() + info.path.len() + info.module.len()) as u64;
        if self.functions.len() >= MOST_IDS as usize || !known.has_room(bytes) {
            return Ok(0);
        }
        let Some((id, told)) = shared.functions.intern(info) else {
            return Ok(0);
        };
        // What others have named already costs nothing more: each of many workers names the same functions.
        if let Some(info) = told {
            known.charge(bytes);
            send(give, Input::Function(id, info))?;
        }
        let named = Counted {
            id: id.get(),
            source,
            ..Counted::default()
        };
        self.functions.insert(local, named);
        Ok(named.id)
    }

    /// The global id of a number that an event names; one without a name is unknown, not lost.
    fn global(
        &mut self,
        local: u32,
        source: u8,
        known: &mut Known,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<u32, Gone> {
        if let Some(named) = self.functions.get(&local) {
            return Ok(named.id);
        }
        let mut info = names::nameless(source, local);
        info.path = format!("process {}", self.family.owner().pid());
        let id = self.define(local, source, info, known, shared, give)?;
        self.tally.faults += u64::from(id == 0);
        Ok(id)
    }

    fn events(
        &mut self,
        lane: u32,
        mut events: Vec<Event>,
        known: &mut Known,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let (Some(first), Some(last)) = (events.first(), events.last()) else {
            return Ok(());
        };
        let came_late = last.time.saturating_add(LAG) < shared.now;
        if !self.lanes.contains_key(&lane) {
            let (tid, since) = (first.tid, first.time.min(shared.now));
            if !self.open_lane(lane, (tid, since), known, shared, give)? {
                self.tally.lost_events = self.tally.lost_events.saturating_add(events.len() as u64);
                return Ok(());
            }
        }
        let Some(mut writer) = self.lanes.remove(&lane) else {
            return Ok(());
        };
        writer.look(shared);
        self.tally.events += events.len() as u64;
        self.tally.late += if came_late { events.len() as u64 } else { 0 };
        for event in &mut events {
            writer.mend(event, event.time, self.source, shared, &mut self.tally);
            if event.func != 0 {
                event.func = self.global(event.func, event.source, known, shared, give)?;
            }
        }
        known.threads.insert(writer.who.1, writer.last_ns);
        self.lanes.insert(lane, writer);
        send(give, Input::Events(events))
    }

    /// A lane belongs to the thread of its first event. False = the process has too many.
    fn open_lane(
        &mut self,
        lane: u32,
        (tid, since): (u32, u64),
        known: &Known,
        shared: &Shared,
        give: &mut Give<'_>,
    ) -> Result<bool, Gone> {
        let Some(who) = self.family.thread(tid).filter(|_| tid != 0) else {
            return Ok(false);
        };
        let is_new = !known.threads.contains_key(&who.1);
        if self.lanes.len() >= MOST_THREADS || (is_new && known.threads.len() >= MOST_THREADS) {
            return Ok(false);
        }
        if let Some(name) = peer::thread_name(who.0, who.1) {
            send(give, Input::ThreadName(who.0, who.1, name))?;
        }
        self.lanes
            .insert(lane, Writer::new(who, since.min(shared.now)));
        Ok(true)
    }

    /// Counters as they stand: what is more than before happened since.
    fn counts(
        &mut self,
        counts: &[(u32, u64, u64)],
        known: &mut Known,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let pid = self.family.owner().pid();
        let who = (pid, Tid(pid.0));
        let mut events = Vec::new();
        for &(local, calls, lost) in counts {
            self.global(local, self.source, known, shared, give)?;
            let Some(counted) = self.functions.get_mut(&local) else {
                continue;
            };
            let more = calls.saturating_sub(counted.calls);
            let more_lost = lost.saturating_sub(counted.lost);
            counted.calls = counted.calls.max(calls);
            counted.lost = counted.lost.max(lost);
            if more_lost > 0 {
                self.tally.lost_calls = self.tally.lost_calls.saturating_add(more_lost);
                if let Some(func) = FuncId::new(counted.id) {
                    shared.functions.lose(func, more_lost);
                }
            }
            if more > 0 {
                events.push(Event {
                    time: shared.now,
                    cpu_ns: CPU_NOT_MEASURED,
                    pid: pid.0,
                    tid: pid.0,
                    func: counted.id,
                    seq: shared.sequences.next(who, 0),
                    value: more,
                    kind: Kind::Count as u8,
                    source: counted.source,
                    cpu: CPU_NOT_READ,
                    ..Event::default()
                });
            }
        }
        if events.is_empty() {
            return Ok(());
        }
        known.threads.entry(who.1).or_insert(shared.now);
        send(give, Input::Events(events))
    }

    /// Events are missing on every thread of the connection, or on some of them: its `seq` shows which, if it goes on.
    fn lose(&mut self, lost: u64, shared: &mut Shared) {
        self.tally.lost_events = self.tally.lost_events.saturating_add(lost);
        self.leave_out(shared);
    }

    /// Whatever its threads say next comes behind a gap.
    pub(super) fn leave_out(&self, shared: &mut Shared) {
        for writer in self.lanes.values() {
            shared.sequences.leave_out(writer.who);
        }
    }

    /// Something for the reader of the result.
    pub(super) fn say(
        &self,
        kind: u8,
        value: u64,
        text: &str,
        known: &mut Known,
        shared: &Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        self.tell(self.word(kind, value, text, shared.now), known, give)
    }

    fn word(&self, kind: u8, value: u64, text: &str, time: u64) -> ProbeWord {
        ProbeWord {
            pid: self.family.owner().pid(),
            source: self.source,
            kind,
            time: MonoTime(time),
            value,
            text: text
                .get(..text.floor_char_boundary(NOTE_TEXT))
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// Up to a limit, at which it is said that there was more.
    fn tell(
        &self,
        mut word: ProbeWord,
        known: &mut Known,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        match known.words_left {
            0 => return Ok(()),
            1 => {
                word.kind = note_kind::NOTE;
                word.text = "it had more to say than is kept".into();
            }
            _ => {}
        }
        known.words_left -= 1;
        send(give, Input::Probe(word))
    }
}
