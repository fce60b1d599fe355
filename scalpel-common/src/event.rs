//! The event: 64 bytes, one shape in the kernel ring, in a probe's lane and in the chunk log.
//!
//! Numbers are appended and never reused. A reader counts what it does not know and goes on.

use core::mem::offset_of;

/// Version of the event's layout and numbers; stands in the header of a lane, a ring session and a chunk.
pub const EVENT_VERSION: u16 = 1;

/// Size of an [`Event`] in bytes.
pub const EVENT_SIZE: usize = 64;

/// `cpu_ns` of an event whose source did not measure CPU time.
pub const CPU_NOT_MEASURED: u64 = u64::MAX;

/// One thing that happened on one thread.
///
/// `kind` and `source` are plain bytes, not enums: a number from a newer writer must be countable, not
/// undefined behaviour. [`Kind::from_u8`] and [`Source::from_u8`] name the known ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(8))]
pub struct Event {
    /// `CLOCK_MONOTONIC` in ns, or raw TSC in a lane whose header says `clock = tsc`.
    pub time: u64,
    /// On-CPU ns of this thread since it was first seen, or [`CPU_NOT_MEASURED`].
    pub cpu_ns: u64,
    /// Thread group id ("pid") in the initial pid namespace.
    pub pid: u32,
    /// Thread id in the initial pid namespace.
    pub tid: u32,
    /// Function id: attach cookie (kernel) or process-local id (probe); 0 = none.
    pub func: u32,
    /// Per thread (kernel) or per lane (probe), wrapping; advanced before the slot is reserved, so that a gap is a loss.
    pub seq: u32,
    /// Identity of the activation, by which EXIT finds its ENTER: for native code the stack pointer at entry
    /// (the address of the return address).
    pub frame: u64,
    /// ENTER: return address or call-site id. EXIT, SUSPEND, RESUME: task id. COMPLETE: return address.
    pub site: u64,
    /// ENTER: task id, 0 = none. EXIT: return value. COMPLETE: wall duration in ns. SAMPLE: the period in ns or
    /// cycles. `SWITCH_IN` with a stack: how long the thread was off the processor, in ns. LOST and COUNT: how many.
    pub value: u64,
    /// A [`Kind`] number.
    pub kind: u8,
    /// A [`Source`] number.
    pub source: u8,
    /// Bits of [`flags`].
    pub flags: u16,
    /// Processor number.
    pub cpu: u16,
    /// log2 of how many calls this event stands for; 0 = one.
    pub weight: u8,
    /// 0.
    pub reserved: u8,
}

const _: () = {
    assert!(size_of::<Event>() == EVENT_SIZE);
    assert!(align_of::<Event>() == 8);
    assert!(offset_of!(Event, time) == 0);
    assert!(offset_of!(Event, cpu_ns) == 8);
    assert!(offset_of!(Event, pid) == 16);
    assert!(offset_of!(Event, tid) == 20);
    assert!(offset_of!(Event, func) == 24);
    assert!(offset_of!(Event, seq) == 28);
    assert!(offset_of!(Event, frame) == 32);
    assert!(offset_of!(Event, site) == 40);
    assert!(offset_of!(Event, value) == 48);
    assert!(offset_of!(Event, kind) == 56);
    assert!(offset_of!(Event, source) == 57);
    assert!(offset_of!(Event, flags) == 58);
    assert!(offset_of!(Event, cpu) == 60);
    assert!(offset_of!(Event, weight) == 62);
    assert!(offset_of!(Event, reserved) == 63);
};

impl Event {
    /// The event as it stands in a ring, a lane and the chunk log.
    pub const fn to_bytes(&self) -> [u8; EVENT_SIZE] {
        let mut bytes = [0; EVENT_SIZE];
        put(&mut bytes, 0, &self.time.to_le_bytes());
        put(&mut bytes, 8, &self.cpu_ns.to_le_bytes());
        put(&mut bytes, 16, &self.pid.to_le_bytes());
        put(&mut bytes, 20, &self.tid.to_le_bytes());
        put(&mut bytes, 24, &self.func.to_le_bytes());
        put(&mut bytes, 28, &self.seq.to_le_bytes());
        put(&mut bytes, 32, &self.frame.to_le_bytes());
        put(&mut bytes, 40, &self.site.to_le_bytes());
        put(&mut bytes, 48, &self.value.to_le_bytes());
        put(&mut bytes, 56, &[self.kind, self.source]);
        put(&mut bytes, 58, &self.flags.to_le_bytes());
        put(&mut bytes, 60, &self.cpu.to_le_bytes());
        put(&mut bytes, 62, &[self.weight, self.reserved]);
        bytes
    }

