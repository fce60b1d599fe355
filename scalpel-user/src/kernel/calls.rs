//! The call programs, loaded for the attach type that the mechanism needs: aya 0.14 does not know uprobe multi and
//! session, and one that it loads for perf events falls back to tracefs without asking.
//!
//! The object is read a second time by aya-obj, its programs are bound to the maps that aya made, and loaded by
//! `BPF_PROG_LOAD`, each when something is attached to it for the first time: the kernel takes a tenth of a second and more
//! to verify one, and most recordings use two of them. Can go when aya loads `uprobe.multi` and `uprobe.session` programs itself.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use aya::Ebpf;
use aya::maps::Map;
use aya_obj::Object;
use aya_obj::btf::Btf;
use caps::Capability;
use scalpel_common::kernel::programs;

use super::error::{Hint, KernelError, tail};
use super::load::Mechanism;
use super::sys;
use super::watch::duplicate;

/// What the programs do at a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// ENTER and EXIT.
    #[default]
    Events,
    /// One COMPLETE record a call, where entry and return are one program.
    Complete,
    /// Cells and histograms, and no record.
    Count,
    /// The bench's floor: nothing, at entry and return or at the entry alone.
    Empty,
    /// The bench's floor: two records, where entry and return are one program.
    TwoRecords,
}

