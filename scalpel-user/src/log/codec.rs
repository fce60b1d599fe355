//! Numbers and strings of a chunk's payload, little-endian. Must not know what they mean.

use std::fmt;

/// A payload that does not hold what its kind says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed payload: {}", self.0)
    }
}

/// Appends to a payload.
pub(super) struct Put<'a>(pub(super) &'a mut Vec<u8>);

impl Put<'_> {
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn u8(&mut self, number: u8) -> &mut Self {
        self.bytes(&[number])
    }

    pub(super) fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub(super) fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    /// Length in bytes as u32, then UTF-8.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.u32(u32::try_from(text.len()).unwrap_or(u32::MAX))
            .bytes(text.as_bytes())
    }

    /// u8 1 and the value, or u8 0.
    pub(super) fn option<T>(
        &mut self,
        value: Option<T>,
        put: impl FnOnce(&mut Self, T),
    ) -> &mut Self {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
        self
    }
}

/// Takes from the front of a payload.
pub(super) struct Get<'a>(pub(super) &'a [u8]);

impl<'a> Get<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Malformed("ends early"))?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed("ends early"))?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[number]| number)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let length = self.u32()? as usize;
        let bytes = self.bytes(length)?;
        String::from_utf8(bytes.to_vec()).map_err(|_not_utf8| Malformed("text is not UTF-8"))
    }

    pub(super) fn option<T>(
        &mut self,
        get: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        match self.u8()? {
            0 => Ok(None),
            1 => get(self).map(Some),
            _ => Err(Malformed("an option is neither 0 nor 1")),
        }
    }

    /// u32 count, then that many. The count of a hostile file is not trusted for the allocation.
    pub(super) fn list<T>(
        &mut self,
        mut get: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32()? as usize;
        let mut list = Vec::with_capacity(count.min(self.0.len()));
        for _ in 0..count {
            list.push(get(self)?);
        }
        Ok(list)
    }
}
