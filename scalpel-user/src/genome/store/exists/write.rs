//! Writes the rows of a catalog.

use rusqlite::{Connection, params};

use super::super::write::{Sqlite, insert, int};
use super::schema;
use crate::catalog::{Catalog, DefId, Definition, FactsOfFiles, Matches, Outcome, RootId};
use crate::function::Language;

/// Fills the tables of what exists.
pub(in crate::genome::store) fn write(catalog: &Catalog, db: &Connection) -> Sqlite<()> {
    write_files(catalog, db)?;
    write_definitions(catalog, db)?;
    write_pieces(catalog, db)?;
    write_edges(catalog, db)?;
    write_gaps(catalog, db)
}

fn write_files(catalog: &Catalog, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "static_roots", 2)?;
    for (id, root) in (0i64..).zip(&catalog.roots) {
        row.execute((id, root))?;
    }
    let mut row = insert(db, "static_files", 11)?;
    for (id, file) in catalog.numbered_files() {
        let is_text = file.language != Language::Native;
        row.execute(params![
            id.0,
            file.root.map(|RootId(root)| root),
            file.path,
            file.language.word(),
            file.content,
            is_text.then(|| file.text_hash.to_be_bytes()),
            file.build_id,
            int(file.bytes),
            file.lines,
            file.calls,
            file.resolved,
        ])?;
    }
    Ok(())
}

fn write_definitions(catalog: &Catalog, db: &Connection) -> Sqlite<()> {
    let columns = schema::FIRST_PLACE + schema::PLACES;
    let mut row = insert(db, "static_definitions", columns)?;
    for (id, definition) in catalog.numbered() {
        row.raw_bind_parameter(1, id.0)?;
        row.raw_bind_parameter(2, definition.file.0)?;
        row.raw_bind_parameter(3, definition.parent.map(|DefId(parent)| parent))?;
        row.raw_bind_parameter(4, definition.kind.word())?;
        row.raw_bind_parameter(5, &definition.name)?;
        row.raw_bind_parameter(6, &definition.qualified)?;
        row.raw_bind_parameter(7, definition.ordinal)?;
        row.raw_bind_parameter(8, schema::flag_bits(definition))?;
        row.raw_bind_parameter(9, hash(definition.body_hash))?;
        for (at, value) in (10usize..).zip(schema::place_columns(&definition.span)) {
            row.raw_bind_parameter(at, value)?;
        }
        row.raw_execute()?;
    }
    write_native(catalog, db)
}

fn write_native(catalog: &Catalog, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "static_native", 9)?;
    for (id, definition) in catalog.numbered() {
        let Definition { native, .. } = definition;
        if let Some(native) = native {
            row.execute(params![
                id.0,
                native.raw_name,
                native.address.cast_signed(),
                native.file_offset.cast_signed(),
                int(native.size),
                native.source,
                native.line,
                native.found_by.word(),
                native.column,
            ])?;
        }
    }
    Ok(())
}

/// What the next build needs of each file.
pub(in crate::genome::store) fn write_facts(facts: &FactsOfFiles, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "static_facts", 3)?;
    let mut order: Vec<_> = facts.iter().collect();
    order.sort_unstable_by_key(|(file, _)| **file);
    for (file, (version, facts)) in order {
        row.execute((file.0, version, facts))?;
    }
    Ok(())
}

/// What functions are among what exists, and what became of that.
pub(in crate::genome::store) fn write_matches(matches: &Matches, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "matches", 3)?;
    for (func, outcome) in &matches.outcomes {
        let (definition, why) = match outcome {
            Outcome::Matched(DefId(id)) => (Some(id), None),
            Outcome::Unmatched(why) => (None, Some(why.word())),
        };
        row.execute((func.get(), definition, why))?;
    }
    let mut row = insert(db, "static_bundled", 1)?;
    for file in &matches.bundled {
        row.execute([file.0])?;
    }
    for (table, definitions) in [
        ("static_built", &matches.built),
        ("static_folded", &matches.folded),
        ("static_maybe", &matches.maybe),
    ] {
        let mut row = insert(db, table, 1)?;
        for definition in definitions {
            row.execute([definition.0])?;
        }
    }
    let mut row = insert(db, "static_states", 3)?;
    for (id, state) in (0i64..).zip(&matches.states) {
        let (word, why) = state.words();
        row.execute((id, word, why))?;
    }
    Ok(())
}

/// 0 is *none*.
fn hash(value: u64) -> Option<[u8; 8]> {
    (value != 0).then(|| value.to_be_bytes())
}

fn write_pieces(catalog: &Catalog, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "static_pieces", 6)?;
    for piece in &catalog.pieces {
        row.execute(params![
            piece.of.0,
            piece.kind.word(),
            piece.address.cast_signed(),
            piece.file_offset.cast_signed(),
            int(piece.size),
            piece.host.map(|DefId(host)| host),
        ])?;
    }
    Ok(())
}

fn write_edges(catalog: &Catalog, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "static_edges", 6)?;
    for edge in &catalog.edges {
        row.execute(params![
            edge.caller.0,
            edge.callee.0,
            edge.how.word(),
            edge.at.cast_signed(),
            edge.line,
            edge.column,
        ])?;
    }
    Ok(())
}

fn write_gaps(catalog: &Catalog, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "static_gaps", 5)?;
    for gap in &catalog.gaps {
        let file = gap.file.map(|file| file.0);
        row.execute(params![
            file,
            gap.kind.word(),
            gap.line,
            gap.count,
            gap.detail
        ])?;
    }
    Ok(())
}
