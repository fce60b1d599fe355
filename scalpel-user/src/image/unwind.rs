//! `.eh_frame`: where functions begin and end, where the return address is at each instruction, and which
//! personality routines can stop an exception.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, EhFrame, EhFrameHdr, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Pointer, UnwindContext, UnwindSection as _, X86_64,
};
use rustc_hash::FxHashMap;

use super::elf::ElfFile;

/// Longest common entry that is executed for each of its functions, in bytes: real ones have 20 to 30.
const MAX_SHARED: usize = 1 << 10;

/// Distinct personality pointers that are kept: real files have one to three.
const MAX_PERSONALITIES: usize = 64;

type Reader<'d> = EndianSlice<'d, LittleEndian>;
type Entry<'d> = FrameDescriptionEntry<Reader<'d>>;

/// How the canonical frame address (the caller's stack pointer; the return address lies 8 below) is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cfa {
    /// `rsp` plus this.
    Rsp(i64),
    /// `rbp` plus this.
    Rbp(i64),
    /// Another register or an expression.
    Other,
}

impl Cfa {
    /// At a function's first instruction, and as long as the stack pointer has not moved.
    pub(super) const ENTRY: Self = Self::Rsp(8);

    fn of(rule: &CfaRule<usize>) -> Self {
        match *rule {
            CfaRule::RegisterAndOffset {
                register: X86_64::RSP,
                offset,
            } => Self::Rsp(offset),
            CfaRule::RegisterAndOffset {
                register: X86_64::RBP,
                offset,
            } => Self::Rbp(offset),
            _ => Self::Other,
        }
    }
}

/// One range of code that has an entry in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fde {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Its part of the table's rows.
    rows: (usize, usize),
    /// Whether it describes a signal handler's return trampoline.
    pub(super) signal_frame: bool,
    /// Whether it has an exception table: exceptions may be received in it.
    pub(super) has_landing_pads: bool,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    start: u64,
    cfa: Cfa,
}

/// All of `.eh_frame`, sorted by address.
#[derive(Debug, Default)]
pub(super) struct Unwind {
    pub(super) fdes: Vec<Fde>,
    rows: Vec<Row>,
    /// Distinct personality pointers; indirect ones are addresses of words. With each whether it may *stop* an
    /// exception: whether some function's exception table has types to catch.
    pub(super) personalities: Vec<(Pointer, bool)>,
}

impl Unwind {
    /// Reads what can be read: a damaged entry ends the table.
    pub(super) fn parse(elf: &ElfFile<'_>) -> Self {
        Self::read(elf, None)
    }

    /// The same with the rules of those entries alone that cover one of these addresses, which rise, and without
    /// personality routines.
    pub(super) fn parse_at(elf: &ElfFile<'_>, wanted: &[u64]) -> Self {
        Self::read(elf, Some(wanted))
    }

    fn read(elf: &ElfFile<'_>, wanted: Option<&[u64]>) -> Self {
        let Some((vaddr, bytes)) = locate(elf) else {
            return Self::default();
        };
        let bases = bases(elf, vaddr);
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let mut builder = Builder {
            elf,
            section: &section,
            bases: &bases,
            wanted,
            unwind: Self::default(),
        };
        builder.read();
        let mut unwind = builder.unwind;
        unwind.fdes.sort_by_key(|fde| (fde.start, fde.end));
        unwind.fdes.dedup_by_key(|fde| fde.start);
        unwind
    }

    /// The entry that covers an address.
    pub(super) fn covering(&self, vaddr: u64) -> Option<&Fde> {
        let index = self
            .fdes
            .partition_point(|fde| fde.start <= vaddr)
            .checked_sub(1)?;
        self.fdes.get(index).filter(|fde| vaddr < fde.end)
    }

    /// A reader for addresses in rising order.
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor {
            unwind: self,
            valid: 0..0,
            cfa: None,
        }
    }

    /// The rule at an address and the range in which it holds.
    fn rule_at(&self, vaddr: u64) -> (Range<u64>, Option<Cfa>) {
        let next = self.fdes.partition_point(|fde| fde.start <= vaddr);
        let end = self.fdes.get(next).map_or(u64::MAX, |fde| fde.start);
        let Some(fde) = self.covering(vaddr) else {
            return (vaddr..end, None);
        };
        let rows = self.rows.get(fde.rows.0..fde.rows.1).unwrap_or_default();
        let after = rows.partition_point(|row| row.start <= vaddr);
        let end = rows
            .get(after)
            .map_or(fde.end, |row| row.start)
            .min(fde.end)
            .min(end);
        let rule = after
            .checked_sub(1)
            .and_then(|index| rows.get(index))
            .map(|row| row.cfa);
        (vaddr..end, Some(rule.unwrap_or(Cfa::Other)))
    }
}

/// Where the frame address is, at rising addresses: rarely searches.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'u> {
    unwind: &'u Unwind,
    valid: Range<u64>,
    cfa: Option<Cfa>,
}

