//! An executable file as it comes from a stranger: parsing it, choosing sites and deciding exits never panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalpel_user::image::{ExitPolicy, Image, NoDebugFiles, plan_sites};

/// Keeps one run short: a file can claim to hold very many.
const MOST_FUNCTIONS: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse(bytes, "fuzzed", &NoDebugFiles) else {
        return;
    };
    let functions: Vec<usize> = (0..image.functions().len().min(MOST_FUNCTIONS)).collect();
    for plan in plan_sites(&image, &functions, &ExitPolicy::default()) {
        let function = image.functions().get(plan.function);
        let name = function.expect("a plan is for a function that is there").name();
        assert!(!name.is_empty());
    }
});
