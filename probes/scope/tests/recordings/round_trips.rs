//! A path that was stepped, written as packets, is decoded to the same path; and the packets are those of libipt's encoder.
use scalpel_scope::pt::encode::{self, Shape};
use scalpel_scope::pt::{self, live};
use scalpel_scope::trace::Form;
use scalpel_scope::{Reasons, Trace};

use crate::packets::{decode, image, path, shapes};
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
        for shape in shapes() {
            see(&trace, shape, &encode::path(&trace, shape).unwrap());
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
