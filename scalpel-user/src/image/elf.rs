//! The file's own layout: segments, sections, build-id, debug link, kind.
//!
//! Addresses become file offsets by program headers alone, because section headers may be missing and lie about
//! nothing the loader uses. Must not know symbols, unwind tables or instructions.

use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{
    FileHeader as _, Note, NoteIterator, ProgramHeader as _, SectionHeader as _, SectionTable,
};

use super::ImageError;

/// Segments that are kept; real files have fewer than 20.
const MAX_SEGMENTS: usize = 64;

/// The only header shape that is read: 64-bit little-endian.
pub(super) type Header = elf::FileHeader64<LE>;

/// How the file is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// `ET_EXEC`: addresses are absolute.
    Executable,
    /// Position-independent executable with an interpreter.
    Pie,
    /// Position-independent executable that relocates itself.
    StaticPie,
    /// Shared library.
    SharedLibrary,
}

/// One `PT_LOAD`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) vaddr: u64,
    pub(super) offset: u64,
    pub(super) file_size: u64,
    pub(super) executable: bool,
    pub(super) writable: bool,
}

impl Segment {
    /// One past the last address that the file backs.
    pub(super) fn end(&self) -> u64 {
        self.vaddr.saturating_add(self.file_size)
    }

    pub(super) fn holds(&self, vaddr: u64) -> bool {
        (self.vaddr..self.end()).contains(&vaddr)
    }
}

/// A parsed ELF file; borrows its bytes.
#[derive(Debug)]
pub(super) struct ElfFile<'d> {
    pub(super) data: &'d [u8],
    header: &'d Header,
    programs: &'d [elf::ProgramHeader64<LE>],
    /// Segments whose file part lies wholly inside the file, by address.
    pub(super) segments: Vec<Segment>,
    /// Empty if the file has none, or broken ones.
    pub(super) sections: SectionTable<'d, Header>,
}

impl<'d> ElfFile<'d> {
    /// Reads the headers. Broken section headers are dropped, broken program headers are an error.
    pub(super) fn parse(data: &'d [u8]) -> Result<Self, ImageError> {
        let header = Header::parse(data).map_err(|source| ImageError::NotElf { source })?;
        if !header.is_little_endian() || header.e_machine(LE) != elf::EM_X86_64 {
            return Err(ImageError::Unsupported {
                machine: header.e_machine(LE).0,
            });
        }
        let programs = header
            .program_headers(LE, data)
            .map_err(|source| ImageError::Headers { source })?;
        let sections = header.sections(LE, data).unwrap_or_default();
        let mut segments: Vec<Segment> = programs
            .iter()
            .filter_map(|p| segment(p, data.len() as u64))
            .collect();
        keep_plausible(&mut segments, data.len() as u64);
        segments.sort_by_key(|segment| segment.vaddr);
        Ok(Self {
            data,
            header,
            programs,
            segments,
            sections,
        })
    }

    /// How the loader treats it.
    pub(super) fn kind(&self) -> ImageKind {
        let interpreter = self.programs.iter().any(|p| p.p_type(LE) == elf::PT_INTERP);
        match self.header.e_type(LE) {
            elf::ET_EXEC => ImageKind::Executable,
            _ if interpreter => ImageKind::Pie,
            _ if self.dynamic_flags_1() & elf::DF_1_PIE.0 != 0 => ImageKind::StaticPie,
            _ => ImageKind::SharedLibrary,
        }
    }

    fn dynamic_flags_1(&self) -> u64 {
        let flags = self
            .dynamic()
            .iter()
            .find(|entry| entry.d_tag.get(LE) == elf::DT_FLAGS_1);
        flags.map_or(0, |entry| entry.d_val.get(LE))
    }

