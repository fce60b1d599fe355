use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use super::{GenomeError, aside::Aside, write};
use crate::genome::Genome;
use crate::genome::tests::{any_genome, canonical, example, returning, triggered};

fn written() -> (TempDir, std::path::PathBuf) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("run % of a?.genome");
    example().write(&path).unwrap();
    (folder, path)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn check_refused(bytes: &[u8], expect: &str) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, bytes).unwrap();
    let error = Genome::read(&path).unwrap_err().to_string();
    assert!(error.contains(expect), "{error}");
}

#[test]
fn a_genome_reads_back_as_it_was_written() {
    let (_folder, path) = written();
    assert_eq!(
        canonical(&Genome::read(&path).unwrap()),
        canonical(&example())
    );
}

#[test]
fn so_does_one_of_kept_calls() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.genome");
    triggered().write(&path).unwrap();
    let read = Genome::read(&path).unwrap();
    assert_eq!(canonical(&read), canonical(&triggered()));
    assert_eq!((read.triggers.len(), read.kept.len()), (1, 2));
}

#[test]
fn so_does_one_of_return_values() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.genome");
    returning().write(&path).unwrap();
    let read = Genome::read(&path).unwrap();
    assert_eq!(canonical(&read), canonical(&returning()));
    assert_eq!(read.tree.returns.len(), 2);
}

#[test]
fn a_file_of_version_9_is_read_as_having_no_return_values() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("old.genome");
    returning().write(&path).unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("DROP TABLE returned; DROP TABLE return_values; PRAGMA user_version = 9;")
        .unwrap();
    drop(db);
    let mut without = returning();
    without.tree.returns.clear();
    let read = Genome::read(&path).unwrap();
    assert_eq!(canonical(&read), canonical(&without));
}

#[test]
fn return_values_that_contradict_each_other_are_refused() {
    for (sql, expect) in [
        ("DELETE FROM returned WHERE func = 2", "nobody asked"),
        ("UPDATE return_values SET func = 999", "function 999"),
        (
            "UPDATE returned SET least = NULL WHERE func = 2",
            "half a range",
        ),
        ("UPDATE returned SET calls = -1", "negative"),
        ("DROP TABLE return_values", "no table return_values"),
    ] {
        let folder = tempdir().unwrap();
        let path = folder.path().join("x.genome");
        returning().write(&path).unwrap();
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch(sql).unwrap();
        drop(db);
        let error = Genome::read(&path).unwrap_err();
        assert!(error.to_string().contains(expect), "{sql}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn random_genomes_read_back_as_they_were_written(genome in any_genome()) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("x.genome");
        genome.write(&path).unwrap();
        prop_assert_eq!(canonical(&Genome::read(&path).unwrap()), canonical(&genome));
    }
}

#[test]
fn only_the_owner_may_read_the_file_and_nothing_else_is_left() {
    let (folder, path) = written();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(names(folder.path()), ["run % of a?.genome"]);
}

#[test]
fn a_file_that_is_there_is_kept_as_old() {
    let (folder, path) = written();
    fs::write(&path, "before").unwrap();
    example().write(&path).unwrap();
    assert_eq!(
        fs::read(folder.path().join("run % of a?.genome.old")).unwrap(),
        b"before"
    );
    assert!(Genome::read(&path).is_ok());
}

#[test]
fn devices_and_folders_are_never_renamed() {
    for path in ["/dev/null", "/tmp"] {
        assert!(matches!(
            example().write(Path::new(path)),
            Err(GenomeError::NotAFile { .. })
        ));
    }
    assert!(Path::new("/dev/null").exists() && !Path::new("/dev/null.old").exists());
}

#[test]
fn a_full_disk_is_named_and_leaves_nothing_behind() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.genome");
    fs::write(&path, "before").unwrap();
    let aside = Aside::create(&path).unwrap();
    let failed = write::write(&write::Rows::of(&example()), aside.path(), Some(8)).unwrap_err();
    drop(aside);
    let error = GenomeError::writing(
        &path,
        failed,
        write::needed_bytes(&write::Rows::of(&example())),
    );
    assert!(
        matches!(error, GenomeError::NoSpace { needed, .. } if needed > 0),
        "{error:?}"
    );
    assert!(error.to_string().contains("x.genome"));
    assert_eq!(names(folder.path()), ["x.genome"]);
    assert_eq!(fs::read(&path).unwrap(), b"before");
}

