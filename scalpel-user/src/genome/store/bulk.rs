//! Rows of very large tables, written as pages of the file: SQLite takes microseconds for a row that it inserts, and what
//! comes in the order of its key needs neither a search nor a split page.
//!
//! The b-trees are those of <https://www.sqlite.org/fileformat2.html#b_tree_pages>: pages are filled from the left, one
//! level above the other, and each takes its number when it is full. Only for tables without indexes of other columns, and
//! for rows that are far smaller than a page.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// A failure to write, as SQLite tells its own.
pub(super) fn error(error: io::Error) -> rusqlite::Error {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    let code = match full.contains(&error.kind()) {
        true => rusqlite::ffi::SQLITE_FULL,
        false => rusqlite::ffi::SQLITE_IOERR_WRITE,
    };
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(error.to_string()))
}

/// Size of a page: `PRAGMA page_size` of all genomes.
pub(super) const PAGE: usize = 8192;

/// SQLite locks bytes of this page, and keeps nothing in it.
const LOCKED: u32 = (0x4000_0000 / PAGE as u64) as u32 + 1;

/// Where the header of the file has the number of its pages.
const COUNT_OF_PAGES: u64 = 28;

/// The end of a file that SQLite has closed.
pub(super) struct Bulk {
    file: File,
    end: BufWriter<File>,
    /// Pages that are there.
    pages: u32,
}

impl Bulk {
    /// Opens the file, which nobody else has open.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let length = file.metadata()?.len();
        let end = OpenOptions::new().append(true).open(path)?;
        Ok(Self {
            file,
            end: BufWriter::with_capacity(64 * PAGE, end),
            pages: u32::try_from(length / PAGE as u64).unwrap_or(u32::MAX),
        })
    }

    /// Fills the empty table whose b-tree begins at page `root`, with rows in the order of its key.
    pub(super) fn table(
        &mut self,
        root: u32,
        keyed: Keyed,
        fill: impl FnOnce(&mut Table<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut table = Table {
            bulk: self,
            keyed,
            leaf: Page::new(),
            last_key: 0,
            above: Vec::new(),
            cell: Vec::new(),
        };
        fill(&mut table)?;
        table.finish(root)
    }

    /// Tells the header how many pages there are now.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.end.flush()?;
        self.file
            .write_all_at(&self.pages.to_be_bytes(), COUNT_OF_PAGES)
    }

    /// Adds a page to the end; gives its number.
    fn push(&mut self, page: &[u8; PAGE]) -> io::Result<u32> {
        if self.pages.saturating_add(1) == LOCKED {
            self.pages += 1;
            self.end.write_all(&[0; PAGE])?;
        }
        self.pages = self
            .pages
            .checked_add(1)
            .ok_or(io::ErrorKind::FileTooLarge)?;
        self.end.write_all(page)?;
        Ok(self.pages)
    }

    fn replace(&mut self, number: u32, page: &[u8; PAGE]) -> io::Result<()> {
        let at = u64::from(number.saturating_sub(1)) * PAGE as u64;
        self.file.write_all_at(page, at)
    }
}

/// How rows of a table are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyed {
    /// By a number beside them, `INTEGER PRIMARY KEY`.
    ByNumber,
    /// By their first columns, `WITHOUT ROWID`.
    ByColumns,
}

/// A table that is being filled.
pub(super) struct Table<'b> {
    bulk: &'b mut Bulk,
    keyed: Keyed,
    leaf: Page,
    last_key: u64,
    /// Pages of pointers, the lowest level first.
    above: Vec<Page>,
    cell: Vec<u8>,
}

