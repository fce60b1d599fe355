//! Registers and stack memory of a thread -> the return addresses of its open frames.
//!
//! Pure: images come as bytes, memory through a function. By `.eh_frame` or `.debug_frame` where an image has them, else
//! (JIT code) by frame pointers, which is told frame by frame: there a frame can be missing.

use std::ops::Range;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};

/// Frames after which a stack counts as endless.
pub const MOST_FRAMES: usize = 4096;

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnwindError {
    /// It is no executable file.
    #[error("its unwind information cannot be read: {0}")]
    NoImage(#[from] object::Error),
    /// The mapping is not one of the image's.
    #[error("no segment of the file is mapped from offset {0:#x}")]
    NoSegment(u64),
}

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// `rbp`.
    pub bp: u64,
}

/// How a walk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// At the thread's first function.
    Root,
    /// Here no caller could be found, though there is one.
    Lost(String),
    /// After [`MOST_FRAMES`].
    TooDeep,
}

/// One open frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The instruction pointer for the innermost frame, else the return address.
    pub address: u64,
    /// It is a return address: the call is the instruction before it.
    pub is_return: bool,
    /// Its caller was found by frame pointers, for want of unwind information.
    pub by_frame_pointer: bool,
}

/// The frames of a thread, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Frames.
    pub frames: Vec<Frame>,
    /// How it ended.
    pub end: End,
}

/// What is known of one process's code.
pub struct Unwinder {
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
    covered: Vec<Range<u64>>,
}

/// A part of an image's bytes.
#[derive(Clone, Default)]
struct Bytes {
    image: Arc<[u8]>,
    part: Range<usize>,
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.image.get(self.part.clone()).unwrap_or_default()
    }
}

impl Default for Unwinder {
    fn default() -> Self {
        Self::new()
    }
}

impl Unwinder {
    /// No code known yet.
    pub fn new() -> Self {
        Self {
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
            covered: Vec::new(),
        }
    }

    /// An image of which the bytes from file offset `offset` on are mapped at `start`.
    pub fn add(
        &mut self,
        name: &str,
        image: &Arc<[u8]>,
        start: u64,
        offset: u64,
    ) -> Result<(), UnwindError> {
        let file = object::File::parse(&**image)?;
        let bias = file
            .segments()
            // Linkers may let the page of one segment's end be the next one's beginning: only code is mapped here.
            .filter(is_code)
            .find_map(|segment| {
                let (at, size) = segment.file_range();
                // Whole pages are mapped: the mapping may begin before the segment.
                let first = at & !(PAGE - 1);
                let within = (first..at.saturating_add(size)).contains(&offset);
                let address = segment.address().wrapping_add(offset.wrapping_sub(at));
                within.then(|| start.wrapping_sub(address))
            })
            .ok_or(UnwindError::NoSegment(offset))?;
        let ends = file
            .segments()
            .map(|segment| (segment.address(), segment.address() + segment.size()));
        let (low, high) = ends.fold((u64::MAX, 0), |(low, high), (from, to)| {
            (low.min(from), high.max(to))
        });
        let range = bias.wrapping_add(low)..bias.wrapping_add(high);
        let sections = sections(&file, image);
        if sections.eh_frame.is_some() || sections.debug_frame.is_some() {
            self.covered.push(range.clone());
        }
        self.unwinder
            .add_module(Module::new(name.to_owned(), range, bias, sections));
        Ok(())
    }

    /// Walks a stack. `read` gives the 8 bytes at an address, if they can be read.
    pub fn walk(&mut self, at: At, read: &mut dyn FnMut(u64) -> Option<u64>) -> Walk {
        let mut read = |address| read(address).ok_or(());
        let registers = UnwindRegsX86_64::new(at.ip, at.sp, at.bp);
        let mut frames: Vec<Frame> = Vec::new();
        let mut steps = self
            .unwinder
            .iter_frames(at.ip, registers, &mut self.cache, &mut read);
        let end = loop {
            if frames.len() >= MOST_FRAMES {
                break End::TooDeep;
            }
            match steps.next() {
                Ok(Some(frame)) => {
                    let lookup = frame.address_for_lookup();
                    let is_return = matches!(frame, FrameAddress::ReturnAddress(_));
                    let by_frame_pointer =
                        !self.covered.iter().any(|range| range.contains(&lookup));
                    frames.push(Frame {
                        address: frame.address(),
                        is_return,
                        by_frame_pointer,
                    });
                }
                Ok(None) => break End::Root,
                Err(error) => break End::Lost(error.to_string()),
            }
        };
        Walk { frames, end }
    }
}

