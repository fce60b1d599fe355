//! How kept calls are written: a stream with sequence numbers of its own, in which callers stand as calls that began earlier.

use super::super::frames::Frame;
use super::Judge;
use super::held::{Held, Item, Range, shared, sums};
use crate::event::{CPU_NOT_MEASURED, Event, Kind, Pid, Source, Stream, Tid, flags};
use crate::input::{Input, KeptCall};

/// One thread's kept stream.
#[derive(Debug)]
pub(super) struct Writer {
    /// Next numbers: of calls, switches and probes.
    numbers: [u32; 3],
    /// Callers that are open in it, and when they began there.
    callers: Vec<Frame>,
    begun: Vec<u64>,
    /// Time of its last event.
    time: u64,
}

impl Default for Writer {
    /// The kernel's sequences begin at 1.
    fn default() -> Self {
        Self {
            numbers: [1, 1, 0],
            callers: Vec::new(),
            begun: Vec::new(),
            time: 0,
        }
    }
}

/// One kept call on its way.
struct Block<'a> {
    writer: &'a mut Writer,
    /// Whose it is: every event is.
    like: Event,
    events: Vec<Event>,
    inputs: Vec<Input>,
    items: u64,
}

impl Writer {
    /// Writes the kept calls of what is held, and empties it.
    pub(super) fn write(
        &mut self,
        held: &mut Held,
        switch: Option<&Event>,
        judge: &mut Judge,
        out: &mut Vec<Input>,
    ) {
        let (items, ranges) = held.take(judge);
        let mut rest = ranges.into_iter().peekable();
        while let Some(range) = rest.next() {
            let end = range.end;
            let inner: Vec<Range> =
                std::iter::from_fn(|| rest.next_if(|inner| inner.start < end)).collect();
            self.block(&range, &inner, &items, switch, out);
        }
    }

    fn block(
        &mut self,
        range: &Range,
        inner: &[Range],
        items: &[Item],
        switch: Option<&Event>,
        out: &mut Vec<Input>,
    ) {
        let own = items.get(range.start..range.end).unwrap_or_default();
        let Some(Item::Event(first)) = own.first() else {
            return;
        };
        let mut block = Block {
            writer: self,
            like: Event {
                pid: first.pid,
                tid: first.tid,
                cpu_ns: CPU_NOT_MEASURED,
                cpu: u16::MAX,
                ..Event::default()
            },
            events: Vec::with_capacity(own.len() + range.callers.len()),
            inputs: Vec::new(),
            items: 0,
        };
        block.callers(&range.callers);
        block.switch(switch.filter(|switch| switch.time <= first.time));
        own.iter().for_each(|item| block.item(item));
        if let Some(made) = range.made {
            block.event(made);
        }
        block.flush();
        let (body, count) = (block.inputs, block.items);
        let told = |range: &Range, count: u64| {
            let mut call = KeptCall {
                pid: Pid(first.pid),
                tid: Tid(first.tid),
                items: count,
                ..range.call.clone()
            };
            sums(
                items.get(range.start..range.end).unwrap_or_default(),
                &mut call,
            );
            Input::Kept(call)
        };
        out.push(told(range, count));
        out.extend(inner.iter().map(|range| told(range, 0)));
        out.extend(body);
    }
}

impl Block<'_> {
    /// Ends the callers that are over, and begins those that are open.
    fn callers(&mut self, now: &[Frame]) {
        let same = shared(&self.writer.callers, now);
        while self.writer.callers.len() > same {
            let Some((over, begun)) = self.writer.callers.pop().zip(self.writer.begun.pop()) else {
                break;
            };
            let end = Event {
                time: self.writer.time,
                kind: Kind::Unwind as u8,
                flags: flags::EARLIER,
                site: begun,
                ..self.of(&over)
            };
            self.event(end);
        }
        for frame in now.get(same..).unwrap_or_default() {
            let ends = if frame.timed { 0 } else { flags::NO_EXIT };
            let begin = Event {
                // A caller that was aside for a while may be older than what is written.
                time: frame.entered.max(self.writer.time),
                kind: Kind::Enter as u8,
                flags: flags::EARLIER | ends,
                site: frame.site,
                value: frame.task,
                ..self.of(frame)
            };
            self.event(begin);
            self.writer.callers.push(*frame);
            self.writer.begun.push(begin.time);
        }
    }

    fn of(&self, frame: &Frame) -> Event {
        Event {
            func: frame.func,
            frame: frame.frame,
            source: frame.source,
            ..self.like
        }
    }

    /// The thread has been on a processor since: told where what is measured needs it, with its CPU time there.
    fn switch(&mut self, switch: Option<&Event>) {
        if let Some(switch) = switch {
            let time = switch.time.max(self.writer.time);
            let since = time - switch.time;
            self.event(Event {
                time,
                cpu_ns: switch.cpu_ns.saturating_add(match switch.cpu_ns {
                    CPU_NOT_MEASURED => 0,
                    _ => since,
                }),
                ..*switch
            });
        }
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Event(event) => self.event(*event),
            Item::Sample(sample) => {
                self.flush();
                self.items += 1;
                self.inputs.push(Input::Sample(sample.clone()));
            }
            Item::Lost(stream, lost) => {
                let number = self.number(*stream);
                *number = number.wrapping_add(u32::try_from(*lost).unwrap_or(u32::MAX >> 2));
            }
            Item::Left(first, left) => self.event(Event {
                time: first.time,
                kind: Kind::Lost as u8,
                source: Source::Sampler as u8,
                value: *left,
                ..self.like
            }),
        }
    }

    fn event(&mut self, mut event: Event) {
        let number = self.number(Stream::of(event.source));
        event.seq = *number;
        *number = number.wrapping_add(1);
        self.writer.time = self.writer.time.max(event.time);
        self.items += 1;
        self.events.push(event);
    }

    fn number(&mut self, stream: Stream) -> &mut u32 {
        let [calls, switches, probes] = &mut self.writer.numbers;
        match stream {
            Stream::Calls => calls,
            Stream::Switches => switches,
            Stream::Probes => probes,
        }
    }

    fn flush(&mut self) {
        if !self.events.is_empty() {
            self.inputs
                .push(Input::Events(std::mem::take(&mut self.events)));
        }
    }
}
