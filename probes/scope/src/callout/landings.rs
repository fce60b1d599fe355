//! Where a thread can land in a region without entering it: where an exception is caught or cleaned up behind, and where an
//! inline `setjmp` comes back. An unwinder writes the address that it goes to below the frame that it goes to: where that
//! is the slot of a call's return address, the watch on the slot shows it. Runs before a scope is armed, but for
//! [`Landings::are_told`].
use gimli::{
    BaseAddresses, CallFrameInstruction, EhFrame, EhFrameHdr, LittleEndian, UnwindSection,
};

use super::super::cure::{Cure, holds};
use super::super::memory;
use crate::flow;

/// Bytes of a region's frames that are looked at.
const MOST_FRAMES: u64 = 16 * 1024;
const CHUNK: usize = 64;
/// The return address, as unwinders number it.
const RETURNS: gimli::Register = gimli::Register(16);

/// Where a region can be landed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Landings {
    /// Nobody knows: it is code of no file, or keeps addresses of its own.
    #[default]
    Anywhere,
    /// Behind calls that an exception passes, with the stack as it was there.
    BehindCalls,
    /// Nowhere.
    None,
}

impl Landings {
    /// Whether a landing in one of the region's frames, which stand between `slot` and `base`, writes `slot`.
    pub(super) fn are_told(self, region: (u64, u64), slot: u64, base: u64) -> bool {
        if !holds(Cure::LandingsKnown) {
            return true;
        }
        match self {
            Self::Anywhere => false,
            Self::BehindCalls => base != 0 && is_one_frame(region, slot, base),
            Self::None => base != 0,
        }
    }
}

/// Whether no word between the slots is one that a call in the region has pushed. Runs in the handler.
fn is_one_frame((start, end): (u64, u64), slot: u64, base: u64) -> bool {
    if base <= slot || base - slot > MOST_FRAMES {
        return false;
    }
    let mut at = slot + 8;
    while at < base {
        let mut bytes = [0; 8 * CHUNK];
        let got = memory::read(at, &mut bytes);
        let (words, _) = bytes.get(..got).unwrap_or_default().as_chunks::<8>();
        let mut places = (at..base).step_by(8).zip(words);
        if places.any(|(_, word)| (start + 1..end).contains(&u64::from_le_bytes(*word))) {
            return false;
        }
        if got < bytes.len() && at + (got as u64) < base {
            return false;
        }
        at += bytes.len() as u64;
    }
    true
}

/// The landings of the code at `start`, by its bytes and by what its file says to unwinders.
pub(super) fn of(start: u64, bytes: &[u8], entries: &[u64]) -> Landings {
    if keeps_addresses(start, bytes, entries) {
        return Landings::Anywhere;
    }
    match tables(start, start + bytes.len() as u64, bytes) {
        Some(true) => Landings::BehindCalls,
        Some(false) => Landings::None,
        None => Landings::Anywhere,
    }
}

/// Whether unwinders are told that the function at this address was called by nobody: a thread begins there.
pub(super) fn is_outermost(addr: u64) -> bool {
    let entry = Module::of(addr).and_then(|module| module.entry(addr));
    entry.is_some_and(|entry| entry.outermost)
}

/// Whether an instruction has an address of the region's, other than of an entry, as a value.
fn keeps_addresses(start: u64, bytes: &[u8], entries: &[u64]) -> bool {
    let kept =
        |addr: u64| addr.wrapping_sub(start) < bytes.len() as u64 && !entries.contains(&addr);
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let addr = start + at as u64;
        let Some(instruction) = flow::decode(addr, rest) else {
            // What is no code cannot be told from what is.
            return true;
        };
        let relative =
            instruction.is_ip_rel_memory_operand() && kept(instruction.ip_rel_memory_address());
        let value = !flow::is_near(&instruction)
            && (0..instruction.op_count())
                .filter_map(|operand| instruction.try_immediate(operand).ok())
                .any(kept);
        if relative || value {
            return true;
        }
        at += instruction.len();
    }
    false
}

/// Whether an exception can be caught or cleaned up behind within `start..end`; `None` where no file tells of all of it, or
/// where the stack at a landing is not that of the call.
fn tables(start: u64, end: u64, bytes: &[u8]) -> Option<bool> {
    let module = Module::of(start)?;
    let mut at = start;
    let mut lands = false;
    while at < end {
        match module.entry(at) {
            Some(entry) if entry.moves_stack => return None,
            Some(entry) => {
                lands |= entry.lands;
                at = entry.end;
            }
            None => at += padding(start, bytes, at)?,
        }
    }
    Some(lands)
}

