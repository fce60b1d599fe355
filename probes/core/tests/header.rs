//! The committed header is what the source makes, and C reads it: `SCALPEL_BLESS=1 cargo test -p scalpel-probe --test header`
//! writes it.
#![expect(clippy::unwrap_used, reason = "a test")]
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cbindgen::{Config, DocumentationStyle, Language};
use scalpel_common::event::{Kind, Source, flags};
use scalpel_common::segment::{modes, name_flags, note_kind};

const HEAD: &str = "\
/* libscalpel: what an in-process probe of scalpel writes its events with.
 *
 *     if (scalpel_connect(SCALPEL_SOURCE_C, \"my runtime 1.0\") != 0) return;
 *     uint32_t func = scalpel_new_function();
 *     struct scalpel_name name = {.source = SCALPEL_SOURCE_C, .line = 7, .column = UINT32_MAX, .start = UINT32_MAX,
 *                                 .end = UINT32_MAX, .name = \"work\", .file = \"app.c\"};
 *     scalpel_name_function(func, &name);
 *     uint64_t token = scalpel_enter(SCALPEL_SOURCE_C, func, frame, 0, 0, 0);
 *     ...
 *     if (token) scalpel_exit(token, SCALPEL_SOURCE_C, func, frame, 0, 0, 0);
 *
 * Nothing here unwinds, locks, or touches errno, and no call but scalpel_connect blocks (two seconds at most). Generated
 * from the sources of scalpel-probe: do not edit. MIT OR Apache-2.0. */";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_committed_header_is_what_the_source_makes() {
    let path = root().join("include/scalpel.h");
    let made = header();
    if std::env::var_os("SCALPEL_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/scalpel.h is stale: run this test with SCALPEL_BLESS=1"
    );
}

#[test]
fn c_and_cpp_read_the_header() {
    for (compiler, language, standard) in [("cc", "c", "-std=c99"), ("c++", "c++", "-std=c++17")] {
        let status = Command::new(compiler)
            .args([
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pedantic",
                "-fsyntax-only",
                standard,
                "-x",
                language,
            ])
            .arg(root().join("include/scalpel.h"))
            .status()
            .unwrap();
        assert!(status.success(), "{compiler} refuses the header");
    }
}

fn header() -> String {
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        include_guard: Some("SCALPEL_H".into()),
        no_includes: true,
        sys_includes: vec!["stdbool.h".into(), "stddef.h".into(), "stdint.h".into()],
        documentation_style: DocumentationStyle::C99,
        header: Some(HEAD.into()),
        after_includes: Some(format!("\n{}", numbers())),
        style: cbindgen::Style::Tag,
        ..Config::default()
    };
    let source: PathBuf = root().join("src/abi.rs");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(source)
        .generate()
        .unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).unwrap()
}

fn numbers() -> String {
    let mut text = String::new();
    let mut define = |group: &str, name: &str, number: u64| {
        writeln!(text, "#define SCALPEL_{group}_{name} {number}").unwrap();
    };
    for source in Source::ALL {
        define("SOURCE", &upper(&format!("{source:?}")), *source as u64);
    }
    for kind in Kind::ALL {
        define("KIND", &upper(&format!("{kind:?}")), *kind as u64);
    }
    let flag = [
        ("ASYNC", flags::ASYNC),
        ("TAIL_CALL", flags::TAIL_CALL),
        ("INFERRED", flags::INFERRED),
        ("C_FUNCTION", flags::C_FUNCTION),
        ("CLASS_BODY", flags::CLASS_BODY),
    ];
    for (name, number) in flag {
        define("FLAG", name, number.into());
    }
    let mode = [
        ("CALL", modes::CALL),
        ("COUNT", modes::COUNT),
        ("NATIVE", modes::NATIVE),
    ];
    for (name, number) in mode {
        define("MODE", name, number.into());
    }
    let name_flag = [
        ("ASYNC", name_flags::ASYNC),
        ("GENERATOR", name_flags::GENERATOR),
        ("NATIVE", name_flags::NATIVE),
        ("GENERATED", name_flags::GENERATED),
        ("CLASS_BODY", name_flags::CLASS_BODY),
        ("MODULE", name_flags::MODULE),
        ("ANONYMOUS", name_flags::ANONYMOUS),
        ("STANDARD_LIBRARY", name_flags::STANDARD_LIBRARY),
        ("THIRD_PARTY", name_flags::THIRD_PARTY),
    ];
    for (name, number) in name_flag {
        define("NAME", name, number.into());
    }
    let note = [
        ("RUNTIME", note_kind::RUNTIME),
        ("BLIND_SPOT", note_kind::BLIND_SPOT),
        ("GAP", note_kind::GAP),
        ("REFUSAL", note_kind::REFUSAL),
        ("NOTE", note_kind::NOTE),
        ("EXCLUDED", note_kind::EXCLUDED),
    ];
    for (name, number) in note {
        define("NOTE", name, number.into());
    }
    text
}

/// `SwitchIn` -> `SWITCH_IN`.
fn upper(name: &str) -> String {
    let mut text = String::new();
    for (at, letter) in name.char_indices() {
        if at > 0 && letter.is_uppercase() {
            text.push('_');
        }
        text.extend(letter.to_uppercase());
    }
    text
}
