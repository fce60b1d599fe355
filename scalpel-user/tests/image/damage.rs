//! Foreign bytes never panic, hang or fill the memory.

use std::sync::OnceLock;

use proptest::prelude::*;
use scalpel_user::image::{Disassembler, ExitPolicy, ExitRequest, Image, NoDebugFiles, plan_sites};

use crate::build::Workshop;

fn whole() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let workshop = Workshop::new();
        workshop.source("a.c", "#include <string.h>\nint g(int);\nint f(int x) { if (x > 9) return g(x); return x; }\nint h(const char *s, int x) { switch (x) { case 0: return strlen(s); case 1: return f(2); case 2: return 5; case 3: return f(9); case 4: return 77; default: return g(x) + 1; } }\n");
        workshop.run("gcc -O2 -shared -fPIC -fcf-protection -o a.so a.c").bytes("a.so")
    })
}

/// Everything that reads the bytes.
fn exercise(bytes: &[u8]) {
    let Ok(image) = Image::parse(bytes, "/x/a.so", &NoDebugFiles) else {
        return;
    };
    let all: Vec<usize> = (0..image.functions().len()).collect();
    let disassembler = Disassembler::new();
    for requested in [ExitRequest::Default, ExitRequest::Ret] {
        let policy = ExitPolicy {
            requested,
            ..ExitPolicy::default()
        };
        for plan in plan_sites(&image, &all, &policy) {
            let _ = (
                plan.instruction(&image, &disassembler),
                plan.site_reason(),
                plan.exit.reason.to_string(),
            );
            let file = bytes.len() as u64;
            assert!(plan.site.is_err() || plan.site.is_ok_and(|site| site.offset < file));
            assert!(plan.exit.ret_offsets.iter().all(|&offset| offset < file));
        }
    }
    for function in image.functions() {
        assert!(!function.name().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_cut_file_is_an_error_or_a_smaller_image(cut in 0usize..20_000) {
        let bytes = whole();
        exercise(&bytes[..cut.min(bytes.len())]);
    }

    #[test]
    fn flipped_bits_are_survived(flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..20)) {
        let mut bytes = whole().to_vec();
        for (index, bit) in flips {
            let at = index.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        exercise(&bytes);
    }

    #[test]
    fn hostile_headers_are_survived(words in prop::collection::vec((0usize..0x340, any::<u64>()), 1..8)) {
        let mut bytes = whole().to_vec();
        for (at, word) in words {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[..20].copy_from_slice(&whole()[..20]);
        exercise(&bytes);
    }
}

#[test]
fn a_symbol_at_every_byte_does_not_take_for_ever() {
    let mut source = String::from(".text\n");
    for number in 0..4000 {
        source += &format!(
            ".globl s{number}\n.type s{number},@function\ns{number}: nop\n.size s{number}, 4000-{number}\n"
        );
    }
    source += "ret\n";
    exercise(&crate::build::assemble(&source));
}
