//! Packets of Intel PT as they come from a stranger, over code that is strange too: whatever is decoded can be joined, and
//! stretches of any size give the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalpel_fuzz::Counts;
use scalpel_scope::pt::{Clock, CodeBytes, Flows, Image, Processor, Single, Stream, Summary};
use scalpel_scope::symbol::{Resolver, Symbol};

/// Where the code stands.
const BASE: u64 = 0x40_0000;
/// Packets that tell little may stand for very much code.
const MOST_PACKETS: usize = 4096;

struct NoNames;

impl Resolver for NoNames {
    fn resolve(&mut self, _addr: u64) -> Option<Symbol> {
        None
    }
}

fn decode(code: &[u8], packets: &[u8], stretch: usize) -> (Summary, Counts) {
    let image = Image::new().expect("libipt is installed");
    let bytes = CodeBytes::new(code.to_vec()).expect("memory");
    image.map(BASE, &bytes, 0, code.len() as u64).expect("a piece of code");
    let mut names = NoNames;
    let mut guide = Single::new(image, &mut names);
    let mut counts = Counts::default();
    let mut flows = Flows::new(&mut counts);
    let processor = Some(Processor { family: 6, model: 79, stepping: 1 });
    let mut stream = Stream::new(processor, Clock::default()).in_stretches_of(stretch);
    stream.all(packets, &mut guide, &mut flows).expect("libipt is installed");
    (flows.finish(), counts)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[size, small], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let (code, packets) = rest.split_at(usize::from(size).min(rest.len()));
    let packets = &packets[..packets.len().min(MOST_PACKETS)];
    let (summary, counts) = decode(code, packets, 1 << 20);
    assert_eq!(summary.instructions, counts.steps);
    assert_eq!(summary.distinct, counts.code);
    let (parts, _) = decode(code, packets, 32 + usize::from(small));
    // A whole trace is whole in parts, and the other way round says nothing: a cut may hide what does not fit.
    if summary.reasons.is_empty() && parts.reasons.is_empty() {
        assert_eq!(summary.instructions, parts.instructions);
    }
});
