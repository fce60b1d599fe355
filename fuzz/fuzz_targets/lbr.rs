//! Branch records as they come from a stranger: runs are straight lines of real code, and never complete.
#![no_main]

use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use scalpel_scope::Reasons;
use scalpel_scope::lbr::{Branch, Runs};
use scalpel_scope::pt::{CodeBytes, Image, Space};
use scalpel_scope::sink::Kept;
use scalpel_scope::symbol::{Resolver, Symbol};

const BASE: u64 = 0x40_0000;

struct NoNames;

impl Resolver for NoNames {
    fn resolve(&mut self, _addr: u64) -> Option<Symbol> {
        None
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&size, rest)) = bytes.split_first() else {
        return;
    };
    let (code, records) = rest.split_at(usize::from(size).min(rest.len()));
    let image = Image::new().expect("libipt is installed");
    let bytes = CodeBytes::new(code.to_vec()).expect("memory");
    image.map(BASE, &bytes, 0, code.len() as u64).expect("a piece of code");
    let image = Rc::new(image);
    let mut kept = Kept::default();
    let mut runs = Runs::new(&mut kept);
    // Near addresses in 3 bytes, so that records meet code.
    let branches: Vec<Branch> = records
        .chunks_exact(3)
        .map(|record| Branch {
            from: BASE + u64::from(record[0]),
            to: BASE + u64::from(record[1]),
            flags: u64::from(record[2] & 0xf) | u64::from(record[2] >> 4) << 24,
        })
        .collect();
    for stack in branches.chunks(16) {
        let mut space = Space { id: 0, image: &image, names: &mut NoNames };
        runs.sample(0, &mut space, stack);
    }
    let summary = runs.finish();
    assert!(summary.reasons.contains(Reasons::SAMPLED));
    assert_eq!(summary.instructions, kept.steps.len() as u64);
    assert!(!summary.reasons.contains(Reasons::DECODE), "{}", summary.reasons);
});
