//! Little-endian numbers off the front of bytes that may be anything.

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(&'a [u8]);

/// A record: its kind and flags, and what follows its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) kind: u32,
    pub(super) misc: u16,
    pub(super) body: Bytes<'a>,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// How many bytes are left.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// The number that ends `behind` words before the end.
    pub(super) fn word_from_end(&self, behind: usize) -> Option<u64> {
        let end = self.0.len().checked_sub(8 * behind)?;
        let bytes = self.0.get(end.checked_sub(8)?..end)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    /// The text up to the first zero.
    pub(super) fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = self
            .0
            .get(..end.unwrap_or(self.0.len()))
            .unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// The next record.
    pub(super) fn record(&mut self) -> Option<Record<'a>> {
        let mut rest = *self;
        let (kind, misc, size) = (rest.u32()?, rest.u16()?, rest.u16()?);
        let body = Self(rest.take(usize::from(size).checked_sub(8)?)?);
        *self = rest;
        Some(Record { kind, misc, body })
    }
}
