//! Reads a catalog from a file that may come from anybody: every number is checked where it is read.

use rusqlite::Row;

use super::super::read::{Checked, Tables, damaged};
use super::super::rows::{func, unsigned};
use super::super::schema::language_of;
use super::schema;
use crate::catalog::{
    Catalog, DefId, Definition, Edge, FactsOfFiles, File, FileId, FoundBy, Gap, GapKind, How, Kind,
    Matches, Native, Outcome, Piece, PieceKind, RootId, Why,
};

/// All tables of what exists.
pub(in crate::genome::store) fn read(tables: &mut Tables<'_>) -> Checked<Catalog> {
    let mut catalog = Catalog::default();
    read_files(tables, &mut catalog)?;
    read_definitions(tables, &mut catalog)?;
    read_native(tables, &mut catalog)?;
    let most = catalog.definitions.len();
    tables.rows("static_pieces", |row| {
        catalog.pieces.push(piece(row, most)?);
        Ok(())
    })?;
    tables.rows("static_edges", |row| {
        catalog.edges.push(edge(row, most)?);
        Ok(())
    })?;
    let files = catalog.files.len();
    tables.rows("static_gaps", |row| {
        catalog.gaps.push(gap(row, files)?);
        Ok(())
    })?;
    Ok(catalog)
}

/// What the next build needs of each file; nothing where there is no such table.
pub(in crate::genome::store) fn read_facts(
    tables: &mut Tables<'_>,
    catalog: &Catalog,
) -> Checked<FactsOfFiles> {
    let mut facts = FactsOfFiles::default();
    if !tables.has_table("static_facts", schema::FACTS)? {
        return Ok(facts);
    }
    let files = catalog.files.len();
    tables.rows("static_facts", |row| {
        let file = FileId(number(row, 0, files, "a file")?);
        facts.insert(file, (row.get(1)?, row.get(2)?));
        Ok(())
    })?;
    Ok(facts)
}

/// What functions, of which there are so many, are among what exists.
pub(in crate::genome::store) fn read_matches(
    tables: &mut Tables<'_>,
    functions: usize,
    catalog: &Catalog,
) -> Checked<Matches> {
    let mut matches = Matches::default();
    let (files, definitions) = (catalog.files.len(), catalog.definitions.len());
    tables.rows("matches", |row| {
        let found = maybe(row, 1, definitions, "a definition")?;
        let outcome = match found.map(DefId) {
            Some(id) => Outcome::Matched(id),
            None => Outcome::Unmatched(word(row, 2, Why::of_word)?),
        };
        matches.outcomes.insert(func(row, 0, functions)?, outcome);
        Ok(())
    })?;
    tables.rows("static_bundled", |row| {
        let file = number(row, 0, files, "a file")?;
        matches.bundled.insert(FileId(file));
        Ok(())
    })?;
    for (table, found) in [
        ("static_built", &mut matches.built),
        ("static_folded", &mut matches.folded),
        ("static_maybe", &mut matches.maybe),
    ] {
        tables.rows(table, |row| {
            found.insert(DefId(number(row, 0, definitions, "a definition")?));
            Ok(())
        })?;
    }
    Ok(matches)
}

fn read_files(tables: &mut Tables<'_>, catalog: &mut Catalog) -> Checked<()> {
    tables.rows("static_roots", |row| {
        in_order(row, catalog.roots.len(), "roots")?;
        catalog.roots.push(row.get(1)?);
        Ok(())
    })?;
    let roots = catalog.roots.len();
    tables.rows("static_files", |row| {
        in_order(row, catalog.files.len(), "files")?;
        catalog.files.push(file(row, roots)?);
        Ok(())
    })
}

fn in_order(row: &Row<'_>, expected: usize, what: &str) -> Checked<()> {
    if unsigned(row, 0)? == expected as u64 {
        return Ok(());
    }
    damaged(format!("its static {what} are not numbered 0, 1, 2 ..."))
}

fn file(row: &Row<'_>, roots: usize) -> Checked<File> {
    let language: String = row.get(3)?;
    let Some(language) = language_of(&language) else {
        return damaged(format!("it has a file of language {language:?}"));
    };
    Ok(File {
        root: maybe(row, 1, roots, "a root")?.map(RootId),
        path: row.get(2)?,
        language,
        content: row.get(4)?,
        text_hash: hash(row, 5)?,
        build_id: row.get(6)?,
        bytes: unsigned(row, 7)?,
        lines: row.get(8)?,
        calls: row.get(9)?,
        resolved: row.get(10)?,
    })
}