impl Table<'_> {
    /// Adds a row; `key` is its number, or 0 where columns are the key.
    pub(super) fn row(&mut self, key: u64, row: &Record) -> io::Result<()> {
        let mut cell = std::mem::take(&mut self.cell);
        cell.clear();
        push_varint(&mut cell, (row.head.len() + 1 + row.body.len()) as u64);
        if self.keyed == Keyed::ByNumber {
            push_varint(&mut cell, key);
        }
        row.push_to(&mut cell);
        if !self.leaf.has_room_for(cell.len(), LEAF_HEAD) {
            self.leaf_is_full()?;
        }
        self.leaf.push(&cell);
        self.last_key = key;
        self.cell = cell;
        Ok(())
    }

    fn leaf_is_full(&mut self) -> io::Result<()> {
        let mut divider = Vec::new();
        match self.keyed {
            Keyed::ByNumber => push_varint(&mut divider, self.last_key),
            // Here a row between two pages stands above them.
            Keyed::ByColumns => self.leaf.pop_into(&mut divider),
        }
        let page = self.leaf.leaf(self.keyed);
        let child = self.bulk.push(&page)?;
        self.leaf.clear();
        self.above(0, child, &divider)
    }

    /// Adds a page to those of a level, and what divides it from the next one.
    fn above(&mut self, level: usize, child: u32, divider: &[u8]) -> io::Result<()> {
        if self.above.len() == level {
            self.above.push(Page::new());
        }
        let Some(page) = self.above.get_mut(level) else {
            return Ok(());
        };
        let is_full = !page.has_room_for(4 + divider.len(), INTERIOR_HEAD);
        let up = is_full.then(|| {
            let mut last = Vec::new();
            page.pop_into(&mut last);
            let (rightmost, divider) = last.split_at(4);
            let full = page.interior(self.keyed, rightmost);
            page.clear();
            (full, divider.to_vec())
        });
        let mut cell = child.to_be_bytes().to_vec();
        cell.extend_from_slice(divider);
        page.push(&cell);
        match up {
            Some((full, divider)) => {
                let number = self.bulk.push(&full)?;
                self.above(level + 1, number, &divider)
            }
            None => Ok(()),
        }
    }

    /// Writes what is left; the topmost page takes the place of the empty one that SQLite made.
    fn finish(mut self, root: u32) -> io::Result<()> {
        if self.leaf.starts.is_empty() {
            return Ok(());
        }
        let mut page = self.leaf.leaf(self.keyed);
        for above in std::mem::take(&mut self.above) {
            let child = self.bulk.push(&page)?;
            page = above.interior(self.keyed, &child.to_be_bytes());
        }
        self.bulk.replace(root, &page)
    }
}

const LEAF_HEAD: usize = 8;
const INTERIOR_HEAD: usize = 12;

/// The cells of a page: rows, or pointers with what divides their pages.
struct Page {
    cells: Vec<u8>,
    starts: Vec<usize>,
}

impl Page {
    fn new() -> Self {
        Self {
            cells: Vec::with_capacity(PAGE),
            starts: Vec::new(),
        }
    }

    fn has_room_for(&self, length: usize, head: usize) -> bool {
        head + self.cells.len() + length + 2 * (self.starts.len() + 1) <= PAGE
    }

    fn push(&mut self, cell: &[u8]) {
        self.starts.push(self.cells.len());
        self.cells.extend_from_slice(cell);
    }

    fn pop_into(&mut self, cell: &mut Vec<u8>) {
        if let Some(start) = self.starts.pop() {
            cell.extend(self.cells.drain(start..));
        }
    }

    fn clear(&mut self) {
        self.cells.clear();
        self.starts.clear();
    }

    fn leaf(&self, keyed: Keyed) -> [u8; PAGE] {
        match keyed {
            Keyed::ByNumber => self.laid_out(0x0d, &[]),
            Keyed::ByColumns => self.laid_out(0x0a, &[]),
        }
    }

    fn interior(&self, keyed: Keyed, rightmost: &[u8]) -> [u8; PAGE] {
        match keyed {
            Keyed::ByNumber => self.laid_out(0x05, rightmost),
            Keyed::ByColumns => self.laid_out(0x02, rightmost),
        }
    }

