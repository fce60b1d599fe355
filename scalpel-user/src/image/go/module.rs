//! Where Go's linker put code and function data, as its runtime is told: entries of the table are distances from there.

use object::endian::LittleEndian as LE;

use super::super::dynamic::Dynamic;
use super::super::elf::{ElfFile, Segment};

/// Places of fields in what the linker writes for the runtime (`runtime.moduledata`), in bytes. The same since Go 1.18,
/// but for two words between `etext` and `rodata` that Go 1.20 added.
const MIN_PC: u64 = 160;
const TEXT: u64 = 176;
const END_OF_TEXT: u64 = 184;
const FUNCTION_DATA_1_18: u64 = 304;
const FUNCTION_DATA_1_20: u64 = 320;

/// What the runtime is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Module {
    /// Address that entries count from.
    pub(super) text: u64,
    /// Address that function data count from.
    pub(super) function_data: Option<u64>,
}

impl Module {
    /// Finds the module whose first word points to `table`; `old`: Go 1.18 or 1.19 wrote it.
    pub(super) fn find(
        elf: &ElfFile<'_>,
        dynamic: &Dynamic<'_>,
        table: u64,
        old: bool,
    ) -> Option<Self> {
        let words = Words::new(elf, dynamic);
        let at = if old {
            FUNCTION_DATA_1_18
        } else {
            FUNCTION_DATA_1_20
        };
        words.holding(table).into_iter().find_map(|module| {
            let field = |offset: u64| words.at(module.checked_add(offset)?);
            let (first, text, end) = (field(MIN_PC)?, field(TEXT)?, field(END_OF_TEXT)?);
            let plausible = elf.is_code(text) && text <= first && first < end;
            plausible.then(|| Self {
                text,
                function_data: field(at).filter(|&data| elf.segment_at(data).is_some()),
            })
        })
    }
}

/// Words of data as they are once the file is loaded: some linkers leave them empty and write what belongs there into
/// the relocations.
struct Words<'a, 'd> {
    elf: &'a ElfFile<'d>,
    relocated: Vec<(u64, u64)>,
}

impl<'a, 'd> Words<'a, 'd> {
    fn new(elf: &'a ElfFile<'d>, dynamic: &Dynamic<'d>) -> Self {
        let mut relocated = dynamic.relative(elf);
        relocated.sort_unstable();
        Self { elf, relocated }
    }

    fn at(&self, vaddr: u64) -> Option<u64> {
        let by_loader = self
            .relocated
            .binary_search_by_key(&vaddr, |(place, _)| *place)
            .ok()
            .and_then(|index| self.relocated.get(index));
        match by_loader {
            Some((_, value)) => Some(*value),
            None => self.elf.word_at(vaddr),
        }
    }

    /// Addresses of the words of data that hold a value.
    fn holding(&self, value: u64) -> Vec<u64> {
        let by_loader = self.relocated.iter().filter(|(_, held)| *held == value);
        let mut found: Vec<u64> = by_loader.map(|(place, _)| *place).collect();
        let data = |segment: &&Segment| !segment.executable;
        for segment in self.elf.segments.iter().filter(data) {
            let Some((first, words)) = words_of(self.elf, segment) else {
                continue;
            };
            let here = words
                .iter()
                .enumerate()
                .filter(|(_, word)| u64::from_le_bytes(**word) == value)
                .map(|(index, _)| first.saturating_add(index as u64 * 8));
            found.extend(here.take(MAX_CANDIDATES));
        }
        found
    }
}

/// Words with the right value that are looked at, a segment: real files have one to four.
const MAX_CANDIDATES: usize = 64;

/// Address and bytes of the table: of its section, else, where there are no sections, where it looks like it.
pub(super) fn locate<'d>(elf: &ElfFile<'d>) -> Option<(u64, &'d [u8])> {
    let named = [".gopclntab", ".data.rel.ro.gopclntab"];
    if let Some((vaddr, _)) = named.iter().find_map(|name| elf.section(name)) {
        return Some((vaddr, elf.bytes_from(vaddr)?));
    }
    if !elf.sections.is_empty() {
        return None;
    }
    elf.segments.iter().find_map(|segment| {
        let (first, words) = words_of(elf, segment)?;
        let at = words.iter().position(looks_like_the_table)?;
        let vaddr = first.checked_add(at as u64 * 8)?;
        Some((vaddr, elf.bytes_from(vaddr)?))
    })
}

/// The words of a segment with the address of the first one: they stand at multiples of 8, where segments need not begin.
fn words_of<'d>(elf: &ElfFile<'d>, segment: &Segment) -> Option<(u64, &'d [[u8; 8]])> {
    let first = segment.vaddr.checked_next_multiple_of(8)?;
    let (words, _) = elf.bytes_from(first)?.as_chunks::<8>();
    Some((first, words))
}

/// Magic number, two zeros, instructions of any length, pointers of 8 bytes.
fn looks_like_the_table(word: &[u8; 8]) -> bool {
    matches!(word, [0xf0 | 0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8])
}

/// Address of the section of code, where the module cannot be found.
pub(super) fn section_of_code(elf: &ElfFile<'_>) -> Option<u64> {
    use object::read::elf::SectionHeader as _;
    let (_, section) = elf.sections.section_by_name(LE, b".text")?;
    Some(section.sh_addr(LE))
}
