//! Inputs of a session out of a fuzzer's bytes: few processes, threads, functions and addresses, so that calls meet.

use scalpel_common::kernel::LossClass;
use scalpel_user::event::{Addr, Control, Event, FuncId, MonoTime, Pid, Sample, Tid};
use scalpel_user::function::{ExitStrategy, FunctionInfo, Language, SourcePlace, UnknownReason};
use scalpel_user::input::{
    Bound, CallEnd, CountedEdge, CountedSite, CountedTimes, Counts, Inlined, Input, KeptCall, Loss, RunInfo, Symbol, Trigger,
};

/// Takes inputs from the front of a byte string until it is empty.
pub struct Stream<'a> {
    rest: &'a [u8],
    time: u64,
    seq: [u32; 8],
}

impl<'a> Stream<'a> {
    /// A stream that reads `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            time: 1_000,
            seq: [1; 8],
        }
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        first
    }

    /// Mostly small, sometimes any number.
    fn number(&mut self) -> u64 {
        match self.byte() {
            255 => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
            small => u64::from(small),
        }
    }

    fn func(&mut self) -> FuncId {
        let number = self.number();
        FuncId::new((number as u32).max(1)).unwrap_or(FuncId(std::num::NonZeroU32::MIN))
    }

    fn pid(&mut self) -> Pid {
        Pid(1 + u32::from(self.byte() & 1))
    }

    fn tid(&mut self) -> Tid {
        Tid(1 + u32::from(self.byte() & 3))
    }

    /// Time goes on by a little, stays, or is anything.
    fn now(&mut self) -> u64 {
        let step = self.byte();
        match step {
            255 => return self.number(),
            254 => self.time = self.number(),
            253 => self.time = self.time.saturating_add(1_500_000_000),
            _ => self.time = self.time.saturating_add(u64::from(step)),
        }
        self.time
    }

    fn address(&mut self) -> u64 {
        match self.byte() {
            255 => self.number(),
            254 => 0x7fff_ffff_e000,
            page => 0x1000 + u64::from(page) * 0x80,
        }
    }

    fn events(&mut self) -> Vec<Event> {
        let count = 1 + (self.byte() & 7);
        (0..count).map(|_| self.event()).collect()
    }

    fn event(&mut self) -> Event {
        let (place, what) = (self.byte(), self.byte());
        let (pid, tid) = (1 + u32::from(place & 1), 1 + u32::from(place >> 1 & 3));
        let source = if place & 8 == 0 { 1 } else { place >> 4 & 3 };
        let time = self.now();
        let func = self.func().get();
        let frame = 0x7ffd_0000_0000u64.wrapping_sub(self.number().wrapping_mul(16));
        let slot = &mut self.seq[(place & 7) as usize];
        let seq = *slot;
        *slot = slot.wrapping_add(if what >> 4 == 15 { 3 } else { 1 });
        let mut event = Event {
            time,
            cpu_ns: time / 2,
            pid,
            tid,
            func,
            seq,
            frame,
            kind: what & 15,
            source,
            ..Event::default()
        };
        if what & 0x30 == 0x30 {
            event.flags = u16::from(self.byte()) << (self.byte() & 8);
            event.site = self.address();
            event.value = self.number();
        }
        if what & 0xc0 == 0xc0 {
            event.cpu_ns = if self.byte() & 1 == 0 {
                u64::MAX
            } else {
                self.number()
            };
            event.weight = self.byte();
            if self.byte() & 1 == 0 {
                event.seq = self.number() as u32;
            }
        }
        event
    }

    fn sample(&mut self) -> Sample {
        let (frames, kernel) = (self.byte() & 7, self.byte() & 3);
        Sample {
            event: Event {
                // A sampled stack, or where a thread waited.
                kind: if kernel == 3 { 8 } else { 7 },
                source: 3,
                ..self.event()
            },
            user: (0..frames).map(|_| self.address()).collect(),
            kernel: (0..kernel).map(|_| self.address()).collect(),
            copy: None,
        }
    }

    fn control(&mut self) -> Control {
        let (time, pid, tid) = (MonoTime(self.now()), self.pid(), self.tid());
        match self.byte() & 3 {
            0 => Control::Fork {
                time,
                parent: pid,
                child: self.pid(),
                tid,
                name: "child".into(),
            },
            1 => Control::Exec {
                time,
                pid,
                path: "/program".into(),
            },
            2 => Control::Exit {
                time,
                pid,
                tid,
                process_ended: (self.byte() & 1 == 0).then_some(9),
            },
            _ => Control::Map {
                time,
                pid,
                start: Addr(self.address()),
                end: Addr(self.address()),
                offset: self.number(),
                path: "/program".into(),
            },
        }
    }

    fn function(&mut self) -> FunctionInfo {
        let number = self.byte();
        FunctionInfo {
            name: format!("function_{}", number & 15),
            raw_name: String::new(),
            module: "program".into(),
            path: "/program".into(),
            file: None,
            line: None,
            language: Language::C,
            build_id: "00ff".into(),
            file_offset: self.number() << (number >> 4),
            size: self.number(),
            site_delta: 0,
            exit: if number & 16 == 0 {
                ExitStrategy::Return
            } else {
                ExitStrategy::EntryOnly
            },
            exit_reason: String::new(),
            unknown: (number & 32 != 0).then_some(UnknownReason::Unmapped),
            ordinal: u32::from(number & 1),
            place: SourcePlace::default(),
        }
    }

    fn loss(&mut self) -> Loss {
        let classes = [
            LossClass::Enter,
            LossClass::Exit,
            LossClass::Sample,
            LossClass::ReturnRefused,
            LossClass::RecursionMiss,
            LossClass::CountCell,
            LossClass::CountHistogram,
        ];
        let class = classes[self.byte() as usize % classes.len()];
        let func = (self.byte() & 1 == 0).then(|| self.func());
        Loss {
            class,
            cpu: None,
            func,
            count: self.number(),
        }
    }

    fn symbol(&mut self) -> Symbol {
        let func = if self.byte() & 7 == 0 {
            Err(UnknownReason::NoSymbol)
        } else {
            Ok(self.func())
        };
        Symbol {
            pid: self.pid(),
            address: self.address(),
            func,
        }
    }

    fn counts(&mut self) -> Counts {
        let (edges, times) = (self.byte() & 7, self.byte() & 3);
        let from = MonoTime(self.now());
        Counts {
            from,
            until: MonoTime(self.now()),
            edges: (0..edges).map(|_| self.edge()).collect(),
            times: (0..times).map(|_| self.times()).collect(),
        }
    }

    fn edge(&mut self) -> CountedEdge {
        let site = match self.byte() & 3 {
            0 => CountedSite::Unknown,
            1 => CountedSite::Jump(self.func()),
            _ => CountedSite::Address(self.address()),
        };
        let mut edge = CountedEdge::new(self.pid(), self.func(), site);
        for number in edge.numbers_mut() {
            *number = self.number();
        }
        edge
    }

    fn times(&mut self) -> CountedTimes {
        let buckets = self.byte() & 3;
        CountedTimes {
            func: self.func(),
            is_cpu: self.byte() & 1 == 0,
            buckets: (0..buckets)
                .map(|_| (self.number() as u16, self.number()))
                .collect(),
        }
    }

    fn inlined(&mut self) -> Inlined {
        let functions = (0..self.byte() & 3).map(|_| self.func()).collect();
        Inlined {
            pid: self.pid(),
            address: self.address(),
            functions,
        }
    }

    fn run(&mut self) -> RunInfo {
        RunInfo {
            uuid: "6f0e3e0c-6f4e-4a57-9d55-1f3c0d1d2a11".into(),
            pid: Pid(1),
            command: "fuzzed".into(),
            host: "host".into(),
            kernel: "6.18".into(),
            started_unix_ns: 1,
            started: MonoTime(self.number()),
            mode: "trace+sample".into(),
            version: "0".into(),
            probe_cost_ns: None,
            sample_hz: 99,
        }
    }
}