/// NULL is 0.
fn hash(row: &Row<'_>, at: usize) -> Checked<u64> {
    let bytes: Option<[u8; 8]> = row.get(at)?;
    Ok(bytes.map_or(0, u64::from_be_bytes))
}

fn read_definitions(tables: &mut Tables<'_>, catalog: &mut Catalog) -> Checked<()> {
    let files = catalog.files.len();
    let definitions = &mut catalog.definitions;
    tables.rows("static_definitions", |row| {
        in_order(row, definitions.len(), "definitions")?;
        let read = definition(row, files, definitions.len())?;
        let strange = |parent: DefId| {
            definitions
                .get(parent.index())
                .is_none_or(|parent: &Definition| parent.file != read.file)
        };
        if read.parent.is_some_and(strange) {
            return damaged("a definition lies in one of another file");
        }
        definitions.push(read);
        Ok(())
    })
}

fn definition(row: &Row<'_>, files: usize, before: usize) -> Checked<Definition> {
    let mut places = [0; schema::PLACES];
    for (at, place) in (schema::FIRST_PLACE..).zip(&mut places) {
        *place = row.get(at)?;
    }
    Ok(Definition {
        file: FileId(number(row, 1, files, "a file")?),
        // Parents come first: no walk can run in a circle.
        parent: maybe(row, 2, before, "a definition before it")?.map(DefId),
        kind: word(row, 3, Kind::of_word)?,
        name: row.get(4)?,
        qualified: row.get(5)?,
        ordinal: row.get(6)?,
        flags: schema::flags_of(row.get(7)?),
        body_hash: hash(row, 8)?,
        span: schema::span_of(places),
        native: None,
    })
}

fn read_native(tables: &mut Tables<'_>, catalog: &mut Catalog) -> Checked<()> {
    let definitions = &mut catalog.definitions;
    tables.rows("static_native", |row| {
        let id: u32 = row.get(0)?;
        let Some(definition) = definitions.get_mut(id as usize) else {
            return damaged(format!("it names a definition {id} that is not there"));
        };
        definition.native = Some(Native {
            raw_name: row.get(1)?,
            address: row.get::<_, i64>(2)?.cast_unsigned(),
            file_offset: row.get::<_, i64>(3)?.cast_unsigned(),
            size: unsigned(row, 4)?,
            source: row.get(5)?,
            line: row.get(6)?,
            found_by: word(row, 7, FoundBy::of_word)?,
            column: row.get(8)?,
        });
        Ok(())
    })
}

fn piece(row: &Row<'_>, definitions: usize) -> Checked<Piece> {
    Ok(Piece {
        of: DefId(number(row, 0, definitions, "a definition")?),
        kind: word(row, 1, PieceKind::of_word)?,
        address: row.get::<_, i64>(2)?.cast_unsigned(),
        file_offset: row.get::<_, i64>(3)?.cast_unsigned(),
        size: unsigned(row, 4)?,
        host: maybe(row, 5, definitions, "a definition")?.map(DefId),
    })
}

fn edge(row: &Row<'_>, definitions: usize) -> Checked<Edge> {
    Ok(Edge {
        caller: DefId(number(row, 0, definitions, "a definition")?),
        callee: DefId(number(row, 1, definitions, "a definition")?),
        how: word(row, 2, How::of_word)?,
        at: row.get::<_, i64>(3)?.cast_unsigned(),
        line: row.get(4)?,
        column: row.get(5)?,
    })
}

fn gap(row: &Row<'_>, files: usize) -> Checked<Gap> {
    Ok(Gap {
        file: maybe(row, 0, files, "a file")?.map(FileId),
        kind: word(row, 1, GapKind::of_word)?,
        line: row.get(2)?,
        count: row.get(3)?,
        detail: row.get(4)?,
    })
}

fn word<T>(row: &Row<'_>, at: usize, of_word: impl Fn(&str) -> Option<T>) -> Checked<T> {
    let text: String = row.get(at)?;
    match of_word(&text) {
        Some(word) => Ok(word),
        None => damaged(format!(
            "it has a word {text:?} that this version does not know"
        )),
    }
}

fn number(row: &Row<'_>, at: usize, below: usize, what: &str) -> Checked<u32> {
    let number: u32 = row.get(at)?;
    if (number as usize) < below {
        return Ok(number);
    }
    damaged(format!("it names {what} {number} that is not there"))
}

fn maybe(row: &Row<'_>, at: usize, below: usize, what: &str) -> Checked<Option<u32>> {
    match row.get::<_, Option<i64>>(at)? {
        Some(_) => number(row, at, below, what).map(Some),
        None => Ok(None),
    }
}