    /// Head, the places of all cells, and the cells at the end.
    fn laid_out(&self, kind: u8, rightmost: &[u8]) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        let content = PAGE - self.cells.len();
        let mut head = vec![kind, 0, 0];
        head.extend((self.starts.len() as u16).to_be_bytes());
        head.extend((content as u16).to_be_bytes());
        head.push(0);
        head.extend_from_slice(rightmost);
        for start in &self.starts {
            head.extend(((content + start) as u16).to_be_bytes());
        }
        let (front, back) = page.split_at_mut(content);
        front
            .iter_mut()
            .zip(&head)
            .for_each(|(to, from)| *to = *from);
        back.copy_from_slice(&self.cells);
        page
    }
}

/// A row: <https://www.sqlite.org/fileformat2.html#record_format>, of numbers and words.
#[derive(Debug, Default)]
pub(super) struct Record {
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Record {
    pub(super) fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
    }

    pub(super) fn null(&mut self) {
        self.head.push(0);
    }

    pub(super) fn maybe(&mut self, value: Option<i64>) {
        match value {
            Some(value) => self.int(value),
            None => self.null(),
        }
    }

    /// A word of at most 57 bytes: the length of a longer one takes two.
    pub(super) fn text(&mut self, text: &str) {
        debug_assert!(text.len() <= 57, "a word");
        self.head.push(13 + 2 * text.len() as u8);
        self.body.extend_from_slice(text.as_bytes());
    }

    /// A number in as few bytes as it takes.
    pub(super) fn int(&mut self, value: i64) {
        let (kind, length) = match value {
            0 => (8, 0),
            1 => (9, 0),
            -0x80..=0x7f => (1, 1),
            -0x8000..=0x7fff => (2, 2),
            -0x80_0000..=0x7f_ffff => (3, 3),
            -0x8000_0000..=0x7fff_ffff => (4, 4),
            -0x8000_0000_0000..=0x7fff_ffff_ffff => (5, 6),
            _ => (6, 8),
        };
        self.head.push(kind);
        let bytes = value.to_be_bytes();
        self.body.extend(bytes.iter().skip(8 - length));
    }

    /// With the length of the head first, which takes one byte: there are few columns.
    fn push_to(&self, cell: &mut Vec<u8>) {
        cell.push(self.head.len() as u8 + 1);
        cell.extend_from_slice(&self.head);
        cell.extend_from_slice(&self.body);
    }
}

