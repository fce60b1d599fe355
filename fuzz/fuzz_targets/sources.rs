//! Source texts of all languages: none makes a parser, the walk through its tree or the search for calls panic, run for
//! ever, or tell of places that are not in the text.
//!
//! The first byte of an input chooses the language.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalpel_user::catalog::Catalog;
use scalpel_user::static_;

const NAMES: [&str; 15] = [
    "a.py", "a.js", "a.ts", "a.tsx", "a.go", "a.rs", "a.c", "a.cc", "a.h", "a.java", "a.php", "a.rb", "a.cs", "a.lua",
    "a.zig",
];

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, text)) = bytes.split_first() else { return };
    let name = NAMES[usize::from(choice) % NAMES.len()];
    let catalog = static_::of_text(name, text.to_vec()).expect("a name of a known language");
    assert_sound(&catalog, text);
});

fn assert_sound(catalog: &Catalog, text: &[u8]) {
    let lines = text.iter().filter(|&&byte| matches!(byte, b'\n' | b'\r')).count() as u32 + 1;
    for (id, definition) in catalog.numbered() {
        let span = &definition.span;
        assert!(span.declared.byte <= span.start.byte, "{definition:?}");
        assert!(span.start.byte <= span.end.byte, "{definition:?}");
        assert!(span.end.byte as usize <= text.len(), "{definition:?}");
        assert!(span.end.line <= lines, "{definition:?}");
        if let Some(parent) = definition.parent {
            assert!(parent < id, "parents come first");
        }
    }
    for edge in &catalog.edges {
        assert!(catalog.definition(edge.caller).is_some(), "{edge:?}");
        assert!(catalog.definition(edge.callee).is_some(), "{edge:?}");
        assert!((edge.at as usize) < text.len(), "{edge:?}");
    }
    let file = &catalog.files[0];
    assert!(file.resolved <= file.calls, "{file:?}");
}
