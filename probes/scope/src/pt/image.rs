//! The code that a trace ran through: pieces of memory by address, as the decoder and the renderer read them.
//! Every piece is a copy in memory of our own, so that no file that is changed or cut can hurt the decoding.
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null;
use std::rc::Rc;

use super::ffi::{Functions, functions};

/// Most memory that mapped pieces and what is remembered of their blocks may take.
const CACHED: u64 = 1 << 30;
/// Longest instruction.
const LONGEST: u64 = 15;

/// Code that can be mapped: one copy, however often it is mapped.
#[derive(Debug)]
pub struct CodeBytes {
    bytes: Vec<u8>,
    /// Kept open: libipt opens it by this name when it maps the piece.
    _memory: OwnedFd,
    name: CString,
}

impl CodeBytes {
    /// A copy that the decoder can map.
    ///
    /// # Errors
    /// No memory or no descriptor is left.
    pub fn new(bytes: Vec<u8>) -> std::io::Result<Rc<Self>> {
        // SAFETY: the name is a string that ends.
        let fd = unsafe { libc::memfd_create(c"scalpel-code".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let memory = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut file = std::fs::File::from(memory.try_clone()?);
        std::io::Write::write_all(&mut file, &bytes)?;
        let name = CString::new(format!("/proc/self/fd/{}", memory.as_raw_fd()))?;
        Ok(Rc::new(Self {
            bytes,
            _memory: memory,
            name,
        }))
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// What is mapped at an address.
#[derive(Clone, Debug)]
struct Piece {
    end: u64,
    code: Rc<CodeBytes>,
    /// Offset in `code` of the address that the piece begins at.
    offset: u64,
}

/// The cache that all images share.
struct Cache {
    library: &'static Functions,
    raw: *mut c_void,
}

impl Drop for Cache {
    fn drop(&mut self) {
        // SAFETY: it was allocated, and every image that used it is gone: each holds it.
        unsafe { (self.library.pt_iscache_free)(self.raw) };
    }
}

/// The code of one address space.
pub struct Image {
    raw: *mut c_void,
    cache: Rc<Cache>,
    pieces: RefCell<BTreeMap<u64, Piece>>,
    changes: Cell<u64>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("pieces", &self.pieces)
            .finish_non_exhaustive()
    }
}

impl Image {
    /// An image without code.
    ///
    /// # Errors
    /// libipt is not there, or has no memory.
    pub fn new() -> Result<Self, String> {
        let library = functions()?;
        // SAFETY: a cache may have no name.
        let raw = unsafe { (library.pt_iscache_alloc)(null()) };
        if raw.is_null() {
            return Err("libipt has no memory".to_owned());
        }
        let cache = Rc::new(Cache { library, raw });
        // SAFETY: the cache is there.
        unsafe { (library.pt_iscache_set_limit)(raw, CACHED) };
        Self::within(cache)
    }

    fn within(cache: Rc<Cache>) -> Result<Self, String> {
        // SAFETY: an image may have no name.
        let raw = unsafe { (cache.library.pt_image_alloc)(null()) };
        if raw.is_null() {
            return Err("libipt has no memory".to_owned());
        }
        Ok(Self {
            raw,
            cache,
            pieces: RefCell::default(),
            changes: Cell::new(0),
        })
    }

    /// Another address space, which shares what is remembered of files.
    ///
    /// # Errors
    /// libipt has no memory.
    pub fn sibling(&self) -> Result<Self, String> {
        Self::within(Rc::clone(&self.cache))
    }

    /// A copy of this address space, as a fork makes one.
    ///
    /// # Errors
    /// libipt has no memory.
    pub fn forked(&self) -> Result<Self, String> {
        let child = self.sibling()?;
        for (addr, piece) in self.pieces.borrow().iter() {
            child.map(*addr, &piece.code, piece.offset, piece.end - addr)?;
        }
        Ok(child)
    }

    /// Maps `len` bytes of `code`, from `offset` on, at `addr`; what was there is replaced. What `code` does not have is
    /// left out.
    ///
    /// # Errors
    /// libipt refuses the piece.
    pub fn map(
        &self,
        addr: u64,
        code: &Rc<CodeBytes>,
        offset: u64,
        len: u64,
    ) -> Result<(), String> {
        let len = len.min((code.bytes.len() as u64).saturating_sub(offset));
        let Some(end) = addr.checked_add(len).filter(|_| len > 0) else {
            return Ok(());
        };
        let library = self.cache.library;
        // SAFETY: cache and name are alive; libipt copies the name.
        let section = unsafe {
            (library.pt_iscache_add_file)(self.cache.raw, code.name.as_ptr(), offset, len, addr)
        };
        if section < 0 {
            return Err(super::decoder::told(library, section));
        }
        // SAFETY: image and cache are alive; no address space is given, as there is one an image.
        let added =
            unsafe { (library.pt_image_add_cached)(self.raw, self.cache.raw, section, null()) };
        if added < 0 {
            return Err(super::decoder::told(library, added));
        }
        self.cut(addr, end);
        let piece = Piece {
            end,
            code: Rc::clone(code),
            offset,
        };
        self.pieces.borrow_mut().insert(addr, piece);
        self.changes.set(self.changes.get() + 1);
        Ok(())
    }

    /// Takes `start..end` out of the pieces that were there.
    fn cut(&self, start: u64, end: u64) {
        let mut pieces = self.pieces.borrow_mut();
        let over: Vec<u64> = pieces
            .range(..end)
            .rev()
            .take_while(|(_, piece)| piece.end > start)
            .map(|(addr, _)| *addr)
            .collect();
        for addr in over {
            let Some(old) = pieces.remove(&addr) else {
                continue;
            };
            if old.end > end {
                let rest = Piece {
                    offset: old.offset + (end - addr),
                    ..old.clone()
                };
                pieces.insert(end, rest);
            }
            if addr < start {
                pieces.insert(addr, Piece { end: start, ..old });
            }
        }
    }

    /// Up to 15 bytes from `addr` on, across pieces that follow each other.
    #[must_use]
    pub fn read(&self, addr: u64) -> Vec<u8> {
        let pieces = self.pieces.borrow();
        let mut bytes = Vec::new();
        let mut at = addr;
        while (bytes.len() as u64) < LONGEST
            && let Some((start, piece)) = pieces.range(..=at).next_back()
            && at < piece.end
        {
            let from = piece.offset + (at - start);
            let len = (piece.end - at).min(LONGEST - bytes.len() as u64);
            let range = usize::try_from(from).unwrap_or(usize::MAX)
                ..usize::try_from(from + len).unwrap_or(usize::MAX);
            let Some(more) = piece.code.bytes.get(range) else {
                break;
            };
            bytes.extend_from_slice(more);
            at += len;
        }
        bytes
    }

    /// How often it was changed: what was learnt of its code holds as long as this stays.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    pub(super) fn raw(&self) -> *mut c_void {
        self.raw
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: it was allocated, and decoders that use it hold it.
        unsafe { (self.cache.library.pt_image_free)(self.raw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_later_hides_what_was_there() {
        let Ok(image) = Image::new() else {
            println!("skipped: no libipt");
            return;
        };
        let old = CodeBytes::new(vec![1; 0x100]).unwrap();
        let new = CodeBytes::new(vec![2; 0x10]).unwrap();
        image.map(0x1000, &old, 0, 0x100).unwrap();
        image.map(0x1040, &new, 0, 0x10).unwrap();
        assert_eq!(image.read(0x103f), [vec![1], vec![2; 14]].concat());
        assert_eq!(image.read(0x104f), [vec![2], vec![1; 14]].concat());
        assert_eq!(image.read(0x10ff), [1]);
        assert!(image.read(0x1100).is_empty());
        assert!(image.read(0xfff).is_empty());
        assert_eq!(image.changes(), 2);
    }
}