/// Groups of seven bits, the highest first. Keys here are numbers of 32 bits, so that none takes the ninth byte.
fn push_varint(to: &mut Vec<u8>, value: u64) {
    let groups = (64 - (value | 1).leading_zeros()).div_ceil(7);
    for group in (0..groups).rev() {
        let more = if group > 0 { 0x80 } else { 0 };
        to.push((value >> (7 * group)) as u8 & 0x7f | more);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use rusqlite::Connection;
    use tempfile::tempdir;

    use super::{Bulk, Keyed, PAGE, Record, push_varint};

    const TABLES: [(&str, Keyed, &str); 2] = [
        (
            "numbered",
            Keyed::ByNumber,
            "CREATE TABLE numbered(id INTEGER PRIMARY KEY, a INTEGER, b INTEGER) STRICT",
        ),
        (
            "keyed",
            Keyed::ByColumns,
            "CREATE TABLE keyed(id INTEGER NOT NULL, a INTEGER, b INTEGER, PRIMARY KEY(id)) STRICT, WITHOUT ROWID",
        ),
    ];

    /// Both tables with these rows, as SQLite reads them; what it thinks of the file is asserted.
    fn filled(path: &Path, rows: &[(i64, Option<i64>, i64)]) {
        let db = Connection::open(path).unwrap();
        db.execute_batch(&format!(
            "PRAGMA page_size = {PAGE}; PRAGMA journal_mode = OFF"
        ))
        .unwrap();
        let mut roots = Vec::new();
        for (name, keyed, text) in TABLES {
            db.execute_batch(text).unwrap();
            let root = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
            roots.push((keyed, db.query_row(root, [name], |row| row.get(0)).unwrap()));
        }
        drop(db);
        let mut bulk = Bulk::open(path).unwrap();
        for (keyed, root) in roots {
            bulk.table(root, keyed, |table| {
                let mut record = Record::default();
                for &(id, a, b) in rows {
                    record.clear();
                    match keyed {
                        Keyed::ByNumber => record.null(),
                        Keyed::ByColumns => record.int(id),
                    }
                    record.maybe(a);
                    record.int(b);
                    table.row(id.cast_unsigned(), &record)?;
                }
                Ok(())
            })
            .unwrap();
        }
        bulk.finish().unwrap();
    }

    fn check(rows: &[(i64, Option<i64>, i64)]) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("x.db");
        filled(&path, rows);
        let db = Connection::open(&path).unwrap();
        let whole: String = db
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(whole, "ok");
        for (name, ..) in TABLES {
            let mut query = db.prepare(&format!("SELECT * FROM {name}")).unwrap();
            let read = query
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .unwrap();
            let read: Vec<(i64, Option<i64>, i64)> = read.map(Result::unwrap).collect();
            assert!(read == rows, "{name} of {} rows", rows.len());
            // Each is found by its key, through all levels.
            let mut one = db
                .prepare(&format!("SELECT b FROM {name} WHERE id = ?1"))
                .unwrap();
            for (id, _, b) in rows.iter().step_by(rows.len() / 50 + 1) {
                let found: i64 = one.query_row([id], |row| row.get(0)).unwrap();
                assert_eq!(found, *b);
            }
        }
        // And SQLite can go on with it.
        db.execute_batch(
            "DELETE FROM keyed WHERE id % 3 = 0; INSERT INTO numbered VALUES (NULL, 1, 2); VACUUM;",
        )
        .unwrap();
    }

    #[test]
    fn sqlite_reads_tables_of_every_height() {
        // Pages of some 500 and 680 rows, and 800 pointers on a page above them; the edges of one page, too.
        for count in [0, 1, 2, 400, 401, 600, 682, 683, 20_000, 600_000] {
            let row = |id: i64| (id, (id % 3 > 0).then_some(id * 7), id * id);
            let rows: Vec<_> = (0..count).map(row).collect();
            check(&rows);
        }
    }

    #[test]
    fn rows_fill_pages_to_every_last_byte() {
        for wide in 0..64 {
            let row = |id: i64| (id, Some(if id == 300 { 1 << wide } else { i64::MAX }), 0);
            check(&(0..1200).map(row).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_page_that_sqlite_locks_holds_nothing() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("x.db");
        filled(&path, &[]);
        let mut bulk = Bulk::open(&path).unwrap();
        bulk.pages = super::LOCKED - 2;
        assert_eq!(bulk.push(&[1; PAGE]).unwrap(), super::LOCKED - 1);
        assert_eq!(bulk.push(&[1; PAGE]).unwrap(), super::LOCKED + 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn numbers_of_all_sizes_read_back(rows in prop::collection::btree_map(0..=i64::from(u32::MAX), (any::<Option<i64>>(), any::<i64>(), 0..64u32), 0..800)) {
            let rows: Vec<_> = rows
                .into_iter()
                .map(|(id, (a, b, shift))| (id, a.map(|a| a >> shift), b >> shift))
                .collect();
            check(&rows);
        }
    }

    #[test]
    fn a_varint_has_its_highest_group_first() {
        for (value, bytes) in [
            (0u64, &[0][..]),
            (0x7f, &[0x7f]),
            (0x80, &[0x81, 0]),
            (0xffff_ffff, &[0x8f, 0xff, 0xff, 0xff, 0x7f]),
        ] {
            let mut found = Vec::new();
            push_varint(&mut found, value);
            assert_eq!(found, bytes);
        }
    }
}
