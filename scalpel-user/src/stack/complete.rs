//! Calls that arrive as one record at their end, children before parents.
//!
//! Records wait until the thread ends or too many wait; then they are walked from the last to the first, where every
//! parent comes before its children: a call lies inside the nearest later record whose time range holds it.

use crate::event::{CPU_NOT_MEASURED, Event, Kind, Sample, flags};

/// Records that wait on one thread, at most: then the older half is settled. A call that ends later and encloses them
/// can't claim them any more.
pub(super) const MAX_WAITING: usize = 1 << 16;

/// A call that ended, an entry without end, or a sample.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) start: u64,
    pub(super) end: u64,
    /// CPU time of the call; [`CPU_NOT_MEASURED`] if not measured.
    pub(super) cpu_ns: u64,
    pub(super) frame: u64,
    pub(super) site: u64,
    pub(super) func: u32,
    /// Its end was seen.
    pub(super) timed: bool,
    /// Events that stand for it.
    pub(super) events: u64,
    pub(super) sample: Option<Box<Sample>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    pub(super) records: Vec<Record>,
    /// Calls with an ENTER, whose EXIT makes them a record.
    open: Vec<Event>,
    /// Records that were settled before a call that may enclose them ended.
    pub(super) settled_early: u64,
}

impl Pending {
    /// ENTER: waits for its EXIT, or is a record at once if none will come.
    pub(super) fn enter(&mut self, event: &Event) {
        if event.flags & flags::NO_EXIT == 0 {
            self.open.push(*event);
        } else {
            self.records
                .push(record(event, event.time, event.time, 0, false));
        }
    }

    /// EXIT. False = its ENTER is not known here.
    pub(super) fn exit(&mut self, event: &Event) -> bool {
        let is_its_enter = |enter: &Event| enter.frame == event.frame && enter.func == event.func;
        let Some(index) = self.open.iter().rposition(is_its_enter) else {
            return false;
        };
        let unended = self.open.split_off(index);
        let Some(enter) = unended.first() else {
            return false;
        };
        let cpu_ns = match (enter.cpu_ns, event.cpu_ns) {
            (CPU_NOT_MEASURED, _) | (_, CPU_NOT_MEASURED) => CPU_NOT_MEASURED,
            (before, after) => after.saturating_sub(before),
        };
        for passed in unended.iter().skip(1).rev() {
            self.records
                .push(record(passed, passed.time, event.time, 0, false));
        }
        self.records
            .push(record(enter, enter.time, event.time, cpu_ns, true));
        true
    }

    /// COMPLETE.
    pub(super) fn complete(&mut self, event: &Event) {
        let start = event.time.saturating_sub(event.value);
        self.records
            .push(record(event, start, event.time, event.cpu_ns, true));
    }

    pub(super) fn sample(&mut self, sample: &Sample) {
        let time = sample.event.time;
        let sample = Some(Box::new(sample.clone()));
        self.records.push(Record {
            func: 0,
            sample,
            ..record(&Event::default(), time, time, 0, false)
        });
    }

    /// The records to settle now.
    pub(super) fn take(&mut self, all: bool) -> Vec<Record> {
        if all {
            return std::mem::take(&mut self.records);
        }
        if self.records.len() < MAX_WAITING {
            return Vec::new();
        }
        let rest = self.records.split_off(MAX_WAITING / 2);
        let old = std::mem::replace(&mut self.records, rest);
        self.settled_early += old.len() as u64;
        old
    }
}

fn record(event: &Event, start: u64, end: u64, cpu_ns: u64, timed: bool) -> Record {
    Record {
        start,
        end,
        cpu_ns,
        frame: event.frame,
        site: event.site,
        func: event.func,
        timed,
        events: if timed && event.kind == Kind::Enter as u8 {
            2
        } else {
            1
        },
        sample: None,
    }
}
