//! The `ret` instructions of a function, for probes on them.
//!
//! A breakpoint in the middle of an instruction or in data corrupts the program. So the linear reading of the
//! function is believed only if it meets no undecodable byte, ends exactly at the function's end, and every branch
//! inside the function lands on an instruction that it saw.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use rustc_hash::FxHashSet;

use super::Image;
use super::closure::containing;
use super::functions::ImageFunction;
use super::names::Part;

/// Ends of one function.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// File offsets of its `ret`s and those of its cold parts, rising.
    pub(super) offsets: Vec<u64>,
    /// Whether it also leaves by jumps.
    pub(super) unseen: bool,
}

impl Returns {
    /// Collects them; none if some part cannot be read with certainty.
    pub(super) fn of(image: &Image<'_>, index: usize) -> Self {
        let Some(function) = image.functions().get(index) else {
            return Self::default();
        };
        let parts = cold_parts(image, index);
        let mut offsets = Vec::new();
        let mut unseen = false;
        for part in std::iter::once(function)
            .chain(parts.iter().filter_map(|&part| image.functions().get(part)))
        {
            let Some(sweep) = Sweep::of(image, part) else {
                return Self {
                    offsets: Vec::new(),
                    unseen: true,
                };
            };
            offsets.extend(
                sweep
                    .rets
                    .iter()
                    .map(|vaddr| vaddr - part.vaddr + part.file_offset),
            );
            let own = |target: &u64| {
                let home = containing(image.functions(), *target).map(|index| index as usize);
                home == Some(index) || home.is_some_and(|home| parts.contains(&home))
            };
            unseen |= sweep.indirect_out || sweep.jumps_out.iter().any(|target| !own(target));
        }
        offsets.sort_unstable();
        Self { offsets, unseen }
    }
}

/// Indices of the cold parts that a function jumps to.
fn cold_parts(image: &Image<'_>, index: usize) -> Vec<usize> {
    let edges = &image.analysis().flow.edges;
    let first = edges.partition_point(|&(caller, _)| (caller as usize) < index);
    let own = edges
        .iter()
        .skip(first)
        .take_while(|&&(caller, _)| caller as usize == index);
    let mut parts: Vec<usize> = own
        .filter_map(|&(_, target)| containing(image.functions(), target))
        .map(|part| part as usize)
        .filter(|&part| {
            image
                .functions()
                .get(part)
                .is_some_and(|function| function.part == Part::Cold)
        })
        .collect();
    parts.sort_unstable();
    parts.dedup();
    parts
}

#[derive(Debug, Default)]
struct Sweep {
    rets: Vec<u64>,
    jumps_out: Vec<u64>,
    indirect_out: bool,
}

impl Sweep {
    fn of(image: &Image<'_>, function: &ImageFunction) -> Option<Self> {
        let mut cursor = image.analysis().unwind.cursor();
        let mut decoder = Decoder::with_ip(
            64,
            image.code(function),
            function.vaddr,
            DecoderOptions::NONE,
        );
        let (mut sweep, mut starts, mut targets) =
            (Self::default(), FxHashSet::default(), Vec::new());
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return None;
            }
            starts.insert(instruction.ip());
            match instruction.flow_control() {
                FlowControl::Return => sweep.rets.push(instruction.ip()),
                FlowControl::IndirectBranch => {
                    sweep.indirect_out |= cursor
                        .at(instruction.ip())
                        .is_none_or(|cfa| cfa == super::unwind::Cfa::ENTRY);
                }
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
                    if instruction.op0_kind() == OpKind::NearBranch64 =>
                {
                    targets.push(instruction.near_branch_target());
                }
                _ => {}
            }
        }
        let inside = |target: &u64| (function.vaddr..function.end()).contains(target);
        let consistent = targets
            .iter()
            .filter(|target| inside(target))
            .all(|target| starts.contains(target));
        sweep.jumps_out = targets
            .into_iter()
            .filter(|target| !inside(target))
            .collect();
        consistent.then_some(sweep)
    }
}
