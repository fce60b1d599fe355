//! Where the symbols that were stripped from a file are kept, and whether a found file belongs to it.
//!
//! Opens nothing itself: the caller looks paths up as the traced process sees them.

use std::path::Path;

use super::elf::ElfFile;

/// Most bytes that `.gnu_debugdata` may unpack to: a hostile section must not fill the memory.
const MAX_UNPACKED: usize = 256 << 20;

/// Finds separate debug files.
pub trait DebugFiles {
    /// The content of the file at `path`, or `None` if it is not there or cannot be read.
    fn open(&self, path: &str) -> Option<Box<dyn AsRef<[u8]>>>;
}

/// No debug files: names come from the image itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDebugFiles;

impl DebugFiles for NoDebugFiles {
    fn open(&self, _path: &str) -> Option<Box<dyn AsRef<[u8]>>> {
        None
    }
}

/// The separate debug file of an image at `path`: by build-id, else by debug link with its CRC checked.
pub(super) fn find(
    elf: &ElfFile<'_>,
    path: &str,
    files: &dyn DebugFiles,
) -> Option<Box<dyn AsRef<[u8]>>> {
    by_build_id(elf, files).or_else(|| by_debug_link(elf, path, files))
}

fn by_build_id(elf: &ElfFile<'_>, files: &dyn DebugFiles) -> Option<Box<dyn AsRef<[u8]>>> {
    let id = elf.build_id()?;
    let (first, rest) = id.split_first()?;
    let bytes = files.open(&format!(
        "/usr/lib/debug/.build-id/{first:02x}/{}.debug",
        hex(rest)
    ))?;
    let same = ElfFile::parse((*bytes).as_ref()).is_ok_and(|debug| debug.build_id() == Some(id));
    same.then_some(bytes)
}

fn by_debug_link(
    elf: &ElfFile<'_>,
    path: &str,
    files: &dyn DebugFiles,
) -> Option<Box<dyn AsRef<[u8]>>> {
    let (name, crc) = elf.debug_link()?;
    if name.contains('/') {
        return None;
    }
    let folder = Path::new(path).parent()?.to_str()?;
    [
        format!("{folder}/{name}"),
        format!("{folder}/.debug/{name}"),
        format!("/usr/lib/debug{folder}/{name}"),
    ]
    .iter()
    .filter(|candidate| *candidate != path)
    .filter_map(|candidate| files.open(candidate))
    .find(|bytes| crc32fast::hash((**bytes).as_ref()) == crc)
}

/// The symbol table that distributions keep in `.gnu_debugdata`, unpacked.
pub(super) fn unpack_mini_debug_info(elf: &ElfFile<'_>) -> Option<Vec<u8>> {
    let (_, mut packed) = elf.section(".gnu_debugdata")?;
    let size = unpacked_size(packed)?;
    let mut unpacked = Vec::with_capacity(size);
    lzma_rs::xz_decompress(&mut packed, &mut unpacked).ok()?;
    Some(unpacked)
}

/// What an xz stream unpacks to, by the chunk headers that bound its decoder; `None` above [`MAX_UNPACKED`].
///
/// The decoder keeps a whole block in memory and takes no limit, so the sum is made first. Layout: the
/// [xz file format](https://tukaani.org/xz/xz-file-format.txt), sections 2 and 3, and its LZMA2 chunks.
fn unpacked_size(xz: &[u8]) -> Option<usize> {
    const CHECK_SIZES: [usize; 16] = [0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64];
    let check = *CHECK_SIZES.get(usize::from(xz.get(7)? & 0xf))?;
    let (mut at, mut total) = (12, 0usize);
    loop {
        match *xz.get(at)? {
            0 => return Some(total),
            words => at += (usize::from(words) + 1) * 4,
        }
        while let Some(chunk) = Chunk::read(xz.get(at..)?)? {
            at += chunk.packed;
            total = total
                .checked_add(chunk.unpacked)
                .filter(|&total| total <= MAX_UNPACKED)?;
        }
        at = (at + 1).next_multiple_of(4) + check;
    }
}

/// Sizes of one LZMA2 chunk, header included.
struct Chunk {
    packed: usize,
    unpacked: usize,
}

impl Chunk {
    /// `Some(None)` at the end of the block, `None` if this is no chunk.
    fn read(bytes: &[u8]) -> Option<Option<Self>> {
        let size = |at: usize| {
            Some(usize::from(u16::from_be_bytes(*bytes.get(at..)?.first_chunk::<2>()?)) + 1)
        };
        match *bytes.first()? {
            0 => Some(None),
            1 | 2 => Some(Some(Self {
                packed: 3 + size(1)?,
                unpacked: size(1)?,
            })),
            control @ 0x80.. => {
                let header = if control >= 0xc0 { 6 } else { 5 };
                let unpacked = (usize::from(control & 0x1f) << 16) + size(1)?;
                Some(Some(Self {
                    packed: header + size(3)?,
                    unpacked,
                }))
            }
            _ => None,
        }
    }
}

/// Lower-case hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
