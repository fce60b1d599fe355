//! Names and texts of the tables of what exists. A change of any text is a new version of the file.

use crate::catalog::{Definition, Flags, Position, Span};

/// As [`super::super::schema::TABLES`].
pub(in crate::genome::store) const TABLES: &[(&str, &str)] = &[
    (
        "static_roots",
        "CREATE TABLE static_roots(id INTEGER PRIMARY KEY, path TEXT NOT NULL) STRICT",
    ),
    (
        "static_files",
        "CREATE TABLE static_files(id INTEGER PRIMARY KEY, root INTEGER, path TEXT NOT NULL, language TEXT NOT NULL, \
         content BLOB NOT NULL, text_hash BLOB, build_id TEXT NOT NULL, bytes INTEGER NOT NULL, lines INTEGER NOT NULL, \
         calls INTEGER NOT NULL, resolved INTEGER NOT NULL) STRICT",
    ),
    (
        "static_definitions",
        "CREATE TABLE static_definitions(id INTEGER PRIMARY KEY, file INTEGER NOT NULL, parent INTEGER, kind TEXT NOT NULL, \
         name TEXT NOT NULL, qualified TEXT NOT NULL, ordinal INTEGER NOT NULL, flags INTEGER NOT NULL, body_hash BLOB, \
         start_byte INTEGER NOT NULL, start_utf16 INTEGER NOT NULL, start_line INTEGER NOT NULL, start_column INTEGER NOT NULL, \
         end_byte INTEGER NOT NULL, end_utf16 INTEGER NOT NULL, end_line INTEGER NOT NULL, end_column INTEGER NOT NULL, \
         declared_byte INTEGER NOT NULL, declared_utf16 INTEGER NOT NULL, declared_line INTEGER NOT NULL, \
         declared_column INTEGER NOT NULL, \
         name_byte INTEGER NOT NULL, name_utf16 INTEGER NOT NULL, name_line INTEGER NOT NULL, name_column INTEGER NOT NULL, \
         body_byte INTEGER NOT NULL, body_utf16 INTEGER NOT NULL, body_line INTEGER NOT NULL, body_column INTEGER NOT NULL) STRICT",
    ),
    (
        "static_native",
        "CREATE TABLE static_native(definition INTEGER PRIMARY KEY, raw_name TEXT NOT NULL, address INTEGER NOT NULL, \
         file_offset INTEGER NOT NULL, size INTEGER NOT NULL, source TEXT, line INTEGER, found_by TEXT NOT NULL, col INTEGER) STRICT",
    ),
    (
        "static_pieces",
        "CREATE TABLE static_pieces(definition INTEGER NOT NULL, kind TEXT NOT NULL, address INTEGER NOT NULL, \
         file_offset INTEGER NOT NULL, size INTEGER NOT NULL, host INTEGER) STRICT",
    ),
    (
        "static_edges",
        "CREATE TABLE static_edges(caller INTEGER NOT NULL, callee INTEGER NOT NULL, how TEXT NOT NULL, at INTEGER NOT NULL, \
         line INTEGER NOT NULL, column INTEGER NOT NULL) STRICT",
    ),
    (
        "static_gaps",
        "CREATE TABLE static_gaps(file INTEGER, kind TEXT NOT NULL, line INTEGER NOT NULL, count INTEGER NOT NULL, \
         detail TEXT NOT NULL) STRICT",
    ),
];

/// As [`super::super::schema::BEFORE_3`], of versions 3 to 7.
pub(in crate::genome::store) const BEFORE_8: &[(&str, &str, &str)] = &[(
    "static_native",
    "*, NULL",
    "CREATE TABLE static_native(definition INTEGER PRIMARY KEY, raw_name TEXT NOT NULL, address INTEGER NOT NULL, \
     file_offset INTEGER NOT NULL, size INTEGER NOT NULL, source TEXT, line INTEGER, found_by TEXT NOT NULL) STRICT",
)];

