//! The way back from places in the rewritten text to places in the original, in UTF-16 units.

/// What was inserted where, and the lines of the original.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Place in the original and inserted units, by place; several insertions at one place are one.
    inserted: Vec<(u32, u32)>,
    /// Units before each line of the original.
    lines: Vec<u32>,
}

impl Edits {
    pub(super) fn new(lines: Vec<u32>) -> Self {
        Self {
            inserted: Vec::new(),
            lines,
        }
    }

    pub(super) fn insert(&mut self, at: u32, units: u32) {
        match self.inserted.last_mut() {
            Some((last, length)) if *last == at => *length += units,
            _ => self.inserted.push((at, units)),
        }
    }

    /// The original column of `column` (from 0) of `line` (from 1) of the rewritten text. A place inside an insertion is
    /// the place where it was inserted.
    pub fn column(&self, line: u32, column: u32) -> u32 {
        let Some(&start) = self.lines.get(line.saturating_sub(1) as usize) else {
            return column;
        };
        let first = self.inserted.partition_point(|(at, _)| *at < start);
        let on_line = self.inserted.get(first..).unwrap_or_default();
        back(on_line, start, start.saturating_add(column)) - start
    }

    /// Whether anything was inserted in `line` (from 1).
    pub fn touches(&self, line: u32) -> bool {
        let Some(&start) = self.lines.get(line.saturating_sub(1) as usize) else {
            return false;
        };
        let end = self.lines.get(line as usize).copied().unwrap_or(u32::MAX);
        let first = self.inserted.partition_point(|(at, _)| *at < start);
        self.inserted.get(first).is_some_and(|(at, _)| *at < end)
    }

    /// The original offset of `offset` of the rewritten text.
    pub fn offset(&self, offset: u32) -> u32 {
        back(&self.inserted, 0, offset)
    }
}

/// `place` without the insertions before it; `base` has none before it.
fn back(inserted: &[(u32, u32)], base: u32, place: u32) -> u32 {
    let mut before = 0;
    for &(at, units) in inserted {
        let starts = at + before;
        if starts < base || starts >= place {
            break;
        }
        if starts + units > place {
            return at;
        }
        before += units;
    }
    place - before
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ab|cd` LF `e|f`, where | is an insertion of 10 units.
    fn edits() -> Edits {
        let mut edits = Edits::new(vec![0, 5]);
        edits.insert(2, 4);
        edits.insert(2, 6);
        edits.insert(6, 10);
        edits
    }

    #[test]
    fn columns_find_back() {
        let columns: Vec<_> = [0, 1, 2, 7, 12, 13]
            .iter()
            .map(|&column| edits().column(1, column))
            .collect();
        assert_eq!(columns, [0, 1, 2, 2, 2, 3]);
        assert_eq!(edits().column(2, 0), 0);
        assert_eq!(edits().column(2, 11), 1);
        assert_eq!(edits().column(3, 7), 7);
    }

    #[test]
    fn offsets_find_back() {
        let offsets: Vec<_> = [1, 2, 5, 12, 13, 15, 16, 26]
            .iter()
            .map(|&place| edits().offset(place))
            .collect();
        assert_eq!(offsets, [1, 2, 2, 2, 3, 5, 6, 6]);
    }

    #[test]
    fn touched_lines_are_known() {
        assert!(edits().touches(1) && edits().touches(2) && !edits().touches(3));
        assert!(!Edits::new(vec![0, 3]).touches(1));
    }
}
