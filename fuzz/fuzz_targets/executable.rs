//! What exists in an executable as it comes from a stranger: symbols, unwind table, debug information, Go's table and
//! the calls in its code never panic, and what is told of it holds together.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalpel_user::catalog::Catalog;
use scalpel_user::static_;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(catalog) = static_::of_image(bytes) {
        assert_sound(&catalog);
    }
});

fn assert_sound(catalog: &Catalog) {
    for definition in &catalog.definitions {
        assert!(definition.native.is_some(), "{definition:?}");
        assert!(!definition.name.is_empty(), "{definition:?}");
    }
    for piece in &catalog.pieces {
        assert!(catalog.definition(piece.of).is_some(), "{piece:?}");
        assert!(piece.host.is_none_or(|host| catalog.definition(host).is_some()), "{piece:?}");
    }
    for edge in &catalog.edges {
        assert!(catalog.definition(edge.caller).is_some(), "{edge:?}");
        assert!(catalog.definition(edge.callee).is_some(), "{edge:?}");
    }
}