#[test]
fn what_is_no_genome_is_said_to_be_none() {
    check_refused(b"", "an empty file");
    check_refused(b"#!/bin/sh\n", "not a SQLite file");
    let folder = tempdir().unwrap();
    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE t(a)")
        .unwrap();
    check_refused(&fs::read(&other).unwrap(), "another program");
    assert!(matches!(
        Genome::read(folder.path()),
        Err(GenomeError::NotAGenome { .. })
    ));
}

#[test]
fn a_newer_schema_asks_for_a_newer_scalpel() {
    let (_folder, path) = written();
    let mut bytes = fs::read(path).unwrap();
    bytes[63] = 11;
    check_refused(&bytes, "schema 11");
}

#[test]
fn a_cut_file_says_how_much_is_missing() {
    let (_folder, path) = written();
    let bytes = fs::read(path).unwrap();
    check_refused(&bytes[..bytes.len() - 1], "is cut off");
    check_refused(&bytes[..50], "is cut off");
}

#[test]
fn a_view_in_the_place_of_a_table_is_never_run() {
    let (_folder, path) = written();
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(
            "DROP TABLE notes; CREATE VIEW notes AS WITH RECURSIVE n(run, note) AS (SELECT 1, '' UNION ALL SELECT run, note FROM n) \
             SELECT * FROM n",
        )
        .unwrap();
    check_refused(&fs::read(&path).unwrap(), "no table notes");
}

#[test]
fn a_row_that_contradicts_the_others_is_refused() {
    for (sql, expect) in [
        ("UPDATE contexts SET parent = 8 WHERE id = 3", "context 3"),
        ("UPDATE contexts SET func = 99 WHERE id = 3", "function 99"),
        ("DELETE FROM functions WHERE id = 2", "numbered 1, 2, 3"),
        ("UPDATE cells SET calls = -1", "negative"),
        (
            "UPDATE cells SET total_wall_ns = 9223372036854775807",
            "63 bits",
        ),
        ("UPDATE cells SET thread = 7", "thread or context"),
        ("UPDATE losses SET class = 'other'", "class \"other\""),
        ("DELETE FROM runs", "run 1"),
        (
            "UPDATE threads SET id = 9 WHERE id = 1",
            "threads are not numbered",
        ),
    ] {
        let (_folder, path) = written();
        rusqlite::Connection::open(&path)
            .unwrap()
            .execute_batch(sql)
            .unwrap();
        check_refused(&fs::read(&path).unwrap(), expect);
    }
}

#[test]
fn a_sqlite_shell_finds_sums_and_names() {
    let (_folder, path) = written();
    let db = rusqlite::Connection::open(path).unwrap();
    let calls: i64 = db
        .query_row(
            "SELECT calls FROM hot_functions WHERE name = 'walk'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(calls, 10_800);
    let edge: (i64, String) = db
        .query_row(
            "SELECT calls, source FROM call_edges WHERE caller = 'walk' AND callee = 'walk'",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(edge, (9_600, "exact".into()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_damaged_file_is_read_or_refused_but_never_a_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..6)) {
        let (folder, path) = written();
        let mut bytes = fs::read(path).unwrap();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        let damaged = folder.path().join("damaged.genome");
        fs::write(&damaged, &bytes).unwrap();
        drop(Genome::read(&damaged));
    }
}

#[test]
fn absurd_numbers_are_cut_to_what_a_reader_can_add_up() {
    let mut genome = example();
    for cell in &mut genome.tree.cells {
        cell.metrics.calls = u64::MAX / 3;
        cell.metrics.total_wall_ns = u64::MAX;
    }
    genome.tree.threads[0].lost = u64::MAX;
    let folder = tempdir().unwrap();
    let path = folder.path().join("absurd.genome");
    genome.write(&path).unwrap();
    let read = Genome::read(&path).unwrap();
    assert_eq!(read.tree.threads[0].lost, i64::MAX as u64);
    let calls = read.tree.cells.iter().map(|cell| cell.metrics.calls);
    assert_eq!(calls.sum::<u64>(), i64::MAX as u64);
}
