//! A path that was stepped, written as packets, is decoded to the same path; and the packets are those of libipt's encoder.
use scalpel_scope::pt::encode::{self, Shape};
use scalpel_scope::pt::live;
use scalpel_scope::pt::{self, Clock, CodeBytes, Flows, Image, Single, Stream, Summary};
use scalpel_scope::sink::Kept;
use scalpel_scope::symbol::{Resolver, Symbol};
use scalpel_scope::trace::Form;
use scalpel_scope::{Reasons, Trace};

use crate::{code, mutation, programs, tests};

tests! {
    Library:
    random_programs_are_decoded_as_they_were_stepped,
    packets_are_those_of_libipts_encoder,
    blocks_of_packets_are_not_lost_swapped_or_doubled_unseen,
    stretches_meet_exactly,
    what_is_missing_at_the_end_is_told,
    an_overflow_is_a_reason,
}

/// The code of a trace, in pieces of what stands together.
fn image(trace: &Trace) -> Image {
    let mut all: Vec<_> = trace.code.iter().collect();
    all.sort_by_key(|code| code.addr);
    let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
    for code in all {
        match pieces.last_mut() {
            Some((addr, bytes)) if *addr + bytes.len() as u64 == code.addr => {
                bytes.extend_from_slice(&code.bytes);
            }
            _ => pieces.push((code.addr, code.bytes.clone())),
        }
    }
    let image = Image::new().unwrap();
    for (addr, bytes) in pieces {
        let len = bytes.len() as u64;
        image
            .map(addr, &CodeBytes::new(bytes).unwrap(), 0, len)
            .unwrap();
    }
    image
}

struct NoNames;

impl Resolver for NoNames {
    fn resolve(&mut self, _addr: u64) -> Option<Symbol> {
        None
    }
}

fn decode(trace: &Trace, packets: &[u8], stretch: usize) -> (Summary, Vec<u64>) {
    let mut names = NoNames;
    let mut guide = Single::new(image(trace), &mut names);
    let mut kept = Kept::default();
    let mut flows = Flows::new(&mut kept);
    let mut stream = Stream::new(None, Clock::default()).in_stretches_of(stretch);
    stream.all(packets, &mut guide, &mut flows).unwrap();
    let summary = flows.finish();
    let path = kept
        .steps
        .iter()
        .map(|step| kept.code[step.code as usize].addr)
        .collect();
    (summary, path)
}

/// The path with one place for each `rep`, as Intel PT sees it.
fn path(trace: &Trace) -> Vec<u64> {
    let addr = |step| trace.code_of(step).unwrap().addr;
    trace.steps.iter().map(addr).collect()
}

/// Traces of random programs, with the packets in every shape.
fn each(programs: usize, mut see: impl FnMut(&Trace, Shape, &[u8])) {
    let mut dice = programs::Dice(0x000d_d51e_ed0f_c0de);
    let buffer = code::memory() as u64;
    let memory = code::memory();
    for _ in 0..programs {
        let routine = programs::random(&mut dice, memory);
        let args = [buffer, dice.roll(1 << 50), 0, 0, 0, 0];
        programs::clean(&args);
        let (_, trace) = routine.trace(args);
        assert!(trace.is_complete(), "{}", trace.reasons);
        for compressed_returns in [false, true] {
            for long_branches in [false, true] {
                for psb_every in [0, 16] {
                    let shape = Shape {
                        compressed_returns,
                        long_branches,
                        psb_every,
                    };
                    see(&trace, shape, &encode::path(&trace, shape).unwrap());
                }
            }
        }
    }
}

fn random_programs_are_decoded_as_they_were_stepped() {
    each(1_000, |trace, shape, packets| {
        let (summary, decoded) = decode(trace, packets, 1 << 20);
        assert_eq!(decoded, path(trace), "{shape:?}");
        assert_eq!(
            summary.reasons,
            Reasons::NONE,
            "{shape:?} {}",
            summary.reasons
        );
        assert_eq!(summary.ends, trace.begin.zip(trace.end));
    });
}

fn blocks_of_packets_are_not_lost_swapped_or_doubled_unseen() {
    let mut mutations = 0;
    each(100, |trace, shape, packets| {
        if !shape.compressed_returns || shape.psb_every > 0 {
            return;
        }
        let wanted = live::Wanted::Form(Form::Window);
        let decoded = live::decode(packets, Reasons::NONE, image(trace), wanted).unwrap();
        mutations += mutation::every(&decoded);
    });
    assert!(mutations > 5_000, "{mutations}");
}

fn packets_are_those_of_libipts_encoder() {
    each(200, |_, shape, packets| {
        assert_eq!(pt::rewritten(packets).unwrap(), packets, "{shape:?}");
    });
}

fn stretches_meet_exactly() {
    each(300, |trace, shape, packets| {
        if shape.psb_every > 0 {
            for stretch in [64, 100, 177] {
                let (summary, decoded) = decode(trace, packets, stretch);
                assert_eq!(decoded, path(trace), "{shape:?}, stretches of {stretch}");
                assert_eq!(summary.reasons, Reasons::NONE, "{}", summary.reasons);
            }
        }
    });
}

fn what_is_missing_at_the_end_is_told() {
    each(200, |trace, _, packets| {
        // Without the last packet nothing says where the flow went.
        let (summary, _) = decode(trace, &packets[..packets.len() - 1], 1 << 20);
        assert_ne!(summary.reasons, Reasons::NONE);
    });
}

fn an_overflow_is_a_reason() {
    let mut seen = 0;
    each(50, |trace, _, packets| {
        let mut writer = encode::Writer::default();
        writer.overflow();
        let overflow = writer.finish(false);
        // In front of a synchronisation point but the first.
        let psb = packets[1..]
            .windows(16)
            .position(|bytes| bytes == &packets[..16]);
        if let Some(at) = psb {
            let all = [&packets[..=at], &overflow[..], &packets[at + 1..]].concat();
            let (summary, _) = decode(trace, &all, 1 << 20);
            assert_ne!(summary.reasons, Reasons::NONE);
            seen += usize::from(summary.reasons.contains(Reasons::OVERFLOW));
        }
    });
    assert!(seen > 10, "{seen}");
}
