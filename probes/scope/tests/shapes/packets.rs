//! Traces as the packets of Intel PT that a processor would write for them, decoded again.
use scalpel_scope::Trace;
use scalpel_scope::pt::encode::Shape;
use scalpel_scope::pt::{Clock, CodeBytes, Flows, Image, Single, Stream, Summary};
use scalpel_scope::sink::Kept;
use scalpel_scope::symbol::{Resolver, Symbol};

/// All ways to write a path.
pub(crate) fn shapes() -> impl Iterator<Item = Shape> {
    (0..8).map(|number| Shape {
        compressed_returns: number & 1 != 0,
        long_branches: number & 2 != 0,
        psb_every: if number & 4 != 0 { 16 } else { 0 },
    })
}

/// The code of a trace, in pieces of what stands together.
pub(crate) fn image(trace: &Trace) -> Image {
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

/// What packets and the code of a trace tell, decoded in stretches.
pub(crate) fn decode(trace: &Trace, packets: &[u8], stretch: usize) -> (Summary, Vec<u64>) {
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
pub(crate) fn path(trace: &Trace) -> Vec<u64> {
    let addr = |step| trace.code_of(step).unwrap().addr;
    trace.steps.iter().map(addr).collect()
}
