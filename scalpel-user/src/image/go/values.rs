//! Go's tables of values by instruction: each a run of steps *value changes by so much, for so many bytes of code*.

/// What holds for `start..end`, both as distances from the function's first instruction in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) value: i32,
}

/// The stretches of one table, by rising address.
///
/// A step covers a byte of code at least, and none is read behind `most`: the tables of all functions together take no
/// longer than their code is long, however a hostile file lets them share their bytes.
#[derive(Clone, Debug)]
pub(super) struct Stretches<'d> {
    bytes: &'d [u8],
    at: u64,
    value: i32,
    most: u64,
    is_first: bool,
}

impl<'d> Stretches<'d> {
    /// Reads the table at the start of `bytes`, of a function of at most `most` bytes.
    pub(super) const fn new(bytes: &'d [u8], most: u64) -> Self {
        Self {
            bytes,
            at: 0,
            value: -1,
            most,
            is_first: true,
        }
    }

    fn varint(&mut self) -> Option<u32> {
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl Iterator for Stretches<'_> {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        let change = self.varint()?;
        // The first value may be what values begin with.
        if (change == 0 && !self.is_first) || self.at >= self.most {
            return None;
        }
        self.is_first = false;
        // Signs stand in the lowest bit.
        let change = (change >> 1) as i32 ^ -((change & 1) as i32);
        self.value = self.value.wrapping_add(change);
        let length = self.varint().filter(|&length| length > 0)?;
        let start = self.at;
        self.at = start.saturating_add(u64::from(length));
        Some(Stretch {
            start,
            end: self.at,
            value: self.value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], most: u64) -> Vec<(u64, u64, i32)> {
        Stretches::new(bytes, most)
            .map(|it| (it.start, it.end, it.value))
            .collect()
    }

    #[test]
    fn steps_add_up_until_a_change_of_nothing() {
        // +1 for 4, +64 for 200, -65 for 1, end.
        let bytes = [2, 4, 0x80, 1, 0xc8, 1, 0x81, 1, 1, 0, 9, 9];
        assert_eq!(
            read(&bytes, u64::MAX),
            [(0, 4, 0), (4, 204, 64), (204, 205, -1)]
        );
        assert_eq!(read(&bytes, 4), [(0, 4, 0)], "behind the function");
        assert_eq!(read(&[0, 3, 0], 9), [(0, 3, -1)], "a first change of 0");
    }

    #[test]
    fn a_table_that_is_cut_or_stands_still_ends() {
        assert_eq!(read(&[2, 4, 2], 9), [(0, 4, 0)]);
        assert_eq!(read(&[2, 0, 2, 0, 2, 0], 9), []);
        assert_eq!(read(&[0xff; 64], 9), []);
        assert_eq!(read(&[], 9), []);
    }
}
