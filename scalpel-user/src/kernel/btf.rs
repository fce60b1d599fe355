//! Byte offsets of kernel structures' fields, from the kernel's own type information (`/sys/kernel/btf/vmlinux`).
//!
//! The BPF programs need them as constants (aya-ebpf has no CO-RE for Rust), and nothing else of BTF. Format:
//! <https://docs.kernel.org/bpf/btf.html>. Pure over bytes but for [`KernelTypes::of_this_kernel`].

use std::collections::HashMap;
use std::io;

use scalpel_common::kernel::{EXIT_TELLS_LAST, KERNEL_FIELDS, KernelField, TASK_IO_WAIT};

/// Where the kernel shows its types.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const HEADER: usize = 24;
const MAGIC: u16 = 0xeb9f;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// Structures nest this deep at most before a chain of anonymous members is taken for a loop.
const DEPTH: usize = 16;

/// Why the programs cannot learn the kernel's layout.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The kernel has no type information.
    #[error(
        "cannot read the kernel's type information {VMLINUX}: scalpel needs a kernel built with CONFIG_DEBUG_INFO_BTF"
    )]
    Absent(#[source] io::Error),
    /// It is not what the format promises.
    #[error("the kernel's type information {VMLINUX} is damaged at byte {0}")]
    Damaged(usize),
    /// A field that the programs read is not there.
    #[error(
        "this kernel has no `{structure}.{path}`, which scalpel's programs read: this kernel is too old or too new for this version"
    )]
    NoField {
        /// Structure.
        structure: &'static str,
        /// Fields, joined by dots.
        path: String,
    },
}

/// The kernel's types.
#[derive(Debug)]
pub struct KernelTypes {
    data: Vec<u8>,
    strings: usize,
    /// Byte position of each type, by id.
    types: Vec<usize>,
    structures: HashMap<Vec<u8>, u32>,
    typedefs: HashMap<Vec<u8>, u32>,
}

/// A type record: name, kind, number of members, size or type.
#[derive(Clone, Copy)]
struct Type {
    at: usize,
    name: u32,
    kind: u32,
    len: u32,
    packed: bool,
    target: u32,
}

impl KernelTypes {
    /// Reads the running kernel's.
    pub fn of_this_kernel() -> Result<Self, BtfError> {
        Self::parse(std::fs::read(VMLINUX).map_err(BtfError::Absent)?)
    }

    /// Parses BTF bytes.
    pub fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        let (types_at, types_len, strings) = header(&data)?;
        let mut types = Self {
            data,
            strings,
            types: vec![0],
            structures: HashMap::new(),
            typedefs: HashMap::new(),
        };
        types.index(types_at, types_at + types_len)?;
        Ok(types)
    }

    fn index(&mut self, mut at: usize, end: usize) -> Result<(), BtfError> {
        while at < end {
            let id = u32::try_from(self.types.len()).map_err(|_error| BtfError::Damaged(at))?;
            let record = self.record(at)?;
            let by_name = match record.kind {
                STRUCT => Some(&mut self.structures),
                TYPEDEF => Some(&mut self.typedefs),
                _ => None,
            };
            if let Some(by_name) = by_name {
                let name = string(&self.data, self.strings, record.name).to_vec();
                by_name.entry(name).or_insert(id);
            }
            self.types.push(at);
            at += record.size().ok_or(BtfError::Damaged(at))?;
        }
        Ok(())
    }

    fn record(&self, at: usize) -> Result<Type, BtfError> {
        let (name, info) = (word(&self.data, at)?, word(&self.data, at + 4)?);
        let target = word(&self.data, at + 8)?;
        Ok(Type {
            at,
            name,
            kind: info >> 24 & 0x1f,
            len: info & 0xffff,
            packed: info >> 31 == 1,
            target,
        })
    }

    fn type_of(&self, id: u32) -> Option<Type> {
        self.record(*self.types.get(id as usize)?).ok()
    }

    /// The type behind typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Option<Type> {
        for _ in 0..DEPTH {
            let found = self.type_of(id)?;
            match found.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = found.target,
                _ => return Some(found),
            }
        }
        None
    }

    /// Byte offset of a field; members of anonymous structures and unions count as the structure's own.
    pub fn offset(&self, structure: &str, path: &[&str]) -> Option<u64> {
        let bits = self.bits(structure, path)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Offset of a field in bits.
    fn bits(&self, structure: &str, path: &[&str]) -> Option<u64> {
        let mut id = *self.structures.get(structure.as_bytes())?;
        let mut bits = 0;
        for field in path {
            let (at, member) = self.member(id, field, 0)?;
            bits += at;
            id = member;
        }
        Some(bits)
    }

    /// Bit offset and type of a member.
    fn member(&self, id: u32, name: &str, depth: usize) -> Option<(u64, u32)> {
        let outer = self
            .resolve(id)
            .filter(|found| matches!(found.kind, STRUCT | UNION) && depth < DEPTH)?;
        for index in 0..outer.len as usize {
            let at = outer.at + 12 + index * 12;
            let (member, target) = (word(&self.data, at).ok()?, word(&self.data, at + 4).ok()?);
            let raw = word(&self.data, at + 8).ok()?;
            let bits = u64::from(if outer.packed { raw & 0xff_ffff } else { raw });
            let member = string(&self.data, self.strings, member);
            if member == name.as_bytes() {
                return Some((bits, target));
            }
            if member.is_empty()
                && let Some((inner, target)) = self.member(target, name, depth + 1)
            {
                return Some((bits + inner, target));
            }
        }
        None
    }

    /// Number of arguments of a BTF tracepoint, without the leading context pointer.
    pub fn tracepoint_arguments(&self, tracepoint: &str) -> Option<u32> {
        let id = *self
            .typedefs
            .get(format!("btf_trace_{tracepoint}").as_bytes())?;
        let pointer = self.resolve(id).filter(|found| found.kind == PTR)?;
        let function = self
            .resolve(pointer.target)
            .filter(|found| found.kind == FUNC_PROTO)?;
        function.len.checked_sub(1)
    }

    /// Values of all globals that the object wants: its name for each, and the u64.
    pub fn globals(&self) -> Result<Vec<(&'static str, u64)>, BtfError> {
        let mut globals = KERNEL_FIELDS
            .iter()
            .map(|field| self.global(field))
            .collect::<Result<Vec<_>, _>>()?;
        let tells_last = self
            .tracepoint_arguments("sched_process_exit")
            .is_some_and(|arguments| arguments > 1);
        globals.push((EXIT_TELLS_LAST, u64::from(tells_last)));
        let (at, mask) = self.io_wait();
        let [offset, bit] = TASK_IO_WAIT;
        globals.extend([(offset, at), (bit, mask)]);
        Ok(globals)
    }

    /// Byte and bit that tell whether a thread waits for a device. Without them none does; the byte is read all the same.
    fn io_wait(&self) -> (u64, u64) {
        match self.bits("task_struct", &["in_iowait"]) {
            Some(bits) => (bits / 8, 1 << (bits % 8)),
            None => (self.offset("task_struct", &["pid"]).unwrap_or(0), 0),
        }
    }

    fn global(&self, field: &KernelField) -> Result<(&'static str, u64), BtfError> {
        let missing = || BtfError::NoField {
            structure: field.structure,
            path: field.path.join("."),
        };
        Ok((
            field.global,
            self.offset(field.structure, field.path)
                .ok_or_else(missing)?,
        ))
    }
}

