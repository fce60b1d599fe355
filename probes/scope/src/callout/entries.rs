//! Where a region can be entered from outside, read off its code. Runs before a scope is armed; it knows nothing of events
//! or stops.
use std::collections::{BTreeSet, HashMap};
use std::sync::{LazyLock, Mutex, PoisonError};

use iced_x86::{FlowControl, Instruction, Mnemonic};

use super::super::memory;
use super::events::MOST_ENTRIES;
use super::landings::{self, Landings};
use crate::flow;
use crate::symbol::{ProcessSymbols, Resolver};

/// Larger regions are stepped.
const MOST_BYTES: u64 = 256 * 1024;
/// Regions that are remembered.
const MOST_REGIONS: usize = 256;

type Region = (u64, u64);
type Known = HashMap<Region, (Vec<u8>, Option<Found>)>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// What was read off a region's code.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The addresses at which it can be entered.
    pub(super) entries: Vec<u64>,
    /// Where else a thread can land in it.
    pub(super) landings: Landings,
}

/// How the region can be entered; `None` if there are more entries than can be watched.
pub(super) fn of(start: u64, end: u64) -> Option<Found> {
    let len = end.checked_sub(start).filter(|len| *len <= MOST_BYTES)?;
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    if memory::read(start, &mut bytes) != bytes.len() {
        return None;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((seen, entries)) = known.get(&(start, end))
        && *seen == bytes
    {
        return entries.clone();
    }
    let code = Code::new(start, &bytes);
    let entries = code.entries(is_function(start, end)).map(|entries| Found {
        landings: landings::of(start, &bytes, &entries),
        entries,
    });
    if known.len() == MOST_REGIONS {
        known.clear();
    }
    known.insert((start, end), (bytes, entries.clone()));
    entries
}

/// Whether the symbols say that the region is (a part of) one function, from its first byte on.
fn is_function(start: u64, end: u64) -> bool {
    let symbol = ProcessSymbols::new().resolve(start);
    symbol.is_some_and(|symbol| symbol.offset == 0 && symbol.size >= end - start)
}

struct Code<'a> {
    start: u64,
    bytes: &'a [u8],
    /// First addresses of instructions that the flow reaches.
    seen: BTreeSet<u64>,
    /// Addresses behind them.
    covered: Vec<bool>,
    entries: BTreeSet<u64>,
}

impl<'a> Code<'a> {
    fn new(start: u64, bytes: &'a [u8]) -> Self {
        Self {
            start,
            bytes,
            seen: BTreeSet::new(),
            covered: vec![false; bytes.len()],
            entries: BTreeSet::from([start]),
        }
    }

    /// The first byte, what is called from within, and (unless it is known to be one function) what the flow from there
    /// does not reach: the beginnings of other functions.
    fn entries(mut self, one: bool) -> Option<Vec<u64>> {
        self.follow(self.start);
        let mut at = 0;
        while !one && at < self.bytes.len() {
            let addr = self.start + at as u64;
            if self.covered.get(at) == Some(&true) {
                at += 1;
            } else if let Some(padding) = self.padding(addr) {
                at += padding;
            } else {
                self.entries.insert(addr);
                self.follow(addr);
                if self.covered.get(at) != Some(&true) {
                    return None;
                }
            }
            if self.entries.len() > MOST_ENTRIES {
                return None;
            }
        }
        (self.entries.len() <= MOST_ENTRIES).then(|| self.entries.into_iter().collect())
    }

    fn decode(&self, addr: u64) -> Option<Instruction> {
        let at = usize::try_from(addr.checked_sub(self.start)?).ok()?;
        flow::decode(addr, self.bytes.get(at..)?)
    }

    fn holds(&self, addr: u64) -> bool {
        addr.checked_sub(self.start)
            .is_some_and(|at| at < self.bytes.len() as u64)
    }

    /// Bytes of filling between functions.
    fn padding(&self, addr: u64) -> Option<usize> {
        let instruction = self.decode(addr)?;
        let fills = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
        fills.then(|| instruction.len())
    }

    fn follow(&mut self, from: u64) {
        let mut todo = vec![from];
        while let Some(addr) = todo.pop() {
            if !self.holds(addr) || !self.seen.insert(addr) {
                continue;
            }
            let Some(instruction) = self.decode(addr) else {
                continue;
            };
            self.cover(addr, instruction.len());
            let next = flow::successors(&instruction);
            let call = matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            );
            if let Some(target) = next.target {
                if call && self.holds(target) {
                    self.entries.insert(target);
                }
                todo.push(target);
            }
            todo.extend(next.fall);
            if call {
                todo.push(instruction.next_ip());
            }
        }
    }

    fn cover(&mut self, addr: u64, len: usize) {
        let at = usize::try_from(addr - self.start).unwrap_or(usize::MAX);
        for byte in self.covered.iter_mut().skip(at).take(len) {
            *byte = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], one: bool, expect: Option<&[u64]>) {
        let entries = Code::new(0x1000, bytes).entries(one);
        assert_eq!(entries.as_deref(), expect, "{bytes:x?}");
    }

    #[test]
    fn one_function_has_one_entry() {
        // test edi, edi; jz +1; nop; ret
        check(&[0x85, 0xff, 0x74, 1, 0x90, 0xc3], false, Some(&[0x1000]));
    }

    #[test]
    fn a_second_function_is_an_entry_and_padding_is_not() {
        check(
            &[0xc3, 0x90, 0xcc, 0x31, 0xc0, 0xc3],
            false,
            Some(&[0x1000, 0x1003]),
        );
        check(&[0xc3, 0x90, 0xcc, 0x31, 0xc0, 0xc3], true, Some(&[0x1000]));
    }

    #[test]
    fn what_is_called_from_within_is_an_entry() {
        // call +1; ret; nop; ret
        check(
            &[0xe8, 1, 0, 0, 0, 0xc3, 0x90, 0xc3],
            true,
            Some(&[0x1000, 0x1006]),
        );
    }

    #[test]
    fn more_entries_than_registers_are_none() {
        check(&[0xc3, 0x31, 0xc0, 0xc3, 0x31, 0xc0, 0xc3], false, None);
    }
}