fn is_code(segment: &object::Segment<'_, '_>) -> bool {
    let executable = object::elf::PF_X;
    matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags & executable == executable)
}

/// Smallest page of x86-64.
const PAGE: u64 = 4096;

fn sections(file: &object::File<'_>, image: &Arc<[u8]>) -> ExplicitModuleSectionInfo<Bytes> {
    let range = |name: &str| {
        let section = file.section_by_name(name)?;
        Some(section.address()..section.address() + section.size())
    };
    let bytes = |name: &str| {
        let section = file.section_by_name(name)?;
        let plain = section.compressed_file_range().ok()?;
        if plain.format != object::CompressionFormat::None {
            let image: Arc<[u8]> = section.uncompressed_data().ok()?.into();
            let part = 0..image.len();
            return Some(Bytes { image, part });
        }
        let start = usize::try_from(plain.offset).ok()?;
        let end = start.checked_add(usize::try_from(plain.uncompressed_size).ok()?)?;
        (end <= image.len()).then(|| Bytes {
            image: Arc::clone(image),
            part: start..end,
        })
    };
    ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(".text"),
        text: bytes(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: bytes(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: bytes(".eh_frame_hdr"),
        debug_frame: bytes(".debug_frame"),
        ..ExplicitModuleSectionInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_image_are_refused() {
        let mut unwinder = Unwinder::new();
        let garbage: Arc<[u8]> = Arc::from(&b"no image"[..]);
        assert!(matches!(
            unwinder.add("x", &garbage, 0, 0),
            Err(UnwindError::NoImage(_))
        ));
    }

    #[test]
    fn frame_pointers_are_followed_where_nothing_is_known_and_said_to_be_it() {
        // Two frames: [bp] = caller's bp, [bp + 8] = return address; the outermost has a null pointer.
        let memory = [
            (0x1000, 0x1020),
            (0x1008, 0x5000),
            (0x1020, 0),
            (0x1028, 0x6000),
        ];
        let mut read = |address| {
            memory
                .iter()
                .find(|(at, _)| *at == address)
                .map(|(_, value)| *value)
        };
        let at = At {
            ip: 0x4000,
            sp: 0xff0,
            bp: 0x1000,
        };
        let walk = Unwinder::new().walk(at, &mut read);
        let addresses: Vec<u64> = walk.frames.iter().map(|frame| frame.address).collect();
        assert_eq!(addresses, [0x4000, 0x5000, 0x6000]);
        assert!(walk.frames.iter().all(|frame| frame.by_frame_pointer));
        assert!(!walk.frames[0].is_return && walk.frames[1].is_return);
    }

    #[test]
    fn memory_that_cannot_be_read_ends_a_walk_as_lost() {
        let at = At {
            ip: 0x4000,
            sp: 0xff0,
            bp: 0x1000,
        };
        let walk = Unwinder::new().walk(at, &mut |_| None);
        assert_eq!(walk.frames.len(), 1);
        assert!(matches!(walk.end, End::Lost(_)), "{:?}", walk.end);
    }

    #[test]
    fn a_chain_without_end_is_cut() {
        let at = At {
            ip: 0x4000,
            sp: 0,
            bp: 0x1000,
        };
        // Each frame's caller is 16 bytes further, for ever.
        let walk = Unwinder::new().walk(at, &mut |address| {
            Some(if address % 16 == 0 {
                address + 16
            } else {
                0x5000
            })
        });
        assert_eq!((walk.frames.len(), walk.end), (MOST_FRAMES, End::TooDeep));
    }
}