    /// The event in these bytes. Every bit pattern is an event; whether its numbers are known is another question.
    pub const fn from_bytes(bytes: &[u8; EVENT_SIZE]) -> Self {
        Self {
            time: u64::from_le_bytes(take(bytes, 0)),
            cpu_ns: u64::from_le_bytes(take(bytes, 8)),
            pid: u32::from_le_bytes(take(bytes, 16)),
            tid: u32::from_le_bytes(take(bytes, 20)),
            func: u32::from_le_bytes(take(bytes, 24)),
            seq: u32::from_le_bytes(take(bytes, 28)),
            frame: u64::from_le_bytes(take(bytes, 32)),
            site: u64::from_le_bytes(take(bytes, 40)),
            value: u64::from_le_bytes(take(bytes, 48)),
            kind: bytes[56],
            source: bytes[57],
            flags: u16::from_le_bytes(take(bytes, 58)),
            cpu: u16::from_le_bytes(take(bytes, 60)),
            weight: bytes[62],
            reserved: bytes[63],
        }
    }
}

const fn put(bytes: &mut [u8; EVENT_SIZE], at: usize, field: &[u8]) {
    bytes
        .split_at_mut(at)
        .1
        .split_at_mut(field.len())
        .0
        .copy_from_slice(field);
}

const fn take<const N: usize>(bytes: &[u8; EVENT_SIZE], at: usize) -> [u8; N] {
    match bytes.split_at(at).1.first_chunk() {
        Some(field) => *field,
        None => [0; N],
    }
}

macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $number:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$vmeta])* $variant = $number,)+
        }

        impl $name {
            /// Every known number, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name of a number, or `None` for one that this version does not know.
            pub const fn from_u8(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// What happened. 0 is no kind: an all-zero record is a fault that a reader can see.
    Kind {
        /// A call began.
        Enter = 1,
        /// A call returned.
        Exit = 2,
        /// A whole call in one record: `time` is its end, `value` its duration, `cpu_ns` the CPU time *of the call*.
        Complete = 3,
        /// A task left its thread (await, yield).
        Suspend = 4,
        /// A task went on.
        Resume = 5,
        /// A call ended by exception or non-local jump.
        Unwind = 6,
        /// A sampled stack; the frames follow in the sample record.
        Sample = 7,
        /// The thread was put on a processor.
        SwitchIn = 8,
        /// The thread left its processor.
        SwitchOut = 9,
        /// `value` calls of `func` happened.
        Count = 10,
        /// `value` events were lost.
        Lost = 11,
        /// The thread began.
        ThreadStart = 12,
        /// The thread ended.
        ThreadEnd = 13,
    }
}

numbered! {
    /// Who wrote the event.
    Source {
        /// Kernel uprobe or return probe.
        Uprobe = 1,
        /// Kernel scheduler tracepoint.
        Sched = 2,
        /// Kernel perf-event sampler.
        Sampler = 3,
        /// In-process Python probe.
        Python = 4,
        /// In-process Node.js probe.
        Node = 5,
        /// In-process Ruby probe.
        Ruby = 6,
        /// In-process PHP probe.
        Php = 7,
        /// In-process Java agent.
        Java = 8,
        /// In-process Go probe.
        Go = 9,
        /// In-process Rust probe.
        Rust = 10,
        /// In-process .NET profiler.
        Dotnet = 11,
        /// In-process Lua hook.
        Lua = 12,
        /// In-process C and C++ hooks.
        C = 13,
    }
}

/// Bits of [`Event::flags`].
pub mod flags {
    /// The call belongs to an asynchronous task.
    pub const ASYNC: u16 = 1 << 0;
    /// The function was entered by a jump, in its caller's frame.
    pub const TAIL_CALL: u16 = 1 << 1;
    /// Not observed: concluded from other events.
    pub const INFERRED: u16 = 1 << 2;
    /// `cpu_ns` is an estimate.
    pub const ESTIMATED_CPU: u16 = 1 << 3;
    /// The function is native code called from a language runtime.
    pub const C_FUNCTION: u16 = 1 << 4;
    /// The "function" is a class body.
    pub const CLASS_BODY: u16 = 1 << 5;
    /// ENTER only: no EXIT will follow (entry-only probe, or the return was refused). Time comes from sampling.
    pub const NO_EXIT: u16 = 1 << 6;
    /// ENTER only, with [`NO_EXIT`]: the stack guard refused the return probe of this call.
    pub const RETURN_REFUSED: u16 = 1 << 7;
    /// The exit was seen at a `ret` instruction, not by a return probe.
    pub const RET_OFFSET: u16 = 1 << 8;
    /// The sample was taken in kernel mode.
    pub const KERNEL_MODE: u16 = 1 << 9;
    /// The sampled stack is cut: the unwinder stopped before the thread's first frame.
    pub const STACK_CUT: u16 = 1 << 10;
    /// `SWITCH_IN` with a stack: the thread could have gone on all the time, and had no processor.
    pub const PREEMPTED: u16 = 1 << 11;
    /// `SWITCH_IN` with a stack: the thread waited for a device.
    pub const IO_WAIT: u16 = 1 << 12;
    /// `SWITCH_IN` with a stack, which is empty: the sum of so many (`seq`) waits that are not told one by one.
    pub const UNTOLD: u16 = 1 << 13;
    /// ENTER: the call began before what is kept of the stream, and counts nowhere. EXIT, UNWIND: no event told of this end;
    /// it is written where the whole stream showed that the call was over, and `site` is when that call began.
    pub const EARLIER: u16 = 1 << 14;
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::String;
    use std::vec::Vec;

    use super::*;

    /// One `name = number` list and its bytes as hex; every probe's test replays the same file.
    fn golden() -> impl Iterator<Item = (Event, Vec<u8>)> {
        include_str!("../golden/events.txt")
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| {
                let (fields, hex) = line.split_once("=>").unwrap();
                let hex: String = hex.split_whitespace().collect();
                let bytes = (0..hex.len() / 2)
                    .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap());
                (event(fields), bytes.collect())
            })
    }

    fn event(fields: &str) -> Event {
        let mut event = Event::default();
        for field in fields.split_whitespace() {
            let (name, number) = field.split_once('=').unwrap();
            let number = match number.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
                None => number.parse().unwrap(),
            };
            match name {
                "time" => event.time = number,
                "cpu_ns" => event.cpu_ns = number,
                "pid" => event.pid = number as u32,
                "tid" => event.tid = number as u32,
                "func" => event.func = number as u32,
                "seq" => event.seq = number as u32,
                "frame" => event.frame = number,
                "site" => event.site = number,
                "value" => event.value = number,
                "kind" => event.kind = number as u8,
                "source" => event.source = number as u8,
                "flags" => event.flags = number as u16,
                "cpu" => event.cpu = number as u16,
                "weight" => event.weight = number as u8,
                "reserved" => event.reserved = number as u8,
                _ => panic!("no field {name}"),
            }
        }
        event
    }

    #[test]
    fn golden_vectors_read_and_write_the_same_bytes() {
        let mut vectors = 0;
        for (event, bytes) in golden() {
            assert_eq!(event.to_bytes().as_slice(), bytes, "{event:?}");
            assert_eq!(Event::from_bytes(bytes.first_chunk().unwrap()), event);
            vectors += 1;
        }
        assert!(vectors >= 10, "only {vectors} golden vectors");
    }

    #[test]
    fn zero_is_neither_a_kind_nor_a_source() {
        assert_eq!(Kind::from_u8(0), None);
        assert_eq!(Source::from_u8(0), None);
    }

    #[test]
    fn numbers_round_trip() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::from_u8(kind as u8), Some(kind));
        }
        for &source in Source::ALL {
            assert_eq!(Source::from_u8(source as u8), Some(source));
        }
    }
}
