//! The committed header is what the sources make. `SCALPEL_BLESS=1 cargo test -p scalpel-scope-c --test header` writes it.
#![expect(clippy::unwrap_used, reason = "a test")]
use std::fmt::Write as _;
use std::path::Path;

use cbindgen::{Config, DocumentationStyle, ExportConfig, Language};
use engine::Reasons;

const HEAD: &str = "\
/* scalpel scopes: the exact instructions of one region of a running thread. Complete, or truncated for named reasons.
 *
 * Open, run, close, all on one thread:
 *
 *     struct scalpel_scope_request request = {0};
 *     uint64_t scope;
 *     struct scalpel_trace *trace;
 *     request.size = sizeof request;
 *     request.file = __FILE__;
 *     request.line = __LINE__;
 *     scalpel_scope_open(&request, &scope);
 *     hot_path(data);
 *     scalpel_scope_close(scope, SCALPEL_SCOPE_END_CLOSE, &trace);
 *
 * A handle pairs one open with one close and is never used again, so that a stale one is refused. Nothing here unwinds
 * or calls back. Before the first open nothing is installed or allocated; with SCALPEL_SCOPE=off in the environment
 * nothing ever is. Generated from the sources of scalpel-scope-c: do not edit. MIT OR Apache-2.0. */";

#[test]
fn the_committed_header_is_what_the_sources_make() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/scalpel_scope.h");
    let made = header(root);
    if std::env::var_os("SCALPEL_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/scalpel_scope.h is stale: run this test with SCALPEL_BLESS=1"
    );
}

fn header(root: &Path) -> String {
    let rename = [
        ("Request", "scalpel_scope_request"),
        ("Totals", "scalpel_scope_totals"),
        ("Info", "scalpel_trace_info"),
        ("Step", "scalpel_trace_step"),
        ("Trace", "scalpel_trace"),
        ("Function", "scalpel_function"),
    ];
    let config = Config {
        language: Language::C,
        header: Some(HEAD.to_owned()),
        include_guard: Some("SCALPEL_SCOPE_H".to_owned()),
        cpp_compat: true,
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        after_includes: Some(reasons()),
        style: cbindgen::Style::Tag,
        usize_is_size_t: true,
        line_length: 110,
        export: ExportConfig {
            rename: rename
                .map(|(from, to)| (from.to_owned(), to.to_owned()))
                .into_iter()
                .collect(),
            ..ExportConfig::default()
        },
        documentation_style: DocumentationStyle::C99,
        ..Config::default()
    };
    let mut out = Vec::new();
    let builder = cbindgen::Builder::new().with_src(root.join("src/lib.rs"));
    builder
        .with_config(config)
        .generate()
        .unwrap()
        .write(&mut out);
    String::from_utf8(out).unwrap()
}

/// The bits of `reasons`, from the engine's own table.
fn reasons() -> String {
    let mut text = "\n// Why a trace may lack something: bits of `reasons`.".to_owned();
    for (reason, word, sentence) in Reasons::all() {
        let name = word.replace([' ', '-'], "_").to_uppercase();
        let bit = reason.bits().trailing_zeros();
        write!(
            text,
            "\n// {sentence}\n#define SCALPEL_REASON_{name} (1u << {bit})"
        )
        .unwrap();
    }
    text
}