    /// Entries of `PT_DYNAMIC`; empty in a static file.
    pub(super) fn dynamic(&self) -> &'d [elf::Dyn64<LE>] {
        self.programs
            .iter()
            .find_map(|p| p.dynamic(LE, self.data).ok().flatten())
            .unwrap_or_default()
    }

    /// Address of the table that `PT_GNU_EH_FRAME` points to.
    pub(super) fn eh_frame_hdr(&self) -> Option<u64> {
        self.programs
            .iter()
            .find(|p| p.p_type(LE) == elf::PT_GNU_EH_FRAME)
            .map(|p| p.p_vaddr(LE))
    }

    /// The file-backed segment of an address.
    pub(super) fn segment_at(&self, vaddr: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.holds(vaddr))
    }

    /// Whether the address is code: inside an executable segment.
    pub(super) fn is_code(&self, vaddr: u64) -> bool {
        self.segment_at(vaddr)
            .is_some_and(|segment| segment.executable)
    }

    /// Offset in the file of an address of code.
    pub(super) fn code_offset(&self, vaddr: u64) -> Option<u64> {
        let segment = self
            .segment_at(vaddr)
            .filter(|segment| segment.executable)?;
        Some(vaddr - segment.vaddr + segment.offset)
    }

    /// Bytes in executable segments.
    pub(super) fn code_size(&self) -> u64 {
        self.segments
            .iter()
            .filter(|segment| segment.executable)
            .map(|segment| segment.file_size)
            .sum()
    }

    /// Bytes from an address to the end of its segment's file part.
    pub(super) fn bytes_from(&self, vaddr: u64) -> Option<&'d [u8]> {
        let segment = self.segment_at(vaddr)?;
        let start = usize::try_from(segment.offset + (vaddr - segment.vaddr)).ok()?;
        let end = usize::try_from(segment.offset + segment.file_size).ok()?;
        self.data.get(start..end)
    }

    /// At most `len` bytes from an address.
    pub(super) fn bytes_at(&self, vaddr: u64, len: u64) -> Option<&'d [u8]> {
        let bytes = self.bytes_from(vaddr)?;
        Some(bytes.get(..usize::try_from(len).ok()?).unwrap_or(bytes))
    }

    /// The little-endian word at an address.
    pub(super) fn word_at(&self, vaddr: u64) -> Option<u64> {
        let bytes = self.bytes_from(vaddr)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Address and bytes of a section, by name.
    pub(super) fn section(&self, name: &str) -> Option<(u64, &'d [u8])> {
        let (_, section) = self.sections.section_by_name(LE, name.as_bytes())?;
        Some((section.sh_addr(LE), section.data(LE, self.data).ok()?))
    }

    /// Address ranges of the sections that hold import stubs.
    pub(super) fn stub_ranges(&self) -> Vec<(u64, u64)> {
        let named = self.sections.iter().filter(|section| {
            let name = self.sections.section_name(LE, section).unwrap_or_default();
            matches!(
                name,
                b".plt" | b".plt.got" | b".plt.sec" | b".plt.bnd" | b".iplt"
            )
        });
        named
            .map(|s| (s.sh_addr(LE), s.sh_addr(LE).saturating_add(s.sh_size(LE))))
            .collect()
    }

    /// The GNU build-id, from the notes of the program headers, else of the sections.
    pub(super) fn build_id(&self) -> Option<&'d [u8]> {
        let in_segments = self
            .programs
            .iter()
            .filter_map(|p| p.notes(LE, self.data).ok().flatten());
        let in_sections = self
            .sections
            .iter()
            .filter_map(|s| s.notes(LE, self.data).ok().flatten());
        in_segments.chain(in_sections).find_map(build_id_note)
    }

    /// What Go's linker calls the build, which it writes whether or not there is a build-id.
    pub(super) fn go_build_id(&self) -> Option<&'d [u8]> {
        const GO: &[u8] = b"Go";
        const BUILD_ID: elf::NoteType = elf::NoteType(4);
        let notes = self
            .programs
            .iter()
            .filter_map(|p| p.notes(LE, self.data).ok().flatten());
        notes.flat_map(all_notes).find_map(|note| {
            let is_it = note.name() == GO && note.n_type(LE) == BUILD_ID;
            is_it.then_some(note.desc()).filter(|id| !id.is_empty())
        })
    }

    /// File name and CRC-32 in `.gnu_debuglink`.
    pub(super) fn debug_link(&self) -> Option<(&'d str, u32)> {
        let (_, bytes) = self.section(".gnu_debuglink")?;
        let end = bytes.iter().position(|&b| b == 0)?;
        let crc = bytes.get(end.checked_add(4)? & !3..)?.first_chunk::<4>()?;
        Some((
            str::from_utf8(bytes.get(..end)?).ok()?,
            u32::from_le_bytes(*crc),
        ))
    }

    /// Address of the program's first instruction.
    pub(super) fn entry_point(&self) -> u64 {
        self.header.e_entry(LE)
    }
}

/// Segments share at most a page with their neighbours: in a file that maps its bytes over and over, reading all
/// segments would take for ever.
fn keep_plausible(segments: &mut Vec<Segment>, file_len: u64) {
    segments.truncate(MAX_SEGMENTS);
    let mut left = file_len.saturating_mul(2);
    segments.retain(|segment| {
        let fits = segment.file_size <= left;
        left = left.saturating_sub(segment.file_size);
        fits
    });
}

fn segment(program: &elf::ProgramHeader64<LE>, file_len: u64) -> Option<Segment> {
    let (offset, file_size) = program.file_range(LE);
    let inside =
        program.p_type(LE) == elf::PT_LOAD && offset <= file_len && file_size <= file_len - offset;
    let flags = program.p_flags(LE).0;
    inside.then_some(Segment {
        vaddr: program.p_vaddr(LE),
        offset,
        file_size: file_size.min(u64::MAX - program.p_vaddr(LE)),
        executable: flags & elf::PF_X.0 != 0,
        writable: flags & elf::PF_W.0 != 0,
    })
}

fn all_notes<'d>(mut notes: NoteIterator<'d, Header>) -> impl Iterator<Item = Note<'d, Header>> {
    std::iter::from_fn(move || notes.next().ok().flatten())
}

fn build_id_note<'d>(mut notes: NoteIterator<'d, Header>) -> Option<&'d [u8]> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU
            && note.n_type(LE) == elf::NT_GNU_BUILD_ID
            && !note.desc().is_empty()
        {
            return Some(note.desc());
        }
    }
    None
}
