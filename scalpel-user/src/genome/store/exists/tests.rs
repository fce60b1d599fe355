//! A catalog is kept to the last bit, and nothing that contradicts itself is believed.

use std::fs;
use std::path::PathBuf;

use tempfile::{TempDir, tempdir};

use crate::catalog::tests::example;
use crate::catalog::{Blindness, Catalog, DefId, FileId, Kept, Outcome, State, Why};
use crate::genome::Genome;
use crate::genome::merge::Merged;
use crate::genome::tests::{canonical, example as recording};

fn written() -> (TempDir, PathBuf) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.genome");
    example().write(&path).unwrap();
    (folder, path)
}

#[test]
fn what_exists_is_read_as_it_was_written() {
    let (_folder, path) = written();
    assert_eq!(Catalog::read(&path).unwrap(), example());
}

#[test]
fn what_exists_is_kept_beside_what_ran() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.genome");
    let genome = Genome {
        catalog: example(),
        ..recording()
    };
    genome.write(&path).unwrap();
    assert_eq!(Genome::read(&path).unwrap().catalog, example());
    assert_eq!(Catalog::read(&path).unwrap(), example());
}

#[test]
fn a_file_without_a_recording_says_so() {
    let (_folder, path) = written();
    let error = Genome::read(&path).unwrap_err();
    assert!(error.to_string().contains("no run"), "{error}");
}

/// A recording with what exists and what was found there.
fn laid() -> Genome {
    let mut genome = Genome {
        catalog: example(),
        ..recording()
    };
    let ids: Vec<_> = genome.functions.iter().map(|(id, _)| id).collect();
    let outcomes = [
        Outcome::Matched(DefId(1)),
        Outcome::Unmatched(Why::NotFound),
    ];
    genome.matches.outcomes = ids.into_iter().zip(outcomes).collect();
    genome.matches.bundled.insert(FileId(0));
    genome.matches.built.insert(DefId(0));
    genome.matches.folded.insert(DefId(1));
    genome.matches.maybe.insert(DefId(2));
    genome.matches.states = vec![State::Ran, State::NotVisible(Blindness::NoProbe)];
    genome.facts.insert(FileId(0), (1, vec![1, 2, 3]));
    genome
}

#[test]
fn what_was_found_is_kept_and_the_facts_for_those_who_write_it_again() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.genome");
    laid().write(&path).unwrap();
    let read = Genome::read(&path).unwrap();
    assert_eq!(read.matches.outcomes, laid().matches.outcomes);
    assert_eq!(read.matches.bundled, laid().matches.bundled);
    assert_eq!(read.matches.built, laid().matches.built);
    assert_eq!(read.matches.folded, laid().matches.folded);
    assert_eq!(read.matches.maybe, laid().matches.maybe);
    assert!(read.matches.states.is_empty() && read.facts.is_empty());
    assert_eq!(Merged::read_whole(&path).unwrap().facts, laid().facts);
    assert_eq!(Kept::read_of_any(&path).unwrap().facts, laid().facts);
    let db = rusqlite::Connection::open(&path).unwrap();
    let row = |sql: &str| -> (String, Option<String>) {
        db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    };
    let found = row("SELECT key, definition FROM matched WHERE why IS NULL");
    assert_eq!(found.1, Some("add".into()));
    let unseen = row("SELECT state, why FROM static_unseen");
    assert_eq!(unseen, ("not-visible".into(), Some("no-probe".into())));
}