/// What functions of the runs are among what exists, since version 4. A function that was never looked for has no row.
pub(in crate::genome::store) const MATCHES: &[(&str, &str)] = &[
    (
        "matches",
        "CREATE TABLE matches(func INTEGER PRIMARY KEY, definition INTEGER, why TEXT) STRICT",
    ),
    (
        "static_bundled",
        "CREATE TABLE static_bundled(file INTEGER PRIMARY KEY) STRICT",
    ),
    (
        "static_built",
        "CREATE TABLE static_built(definition INTEGER PRIMARY KEY) STRICT",
    ),
    (
        "static_folded",
        "CREATE TABLE static_folded(definition INTEGER PRIMARY KEY) STRICT",
    ),
    (
        "static_maybe",
        "CREATE TABLE static_maybe(definition INTEGER PRIMARY KEY) STRICT",
    ),
];

/// What became of each definition, for people with a SQLite shell. A reader of ours derives it anew.
pub(in crate::genome::store) const STATES: &str = "CREATE TABLE static_states(definition INTEGER PRIMARY KEY, state TEXT NOT NULL, why TEXT) STRICT";

/// What a later `genome build` needs to know of a file that did not change: of no use to other readers.
pub(in crate::genome::store) const FACTS: &str = "CREATE TABLE static_facts(file INTEGER PRIMARY KEY, version INTEGER NOT NULL, facts BLOB NOT NULL) STRICT";

/// Views for people with a SQLite shell.
pub(in crate::genome::store) const VIEWS: &str = "\
CREATE VIEW static_functions AS SELECT d.id, f.path AS file, d.start_line AS line, d.kind, d.qualified, d.ordinal, f.language \
 FROM static_definitions d JOIN static_files f ON f.id = d.file;
CREATE VIEW static_calls AS SELECT a.qualified AS caller, b.qualified AS callee, e.how, f.path AS file, e.line \
 FROM static_edges e JOIN static_definitions a ON a.id = e.caller JOIN static_definitions b ON b.id = e.callee \
 JOIN static_files f ON f.id = a.file;
CREATE VIEW matched AS SELECT f.key, f.name, s.path AS file, d.start_line AS line, d.qualified AS definition, m.why \
 FROM matches m JOIN functions f ON f.id = m.func LEFT JOIN static_definitions d ON d.id = m.definition \
 LEFT JOIN static_files s ON s.id = d.file;
CREATE VIEW static_unseen AS SELECT f.path AS file, d.start_line AS line, d.kind, d.qualified, s.state, s.why \
 FROM static_states s JOIN static_definitions d ON d.id = s.definition JOIN static_files f ON f.id = d.file \
 WHERE s.state <> 'ran';";

/// The first column of the places in `static_definitions`.
pub(super) const FIRST_PLACE: usize = 9;
/// How many columns they take.
pub(super) const PLACES: usize = 20;

/// Places in the order of the columns.
pub(super) fn place_columns(span: &Span) -> impl Iterator<Item = u32> {
    [span.start, span.end, span.declared, span.name, span.body]
        .into_iter()
        .flat_map(|at| [at.byte, at.utf16, at.line, at.column])
}

/// Reverse of [`place_columns`].
pub(super) const fn span_of(columns: [u32; PLACES]) -> Span {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = columns;
    Span {
        start: position(a, b, c, d),
        end: position(e, f, g, h),
        declared: position(i, j, k, l),
        name: position(m, n, o, p),
        body: position(q, r, s, t),
    }
}

const fn position(byte: u32, utf16: u32, line: u32, column: u32) -> Position {
    Position {
        byte,
        utf16,
        line,
        column,
    }
}

/// Flags as bits: 0 async, 1 generator, 2 static, 3 anonymous, 4 doubtful, 5 declared only.
pub(super) fn flag_bits(definition: &Definition) -> u32 {
    let flags = definition.flags;
    let bits = [
        flags.is_async,
        flags.generator,
        flags.is_static,
        flags.anonymous,
        flags.doubtful,
        flags.declared,
    ];
    bits.iter()
        .rev()
        .fold(0, |sum, &bit| sum << 1 | u32::from(bit))
}

/// Reverse of [`flag_bits`]; bits that are not known are left out.
pub(super) fn flags_of(bits: u32) -> Flags {
    let has = |bit: u32| bits >> bit & 1 == 1;
    Flags {
        is_async: has(0),
        generator: has(1),
        is_static: has(2),
        anonymous: has(3),
        doubtful: has(4),
        declared: has(5),
    }
}