impl Cursor<'_> {
    /// The rule at an address; `None` where no entry covers it.
    pub(super) fn at(&mut self, vaddr: u64) -> Option<Cfa> {
        if !self.valid.contains(&vaddr) {
            (self.valid, self.cfa) = self.unwind.rule_at(vaddr);
        }
        self.cfa
    }
}

struct Builder<'a, 'd> {
    elf: &'a ElfFile<'d>,
    section: &'a EhFrame<Reader<'d>>,
    bases: &'a BaseAddresses,
    wanted: Option<&'a [u64]>,
    unwind: Unwind,
}

impl<'d> Builder<'_, 'd> {
    fn read(&mut self) {
        let mut cies: FxHashMap<usize, CommonInformationEntry<Reader<'d>>> = FxHashMap::default();
        let mut context = UnwindContext::new();
        let mut entries = self.section.entries(self.bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let parsed = partial.parse(|section, bases, offset| match cies.get(&offset.0) {
                Some(cie) => Ok(cie.clone()),
                None => section.cie_from_offset(bases, offset).inspect(|cie| {
                    cies.insert(offset.0, cie.clone());
                }),
            });
            match parsed {
                Ok(fde) if fde.initial_address() < fde.end_address() => {
                    self.add(&fde, &mut context)
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, fde: &Entry<'d>, context: &mut UnwindContext<usize>) {
        let first = self.unwind.rows.len();
        let is_wanted = self.is_wanted(fde.initial_address(), fde.end_address());
        if is_wanted {
            self.add_rows(fde, context);
        }
        self.unwind.fdes.push(Fde {
            start: fde.initial_address(),
            end: fde.end_address(),
            rows: (first, self.unwind.rows.len()),
            signal_frame: fde.is_signal_trampoline(),
            has_landing_pads: fde.lsda().is_some(),
        });
        if self.wanted.is_none()
            && let Some(personality) = fde.personality()
        {
            self.add_personality(personality, fde.lsda());
        }
    }

    fn is_wanted(&self, start: u64, end: u64) -> bool {
        self.wanted.is_none_or(|wanted| {
            let first = wanted.partition_point(|vaddr| *vaddr < start);
            wanted.get(first).is_some_and(|vaddr| *vaddr < end)
        })
    }

    fn add_personality(&mut self, personality: Pointer, lsda: Option<Pointer>) {
        let catches = lsda.is_some_and(|lsda| self.has_types(lsda));
        let personalities = &mut self.unwind.personalities;
        if let Some((_, any)) = personalities
            .iter_mut()
            .find(|(pointer, _)| *pointer == personality)
        {
            *any |= catches;
        } else if personalities.len() < MAX_PERSONALITIES {
            personalities.push((personality, catches));
        }
    }

    /// The head of an exception table: encoding of the landing pads' base (and the base), encoding of the types.
    /// Without types (0xff) there are clean-ups only, after which the exception goes on.
    fn has_types(&self, lsda: Pointer) -> bool {
        const OMITTED: u8 = 0xff;
        let bytes = lsda
            .direct()
            .ok()
            .and_then(|vaddr| self.elf.bytes_at(vaddr, 2));
        bytes != Some(&[OMITTED, OMITTED])
    }

    /// Addresses after a row that cannot be read are unknown, not the last row's.
    fn add_rows(&mut self, fde: &Entry<'d>, context: &mut UnwindContext<usize>) {
        let (mut next, mut last) = (fde.initial_address(), None);
        let cheap = fde.cie().entry_len() <= MAX_SHARED;
        if let Some(mut table) = fde
            .rows(self.section, self.bases, context)
            .ok()
            .filter(|_| cheap)
        {
            while let Ok(Some(row)) = table.next_row() {
                let cfa = Cfa::of(row.cfa());
                if last != Some(cfa) {
                    self.unwind.rows.push(Row {
                        start: row.start_address(),
                        cfa,
                    });
                }
                (next, last) = (row.end_address(), Some(cfa));
            }
        }
        if next < fde.end_address() {
            self.unwind.rows.push(Row {
                start: next,
                cfa: Cfa::Other,
            });
        }
    }
}

fn locate<'d>(elf: &ElfFile<'d>) -> Option<(u64, &'d [u8])> {
    if let Some(found) = elf
        .section(".eh_frame")
        .filter(|(_, bytes)| !bytes.is_empty())
    {
        return Some(found);
    }
    let header_vaddr = elf.eh_frame_hdr()?;
    let header = EhFrameHdr::new(elf.bytes_from(header_vaddr)?, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame_hdr(header_vaddr);
    let vaddr = header.parse(&bases, 8).ok()?.eh_frame_ptr().direct().ok()?;
    Some((vaddr, elf.bytes_from(vaddr)?))
}

fn bases(elf: &ElfFile<'_>, eh_frame: u64) -> BaseAddresses {
    let bases = BaseAddresses::default().set_eh_frame(eh_frame);
    let bases = match elf.section(".text") {
        Some((text, _)) => bases.set_text(text),
        None => bases,
    };
    match elf.section(".got") {
        Some((got, _)) => bases.set_got(got),
        None => bases,
    }
}