#[test]
fn a_verdict_on_what_is_not_there_is_refused() {
    for (sql, expect) in [
        (
            "UPDATE matches SET definition = 9 WHERE func = 1",
            "definition 9",
        ),
        ("UPDATE matches SET func = 999 WHERE func = 1", "999"),
        ("UPDATE matches SET why = 'x' WHERE func = 2", "word \"x\""),
        ("UPDATE static_bundled SET file = 9", "file 9"),
        ("UPDATE static_built SET definition = 9", "definition 9"),
        ("UPDATE static_maybe SET definition = 9", "definition 9"),
        ("DROP TABLE matches", "no table matches"),
    ] {
        let folder = tempdir().unwrap();
        let path = folder.path().join("x.genome");
        laid().write(&path).unwrap();
        let db = rusqlite::Connection::open(&path).unwrap();
        // Views that name a table keep nobody from dropping it.
        db.execute_batch(sql).unwrap();
        drop(db);
        let error = Genome::read(&path).unwrap_err();
        assert!(error.to_string().contains(expect), "{sql}: {error}");
    }
}

/// The recording as a file before version 5 has it: without histograms of CPU time.
fn old_recording() -> Genome {
    let mut recording = recording();
    recording.tree.cpu_histograms.clear();
    recording
}

/// What exists as a file before version 8 has it: without the columns of native functions.
fn old_example() -> Catalog {
    let mut catalog = example();
    let natives = catalog.definitions.iter_mut();
    natives
        .filter_map(|definition| definition.native.as_mut())
        .for_each(|native| native.column = None);
    catalog
}

/// Makes a file of version 7 of one of version 8.
fn without_columns(db: &rusqlite::Connection) {
    let (table, _, text) = super::schema::BEFORE_8[0];
    db.execute_batch(&format!(
        "ALTER TABLE {table} DROP COLUMN col; CREATE TEMP TABLE later AS SELECT * FROM main.{table}; DROP TABLE main.{table}; \
         {text}; INSERT INTO main.{table} SELECT * FROM later; DROP TABLE later; PRAGMA user_version = 7;"
    ))
    .unwrap();
}

/// Makes a file of version 4 of one of version 8.
fn without_cpu_histograms(db: &rusqlite::Connection) {
    without_waits(db);
    db.execute_batch("DROP TABLE cpu_histograms; PRAGMA user_version = 4;")
        .unwrap();
}

/// Makes a file of version 6 of one of version 8.
fn without_waits(db: &rusqlite::Connection) {
    without_columns(db);
    for (table, _, text) in super::super::schema::BEFORE_7 {
        db.execute_batch(&format!(
            "CREATE TEMP TABLE later AS SELECT * FROM main.{table}; DROP TABLE main.{table}; {text}; \
             INSERT INTO main.{table} SELECT window, thread, context, calls, timed, cpu_timed, self_wall_ns, self_cpu_ns, \
             total_wall_ns, total_cpu_ns, samples, sampled_ns, unwound, inferred, lost, tail_calls, probe_events, \
             pre_await_ns, suspended_ns FROM later; DROP TABLE later; PRAGMA user_version = 6;"
        ))
        .unwrap();
    }
}

#[test]
fn a_file_of_version_6_is_read_as_having_no_waits() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("old.genome");
    let mut waited = recording();
    waited.tree.cells[0].metrics.waits = 3;
    waited.tree.cells[0].metrics.off_cpu_ns = 70;
    waited.write(&path).unwrap();
    assert_eq!(canonical(&Genome::read(&path).unwrap()), canonical(&waited));
    without_waits(&rusqlite::Connection::open(&path).unwrap());
    let genome = Genome::read(&path).unwrap();
    assert_eq!(canonical(&genome), canonical(&recording()));
}

#[test]
fn a_file_of_version_7_is_read_as_having_no_columns_of_native_functions() {
    let (_folder, path) = written();
    without_columns(&rusqlite::Connection::open(&path).unwrap());
    assert_eq!(Catalog::read(&path).unwrap(), old_example());
}

#[test]
fn a_file_of_version_4_is_read_as_having_no_histograms_of_cpu_time() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("old.genome");
    recording().write(&path).unwrap();
    without_cpu_histograms(&rusqlite::Connection::open(&path).unwrap());
    let genome = Genome::read(&path).unwrap();
    assert_eq!(canonical(&genome), canonical(&old_recording()));
}