/// Bytes of filling between functions.
fn padding(start: u64, bytes: &[u8], at: u64) -> Option<u64> {
    let rest = bytes.get(usize::try_from(at - start).ok()?..)?;
    let instruction = flow::decode(at, rest)?;
    use iced_x86::Mnemonic::{Int3, Nop};
    matches!(instruction.mnemonic(), Nop | Int3).then_some(instruction.len() as u64)
}

/// The unwind tables of a loaded file.
#[derive(Clone, Copy, Debug, Default)]
struct Module {
    addr: u64,
    /// Of the table of its index.
    index: (u64, u64),
    /// The part of the file that is mapped with it.
    mapped: (u64, u64),
}

/// What unwinders are told of a function.
struct Entry {
    end: u64,
    lands: bool,
    /// Arguments on the stack are dropped at a landing.
    moves_stack: bool,
    /// Nobody has called it.
    outermost: bool,
}

impl Module {
    /// The one that holds the address, if it has tables.
    fn of(addr: u64) -> Option<Self> {
        let mut module = Self {
            addr,
            ..Self::default()
        };
        // SAFETY: the callback is called before this returns, and `module` is there till then.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut module).cast()) };
        (module.index.0 != 0 && module.mapped.0 != 0).then_some(module)
    }

    fn entry(&self, addr: u64) -> Option<Entry> {
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(self.index.0)
            .set_text(0);
        let index = EhFrameHdr::new(slice(self.index), LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let gimli::Pointer::Direct(tables) = index.eh_frame_ptr() else {
            return None;
        };
        let inside = (self.mapped.0..self.mapped.1).contains(&tables);
        let frames = EhFrame::new(
            slice((tables, if inside { self.mapped.1 } else { tables })),
            LittleEndian,
        );
        let bases = bases.set_eh_frame(tables);
        let entry = index
            .table()?
            .fde_for_address(&frames, &bases, addr, EhFrame::cie_from_offset)
            .ok()?;
        let all = entry.cie().instructions(&frames, &bases);
        let (mut moves_stack, mut outermost) = (false, false);
        for mut instructions in [all, entry.instructions(&frames, &bases)] {
            while let Some(instruction) = instructions.next().ok()? {
                match instruction {
                    CallFrameInstruction::ArgsSize { .. } => moves_stack = true,
                    CallFrameInstruction::Undefined { register } => {
                        outermost |= register == RETURNS
                    }
                    _ => {}
                }
            }
        }
        Some(Entry {
            end: entry.initial_address() + entry.len(),
            lands: entry.lsda().is_some(),
            moves_stack,
            outermost,
        })
    }
}

/// Memory of a loaded file.
fn slice((start, end): (u64, u64)) -> &'static [u8] {
    let len = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
    // SAFETY: within a part of a file that the loader has mapped to be read; the file is not unloaded while a scope of its
    // code is opened.
    unsafe { std::slice::from_raw_parts(start as *const u8, len) }
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    module: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader hands over both for this call: its own structure, and our module.
    let (info, module) = unsafe { (&*info, &mut *module.cast::<Module>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader's own array, of the length that it tells.
    let parts = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let range = |part: &libc::Elf64_Phdr| {
        let start = info.dlpi_addr.wrapping_add(part.p_vaddr);
        (start, start.wrapping_add(part.p_memsz))
    };
    let loaded = parts.iter().filter(|part| part.p_type == libc::PT_LOAD);
    let holds = |(start, end): (u64, u64), addr: u64| (start..end).contains(&addr);
    if !loaded.clone().any(|part| holds(range(part), module.addr)) {
        return 0;
    }
    if let Some(index) = parts
        .iter()
        .find(|part| part.p_type == libc::PT_GNU_EH_FRAME)
    {
        module.index = range(index);
        module.mapped = loaded
            .map(|part| (part, range(part)))
            .filter(|(part, _)| part.p_flags & libc::PF_R != 0)
            .map(|(_, range)| range)
            .find(|range| holds(*range, module.index.0))
            .unwrap_or_default();
    }
    1
}