impl Iterator for Stream<'_> {
    type Item = Input;

    fn next(&mut self) -> Option<Input> {
        if self.rest.is_empty() {
            return None;
        }
        Some(match self.byte() & 31 {
            0 => Input::Run(self.run()),
            1 | 2 => Input::Function(self.func(), self.function().into()),
            3..=5 => Input::Sample(self.sample()),
            6..=8 => Input::Control(self.control()),
            9..=12 => Input::Drained(MonoTime(self.now())),
            13 => Input::Losses((0..self.byte() & 3).map(|_| self.loss()).collect()),
            14 => Input::Bound(Bound {
                func: self.func(),
                since: Some(MonoTime(self.number())),
                reason: "over budget".into(),
            }),
            15 if self.byte() & 1 == 0 => Input::Inlined((0..self.byte() & 7).map(|_| self.inlined()).collect()),
            15 => Input::Symbols((0..self.byte() & 7).map(|_| self.symbol()).collect()),
            16 => Input::ThreadName(self.pid(), self.tid(), "worker".into()),
            17 => Input::Note("a note".into()),
            18 => Input::End(MonoTime(self.now())),
            19 | 20 => Input::Counts(self.counts()),
            21 => Input::Triggers(vec![Trigger {
                text: "f>1ms".into(),
                kept: self.number(),
                over: self.number(),
                ..Trigger::default()
            }]),
            22 => Input::Kept(KeptCall {
                trigger: u32::from(self.byte()),
                func: self.func(),
                pid: self.pid(),
                tid: self.tid(),
                began: MonoTime(self.number()),
                ended: MonoTime(self.number()),
                end: CallEnd::Open,
                cpu_ns: Some(self.number()),
                waits: self.number(),
                waited_ns: self.number(),
                lost: self.number(),
                left_out: self.number(),
                items: self.number(),
            }),
            23 => Input::Returns((0..self.byte() & 7).map(|_| self.func()).collect()),
            _ => Input::Events(self.events()),
        })
    }
}