#[test]
fn a_file_of_version_3_is_read_as_having_no_matches() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("old.genome");
    laid().write(&path).unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    without_cpu_histograms(&db);
    for table in [
        "matches",
        "static_bundled",
        "static_built",
        "static_folded",
        "static_maybe",
        "static_states",
    ] {
        db.execute_batch(&format!("DROP TABLE {table}")).unwrap();
    }
    db.execute_batch("PRAGMA user_version = 3;").unwrap();
    drop(db);
    let genome = Genome::read(&path).unwrap();
    assert_eq!(canonical(&genome), canonical(&old_recording()));
    assert_eq!(genome.catalog, old_example());
    assert!(genome.matches.is_empty());
    assert_eq!(Kept::read_of_any(&path).unwrap().facts, laid().facts);
}

#[test]
fn a_file_of_version_2_is_still_read() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("old.genome");
    recording().write(&path).unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    without_cpu_histograms(&db);
    for (table, _) in super::schema::TABLES.iter().chain(super::schema::MATCHES) {
        db.execute_batch(&format!("DROP TABLE {table}")).unwrap();
    }
    for (table, _, text) in super::super::schema::BEFORE_3 {
        let kept = match *table {
            "histograms" => "func, bucket, count FROM later",
            "faults" => {
                "func, missed_enter, open_at_end, depth_limited, cut_by_loss, return_refused FROM later"
            }
            _ => {
                "id, key, name, raw_name, module, path, file, line, language, build_id, file_offset, size, site_delta, \
                 exit, exit_reason, unknown, unknown_detail, ordinal FROM later"
            }
        };
        db.execute_batch(&format!(
            "CREATE TEMP TABLE later AS SELECT * FROM main.{table}; DROP TABLE main.{table}; {text}; \
             INSERT INTO main.{table} SELECT {kept}; DROP TABLE later;"
        ))
        .unwrap();
    }
    db.execute_batch("DROP TABLE static_facts; DROP TABLE static_states; PRAGMA user_version = 2;")
        .unwrap();
    drop(db);
    let genome = Genome::read(&path).unwrap();
    assert_eq!(canonical(&genome), canonical(&old_recording()));
    assert!(genome.catalog.is_empty());
    assert!(Catalog::read(&path).unwrap().is_empty());
}

#[test]
fn a_row_that_contradicts_the_others_is_refused() {
    for (sql, expect) in [
        (
            "UPDATE static_definitions SET parent = 1 WHERE id = 0",
            "definition before it 1",
        ),
        (
            "UPDATE static_definitions SET parent = 0 WHERE id = 2",
            "of another file",
        ),
        (
            "UPDATE static_definitions SET kind = 'x' WHERE id = 0",
            "word \"x\"",
        ),
        (
            "UPDATE static_definitions SET file = 9 WHERE id = 0",
            "file 9",
        ),
        ("UPDATE static_edges SET callee = 9", "definition 9"),
        ("UPDATE static_native SET definition = 9", "definition 9"),
        (
            "UPDATE static_files SET id = 9 WHERE id = 1",
            "not numbered",
        ),
        ("UPDATE static_files SET root = 9", "root 9"),
        ("UPDATE static_gaps SET file = 9", "file 9"),
        ("DROP TABLE static_pieces", "no table static_pieces"),
    ] {
        let (_folder, path) = written();
        rusqlite::Connection::open(&path)
            .unwrap()
            .execute_batch(sql)
            .unwrap();
        let error = Catalog::read(&path).unwrap_err();
        assert!(error.to_string().contains(expect), "{sql}: {error}");
    }
}

#[test]
fn a_sqlite_shell_finds_functions_and_calls() {
    let (_folder, path) = written();
    let db = rusqlite::Connection::open(&path).unwrap();
    let call = "SELECT caller, callee, how FROM static_calls WHERE file = 'shop/cart.py'";
    let found: (String, String, String) = db
        .query_row(call, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap();
    assert_eq!(found, ("add".into(), "add".into(), "scope".into()));
    assert!(fs::metadata(&path).unwrap().len() > 0);
}
