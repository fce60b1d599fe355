//! Names and notes of a segment: what its ids stand for, and what its probes have to say.

use std::hash::{DefaultHasher, Hash, Hasher};

use scalpel_common::segment::{NOTE_TEXT, Note, name_flags, note_kind, note_state};

use super::Reader;
use crate::event::{MonoTime, Pid};
use crate::function::FunctionInfo;
use crate::input::{Input, ProbeWord};
use crate::probe::layout::{function, header};
use crate::probe::names::{self, Get, clean};
use crate::probe::shared::{Give, Gone, Shared, send};

impl Reader {
    /// The global id of a process-local one; 0 for one that cannot be.
    pub(super) fn global(
        &mut self,
        local: u32,
        source: u8,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<u32, Gone> {
        match self.global.get(local as usize) {
            Some(&(known, _)) if known != 0 => Ok(known),
            _ => self.define(local, source, shared, give),
        }
    }

    #[cold]
    fn define(
        &mut self,
        local: u32,
        source: u8,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<u32, Gone> {
        if local == 0 || local >= self.segment.layout.functions_max {
            self.tally.faults += 1;
            return Ok(0);
        }
        let source = if source == 0 { self.source } else { source };
        let (info, source) = self.name(local).unwrap_or_else(|| {
            let mut info = names::nameless(source, local);
            info.path = format!("process {}", self.family.owner().pid());
            (info, source)
        });
        let info = self.told_apart(info);
        let Some((id, told)) = shared.functions.intern(info) else {
            self.tally.faults += 1;
            return Ok(0);
        };
        if let Some(info) = told {
            send(give, Input::Function(id, info))?;
        }
        if shared.off.contains(&id.get()) {
            self.segment.switch_off(&[local]);
        }
        if self.global.len() <= local as usize {
            self.global.resize(local as usize + 1, (0, 0));
        }
        if let Some(place) = self.global.get_mut(local as usize) {
            *place = (id.get(), source);
        }
        Ok(id.get())
    }

    /// Generated functions can be alike in all that is told of them: the constructors of two classes of data are. A probe
    /// gives each an id of its own, so that they are numbered in the order in which they ran first.
    fn told_apart(&mut self, mut info: FunctionInfo) -> FunctionInfo {
        if info.place.flags & name_flags::GENERATED != 0 {
            let mut hasher = DefaultHasher::new();
            info.hash(&mut hasher);
            let before = self.twins.entry(hasher.finish()).or_default();
            info.ordinal += *before;
            *before = before.saturating_add(1);
        }
        info
    }

    fn name(&self, local: u32) -> Option<(FunctionInfo, u8)> {
        let layout = &self.segment.layout;
        let at = self
            .segment
            .function_u64(local, function::NAME)
            .checked_sub(1)?;
        let room = layout.names_size.checked_sub(at)?;
        let place = layout.names_at + at;
        let head = self.segment.memory.bytes(place, 8.min(room))?;
        let len = names::length(&head).filter(|len| *len <= room)?;
        let record = names::parse(&self.segment.memory.bytes(place, len)?)?;
        (record.func == local).then_some((record.info, record.source))
    }

    pub(super) fn notes(&mut self, shared: &Shared, give: &mut Give<'_>) -> Result<(), Gone> {
        let written = self
            .segment
            .memory
            .u32(header::NOTES_USED)
            .min(self.segment.layout.notes_max);
        while self.notes_read < written {
            let at = self.segment.layout.note(self.notes_read);
            if self.segment.memory.u32(at) != note_state::READY {
                break;
            }
            let word = self.note_at(self.notes_read, |time| MonoTime(shared.clock.ns(time)));
            // What runtimes are and cannot see holds on; what was not written before this recording is none of its gaps.
            let is_old = self.notes_read < self.notes_inherited;
            let is_over =
                |word: &ProbeWord| is_old && word.kind == note_kind::GAP && word.value != 0;
            self.notes_read += 1;
            if let Some(word) = word.filter(|word| !is_over(word)) {
                send(give, Input::Probe(word))?;
            }
        }
        Ok(())
    }

    /// A note that is whole. `clock`: what a time of the lane clock is.
    pub(super) fn note_at(
        &self,
        number: u32,
        clock: impl FnOnce(u64) -> MonoTime,
    ) -> Option<ProbeWord> {
        let at = self.segment.layout.note(number);
        let bytes = self.segment.memory.bytes(at, size_of::<Note>() as u64)?;
        note(&bytes, self.family.owner().pid(), clock)
    }
}

fn note(bytes: &[u8], pid: Pid, clock: impl FnOnce(u64) -> MonoTime) -> Option<ProbeWord> {
    let mut get = Get(bytes);
    (get.u32()? == note_state::READY).then_some(())?;
    let (kind, source) = (get.u8()?, get.u8()?);
    let len = usize::from(get.u16()?).min(NOTE_TEXT);
    let (time, value) = (get.u64()?, get.u64()?);
    Some(ProbeWord {
        pid,
        source,
        kind,
        time: clock(time),
        value,
        text: clean(get.take(len)?),
    })
}
