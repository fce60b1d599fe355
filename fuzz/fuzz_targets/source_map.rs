//! Source maps come with the program: no map may make the reader panic, loop, or map outside of what it was given.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalpel_user::catalog::hash;
use scalpel_user::maps::{Map, Maps, Original, Place};

fuzz_target!(|bytes: &[u8]| {
    let cut = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (json, text) = bytes.split_at(cut);
    let text = String::from_utf8_lossy(text);
    let Ok(map) = Map::parse(json, &text, str::to_owned, hash) else {
        return;
    };
    let units = text.encode_utf16().count() as u32;
    for start in 0..units.min(64) {
        let stretch = map.stretch(start, units);
        if stretch.start.is_some() {
            assert_eq!(stretch.start, stretch.first, "the first of a stretch that starts with one");
        }
        assert_eq!(stretch.first.is_some(), stretch.last.is_some());
        let empty = map.stretch(start, start);
        assert!(empty.first.is_none() || start == 0 || empty.last.is_some());
    }
    follow(map);
});

/// A chain that leads to itself ends.
fn follow(map: Map) {
    let sources: Vec<String> = map.sources().map(str::to_owned).collect();
    let mut maps = Maps::default();
    for source in &sources {
        maps.chain(source.clone(), map.clone());
    }
    for source in &sources {
        let place = Place::default();
        assert!(maps.follow(Original { source, place }).is_none());
    }
}