impl Family {
    /// The object's program that stands in the place of `part`, one of [`wanted`].
    fn program(self, part: &'static str) -> &'static str {
        use programs as p;
        match (self, part) {
            (Self::Complete, p::CALL_SESSION) => p::CALL_COMPLETE,
            (Self::TwoRecords, p::CALL_SESSION) => p::BARE_TWO_RECORDS,
            (Self::Empty, p::CALL_SESSION | p::CALL_ENTRY) => p::BARE_EMPTY,
            (Self::Count, p::CALL_SESSION) => p::COUNT_SESSION,
            (Self::Count, p::CALL_ENTRY) => p::COUNT_ENTRY,
            (Self::Count, p::CALL_ENTER) => p::COUNT_ENTER,
            (Self::Count, p::CALL_RET) => p::COUNT_RET,
            (Self::Count, p::CALL_RETURN) => p::COUNT_RETURN,
            _ => part,
        }
    }
}

/// One loaded call program.
#[derive(Debug)]
pub(super) struct CallProgram {
    name: &'static str,
    attach_type: u32,
    fd: OwnedFd,
}

/// The call programs of one mechanism.
#[derive(Debug)]
pub(super) struct CallPrograms {
    bound: Bound,
    family: Family,
    /// Name, attach type, and the program once it was asked for.
    programs: Vec<(&'static str, u32, OnceLock<CallProgram>)>,
}

/// The object, its programs bound to maps.
#[derive(Debug)]
struct Bound {
    object: Object,
    /// The object's types, if this kernel takes them.
    types: Option<OwnedFd>,
    /// The maps, kept open: the instructions name them by these descriptors.
    _maps: Vec<OwnedFd>,
}

impl CallProgram {
    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) const fn attach_type(&self) -> u32 {
        self.attach_type
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl CallPrograms {
    /// What `mechanism` needs from `data`, bound to the maps of `ebpf`. Nothing is loaded yet.
    pub(super) fn bind(
        data: &[u8],
        ebpf: &Ebpf,
        mechanism: Mechanism,
        family: Family,
    ) -> Result<Self, KernelError> {
        let programs = wanted(mechanism).iter();
        let programs = programs.map(|&(name, attach_type)| (name, attach_type, OnceLock::new()));
        Ok(Self {
            bound: bound_object(data, ebpf)?,
            family,
            programs: programs.collect(),
        })
    }

    /// The program of this name, loaded if it was not yet.
    pub(super) fn get(&self, name: &'static str) -> Result<&CallProgram, KernelError> {
        let found = self.programs.iter().find(|(known, ..)| *known == name);
        let (name, attach_type, program) = found.ok_or_else(|| KernelError::Missing {
            what: "program",
            name: name.into(),
        })?;
        if let Some(program) = program.get() {
            return Ok(program);
        }
        let loaded = load_one(&self.bound, self.family.program(name), *attach_type)?;
        // Whoever was faster: the other one's goes.
        Ok(program.get_or_init(|| CallProgram { name, ..loaded }))
    }

    /// Those that are loaded.
    pub(super) fn iter(&self) -> impl Iterator<Item = &CallProgram> {
        self.programs
            .iter()
            .filter_map(|(_, _, program)| program.get())
    }
}

fn wanted(mechanism: Mechanism) -> &'static [(&'static str, u32)] {
    match mechanism {
        Mechanism::Session => &[
            (programs::CALL_SESSION, sys::ATTACH_UPROBE_SESSION),
            (programs::CALL_ENTRY, sys::ATTACH_UPROBE_MULTI),
            (programs::CALL_ENTER, sys::ATTACH_UPROBE_MULTI),
            (programs::CALL_RET, sys::ATTACH_UPROBE_MULTI),
        ],
        Mechanism::Multi => &[
            (programs::CALL_ENTRY, sys::ATTACH_UPROBE_MULTI),
            (programs::CALL_ENTER, sys::ATTACH_UPROBE_MULTI),
            (programs::CALL_RET, sys::ATTACH_UPROBE_MULTI),
            (programs::CALL_RETURN, sys::ATTACH_UPROBE_MULTI),
        ],
        Mechanism::Perf => &[
            (programs::CALL_ENTRY, sys::ATTACH_PERF),
            (programs::CALL_ENTER, sys::ATTACH_PERF),
            (programs::CALL_RET, sys::ATTACH_PERF),
            (programs::CALL_RETURN, sys::ATTACH_PERF),
        ],
    }
}

/// The object with its programs bound to `ebpf`'s maps.
fn bound_object(data: &[u8], ebpf: &Ebpf) -> Result<Bound, KernelError> {
    let mut object = Object::parse(data).map_err(|error| unreadable("not a BPF object", error))?;
    let types = load_types(&mut object)?;
    if object.has_btf_relocations() {
        let kernel =
            Btf::from_sys_fs().map_err(|error| unreadable("it needs the kernel's BTF", error))?;
        object
            .relocate_btf(&kernel)
            .map_err(|error| unreadable("a kernel structure is not as expected", error))?;
    }
    let maps: Vec<(String, aya_obj::Map)> = object.maps.drain().collect();
    let descriptors = maps
        .iter()
        .map(|(name, _)| descriptor_of(ebpf, name))
        .collect::<Result<Vec<OwnedFd>, _>>()?;
    let bound = maps
        .iter()
        .zip(&descriptors)
        .map(|((name, map), fd)| (name.as_str(), fd.as_raw_fd(), map));
    let text_sections: HashSet<usize> = object
        .functions
        .keys()
        .map(|&(section, _)| section)
        .collect();
    object
        .relocate_maps(bound, &text_sections)
        .map_err(|error| unreadable("its maps cannot be bound", error))?;
    object
        .relocate_calls(&text_sections)
        .map_err(|error| unreadable("its calls cannot be bound", error))?;
    object.sanitize_functions(aya::features());
    Ok(Bound {
        object,
        types,
        _maps: descriptors,
    })
}

/// Loads the object's type information. Programs without callbacks do without it, so a refusal is not fatal here.
fn load_types(object: &mut Object) -> Result<Option<OwnedFd>, KernelError> {
    let Some(features) = aya::features().btf() else {
        return Ok(None);
    };
    let types = object
        .fixup_and_sanitize_btf(features)
        .map_err(|error| unreadable("bad BTF", error))?;
    Ok(types.and_then(|types| sys::btf_load(&types.to_bytes()).ok()))
}

fn load_one(
    bound: &Bound,
    name: &'static str,
    attach_type: u32,
) -> Result<CallProgram, KernelError> {
    let missing = || KernelError::Missing {
        what: "program",
        name: name.into(),
    };
    let object = &bound.object;
    let program = object.programs.get(name).ok_or_else(missing)?;
    let function = object
        .functions
        .get(&program.function_key())
        .ok_or_else(missing)?;
    let load = sys::ProgramLoad {
        name,
        instructions: &function.instructions,
        license: &program.license,
        attach_type,
        btf: bound
            .types
            .as_ref()
            .map(|btf| (btf.as_fd(), &function.func_info, &function.line_info)),
    };
    let fd = sys::prog_load(&load).map_err(|(source, log)| KernelError::Program {
        program: name.into(),
        hint: Hint::for_errno(
            source.raw_os_error(),
            &[Capability::CAP_BPF, Capability::CAP_PERFMON],
        ),
        verifier_log: tail(&log),
        source,
    })?;
    Ok(CallProgram {
        name,
        attach_type,
        fd,
    })
}

/// A descriptor of our own of a map of `ebpf`: aya has no accessor that covers all kinds.
fn descriptor_of(ebpf: &Ebpf, name: &str) -> Result<OwnedFd, KernelError> {
    match ebpf.map(name) {
        Some(
            Map::Array(data)
            | Map::ArrayOfMaps(data)
            | Map::HashMap(data)
            | Map::HashOfMaps(data)
            | Map::LruHashMap(data)
            | Map::PerCpuArray(data)
            | Map::PerCpuHashMap(data)
            | Map::PerCpuLruHashMap(data)
            | Map::PerfEventArray(data)
            | Map::RingBuf(data)
            | Map::StackTraceMap(data)
            | Map::Unsupported(data),
        ) => duplicate(data),
        _ => Err(KernelError::Missing {
            what: "map",
            name: name.into(),
        }),
    }
}

fn unreadable(reason: &str, error: impl std::error::Error + Send + Sync + 'static) -> KernelError {
    KernelError::Object {
        reason: reason.into(),
        source: Some(Box::new(error)),
    }
}
