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

/// A file that was found: where, and what is in it.
pub struct DebugFile {
    /// Its path.
    pub path: String,
    /// Its content.
    pub bytes: Box<dyn AsRef<[u8]>>,
}

/// What debug information of an executable lies in other files, for readers that need more than its symbols.
pub struct Separate {
    /// The separate debug file.
    pub own: Option<DebugFile>,
    /// What the debug information, its own or the separate one, shares with that of other executables.
    pub shared: Option<DebugFile>,
}

/// Finds the files that hold what is missing in the executable at `path`.
pub fn separate(data: &[u8], path: &str, files: &dyn DebugFiles) -> Separate {
    let elf = ElfFile::parse(data).ok();
    let own = elf
        .as_ref()
        .filter(|elf| elf.section(".debug_info").is_none())
        .and_then(|elf| find(elf, path, files));
    let from = match &own {
        Some(file) => ElfFile::parse((*file.bytes).as_ref()).ok(),
        None => elf,
    };
    let path = own.as_ref().map_or(path, |file| &file.path);
    let shared = from.and_then(|elf| shared(&elf, path, files));
    Separate { own, shared }
}

/// `.gnu_debugaltlink`: a path, from the file's own folder, and the build-id of what must lie there.
fn shared(elf: &ElfFile<'_>, path: &str, files: &dyn DebugFiles) -> Option<DebugFile> {
    let (_, bytes) = elf.section(".gnu_debugaltlink")?;
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let name = str::from_utf8(bytes.get(..end)?).ok()?;
    let id = bytes.get(end + 1..).filter(|id| !id.is_empty())?;
    let folder = Path::new(path).parent()?;
    let beside = folder.join(name).to_str()?.to_owned();
    let candidates = [Some(beside), path_of_build_id(id)];
    candidates.into_iter().flatten().find_map(|path| {
        let bytes = files.open(&path)?;
        has_build_id(&*bytes, id).then_some(DebugFile { path, bytes })
    })
}

/// The separate debug file of an image at `path`: by build-id, else by debug link with its CRC checked.
pub(super) fn find(elf: &ElfFile<'_>, path: &str, files: &dyn DebugFiles) -> Option<DebugFile> {
    by_build_id(elf, files).or_else(|| by_debug_link(elf, path, files))
}

fn by_build_id(elf: &ElfFile<'_>, files: &dyn DebugFiles) -> Option<DebugFile> {
    let id = elf.build_id()?;
    let path = path_of_build_id(id)?;
    let bytes = files.open(&path)?;
    has_build_id(&*bytes, id).then_some(DebugFile { path, bytes })
}

fn path_of_build_id(id: &[u8]) -> Option<String> {
    let (first, rest) = id.split_first()?;
    Some(format!(
        "/usr/lib/debug/.build-id/{first:02x}/{}.debug",
        hex(rest)
    ))
}

fn has_build_id(bytes: &dyn AsRef<[u8]>, id: &[u8]) -> bool {
    ElfFile::parse(bytes.as_ref()).is_ok_and(|debug| debug.build_id() == Some(id))
}

fn by_debug_link(elf: &ElfFile<'_>, path: &str, files: &dyn DebugFiles) -> Option<DebugFile> {
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
    .into_iter()
    .filter(|candidate| *candidate != path)
    .find_map(|path| {
        let bytes = files.open(&path)?;
        let same = crc32fast::hash((*bytes).as_ref()) == crc;
        same.then_some(DebugFile { path, bytes })
    })
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
