//! The last line of a code object, from the tables that the compiler leaves. Pure.

/// The last line that any instruction of the code comes from; `table` is `co_linetable` from 3.11 on, else `co_lnotab`.
pub(crate) fn last_line(first: u32, table: &[u8]) -> u32 {
    let last = if cfg!(Py_3_11) {
        from_locations(first, table)
    } else {
        from_line_numbers(first, table)
    };
    u32::try_from(last).unwrap_or(0).max(first)
}

/// Pairs of steps: bytes of code (unsigned), lines (signed). 3.8 to 3.10.
fn from_line_numbers(first: u32, table: &[u8]) -> i64 {
    let mut line = i64::from(first);
    let mut last = line;
    for pair in table.chunks_exact(2) {
        line += pair.get(1).map_or(0, |step| i64::from(step.cast_signed()));
        last = last.max(line);
    }
    last
}

/// The location table of 3.11 on (`CPython`'s `InternalDocs/code_objects.md`): entries that begin with a byte with the top
/// bit set, whose bits 3-6 are the kind.
fn from_locations(first: u32, table: &[u8]) -> i64 {
    let mut bytes = table.iter().copied();
    let mut line = i64::from(first);
    let mut last = line;
    while let Some(head) = bytes.next() {
        let kind = head >> 3 & 15;
        match kind {
            0..=9 => skip(&mut bytes, 1),
            10..=12 => {
                line += i64::from(kind) - 10;
                skip(&mut bytes, 2);
            }
            13 => line += signed(&mut bytes),
            14 => {
                line += signed(&mut bytes);
                last = last.max(line.saturating_add(varint(&mut bytes)));
                varint(&mut bytes);
                varint(&mut bytes);
            }
            _ => continue,
        }
        last = last.max(line);
    }
    last
}

fn skip(bytes: &mut impl Iterator<Item = u8>, count: usize) {
    bytes.take(count).for_each(|_| ());
}

/// Six bits a byte, lowest first; bit 6 = more follow.
fn varint(bytes: &mut impl Iterator<Item = u8>) -> i64 {
    let mut value = 0;
    for (shift, byte) in (0..60).step_by(6).zip(bytes) {
        value |= i64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            break;
        }
    }
    value
}

fn signed(bytes: &mut impl Iterator<Item = u8>) -> i64 {
    let value = varint(bytes);
    if value & 1 == 1 {
        -(value >> 1)
    } else {
        value >> 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_line_numbers_may_go_back() {
        assert_eq!(from_line_numbers(10, &[0, 1, 4, 5, 4, 0xfe, 2]), 16);
    }

    #[test]
    fn locations_in_every_form_are_followed() {
        // short form; one line down; no columns, two lines down; long form: one line up, ends two below; no location.
        let table = [0x80, 0x12, 0xd8, 4, 8, 0xe8, 4, 0xf0, 3, 2, 1, 1, 0xf8];
        assert_eq!(from_locations(5, &table), 9);
    }

    #[test]
    fn a_table_that_is_cut_ends_the_walk() {
        assert_eq!(from_locations(5, &[0xf0, 0x7f]), 5);
        assert_eq!(last_line(5, &[0xf0]), 5);
    }
}