impl Type {
    /// Bytes of the whole record; `None` for a kind that is not known, behind which nothing can be found.
    fn size(self) -> Option<usize> {
        let len = self.len as usize;
        let tail = match self.kind {
            INT | VAR | DECL_TAG => 4,
            PTR | TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG | 7 | 12 | 16 => 0,
            ARRAY => 12,
            STRUCT | UNION | DATASEC | ENUM64 => len * 12,
            ENUM | FUNC_PROTO => len * 8,
            _ => return None,
        };
        Some(12 + tail)
    }
}

/// Position and length of the types, position of the strings.
fn header(data: &[u8]) -> Result<(usize, usize, usize), BtfError> {
    let magic = data
        .get(..2)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u16::from_le_bytes);
    if magic != Some(MAGIC) {
        return Err(BtfError::Damaged(0));
    }
    let base = word(data, 4)? as usize;
    if base < HEADER {
        return Err(BtfError::Damaged(4));
    }
    let (types, len) = (word(data, 8)? as usize, word(data, 12)? as usize);
    let strings = word(data, 16)? as usize;
    Ok((base + types, len, base + strings))
}

fn word(data: &[u8], at: usize) -> Result<u32, BtfError> {
    let bytes = data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_le_bytes).ok_or(BtfError::Damaged(at))
}

/// The string at `offset`, empty if there is none.
fn string(data: &[u8], strings: usize, offset: u32) -> &[u8] {
    let tail = data.get(strings + offset as usize..).unwrap_or_default();
    tail.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tiny BTF: int; struct inner { int b; }; struct outer { int a; union { struct inner; int c; }; }
    fn tiny() -> Vec<u8> {
        let strings = b"\0int\0inner\0b\0outer\0a\0c\0";
        let record = |name: u32, kind: u32, len: u32, size: u32| [name, kind << 24 | len, size];
        let mut types: Vec<u32> = Vec::new();
        types.extend(record(1, INT, 0, 4));
        types.push(32);
        types.extend(record(5, STRUCT, 1, 4));
        types.extend([11, 1, 0]);
        types.extend(record(0, UNION, 2, 4));
        types.extend([0, 2, 0, 21, 1, 0]);
        types.extend(record(13, STRUCT, 2, 8));
        types.extend([19, 1, 0, 0, 3, 32]);
        let types_len = (types.len() * 4) as u32;
        let mut data = MAGIC.to_le_bytes().to_vec();
        data.extend([1, 0]);
        for word in [HEADER as u32, 0, types_len, types_len, strings.len() as u32] {
            data.extend(word.to_le_bytes());
        }
        types
            .iter()
            .for_each(|word| data.extend(word.to_le_bytes()));
        data.extend(strings);
        data
    }

    #[test]
    fn a_member_of_an_anonymous_union_counts_as_the_structures_own() {
        let types = KernelTypes::parse(tiny()).unwrap();
        assert_eq!(types.offset("outer", &["a"]), Some(0));
        assert_eq!(types.offset("outer", &["c"]), Some(4));
        assert_eq!(types.offset("outer", &["b"]), Some(4));
        assert_eq!(types.offset("outer", &["d"]), None);
    }

    #[test]
    fn a_cut_file_is_an_error_or_lacks_types_and_never_a_panic() {
        let whole = tiny();
        for length in 0..whole.len() {
            if let Ok(types) = KernelTypes::parse(whole[..length].to_vec()) {
                let _offset = types.offset("outer", &["c"]);
            }
        }
    }

    #[test]
    fn this_kernel_has_every_field_that_the_programs_read() {
        let Ok(types) = KernelTypes::of_this_kernel() else {
            return println!("skipped: {VMLINUX} cannot be read");
        };
        let globals = types.globals().unwrap();
        assert_eq!(globals.len(), KERNEL_FIELDS.len() + 3);
        assert_ne!(types.io_wait().1, 0, "in_iowait");
    }
}
