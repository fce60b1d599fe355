//! Functions and their inlined copies as debug information has them. Whatever is wrong with it is told, and what was read
//! before is kept.

use std::borrow::Cow;

use gimli::{AttributeValue, DebuggingInformationEntry, EndianSlice, LittleEndian, UnitRef};
use object::{Object as _, ObjectSection as _};
use rustc_hash::FxHashMap;

type Bytes<'d> = EndianSlice<'d, LittleEndian>;
type Unit<'u, 'd> = UnitRef<'u, Bytes<'d>>;
type Entry<'d> = DebuggingInformationEntry<Bytes<'d>>;

/// Longest chain from an entry to the one that names it.
const MOST_ORIGINS: u32 = 8;

/// What debug information tells.
#[derive(Debug, Default)]
pub(super) struct Debug {
    /// By address of the first instruction.
    pub(super) functions: FxHashMap<u64, Told>,
    /// Inlined copies, one a stretch of code.
    pub(super) inlined: Vec<Copied>,
    /// Why not all of it could be read.
    pub(super) fault: Option<String>,
}

/// A function.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) name: String,
    pub(super) source: Option<String>,
    pub(super) line: Option<u32>,
}

/// A stretch of an inlined copy.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) name: String,
    pub(super) source: Option<String>,
    pub(super) line: Option<u32>,
    /// Where the function itself stands, if it does.
    pub(super) address: Option<u64>,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Debug {
    /// Reads the debug information of an executable.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut debug = Self::default();
        if let Err(error) = debug.read_all(bytes) {
            debug.fault = Some(error.to_string());
        }
        debug.find_addresses();
        debug
    }

    fn read_all(&mut self, bytes: &[u8]) -> Result<(), gimli::Error> {
        let Ok(file) = object::File::parse(bytes) else {
            return Ok(());
        };
        let sections = gimli::DwarfSections::load(|id| {
            let section = file.section_by_name(id.name());
            let data = section.and_then(|section| section.uncompressed_data().ok());
            Ok::<Cow<'_, [u8]>, gimli::Error>(data.unwrap_or_default())
        })?;
        let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            let unit = dwarf.unit(header)?;
            self.unit(unit.unit_ref(&dwarf))?;
        }
        Ok(())
    }

    fn unit(&mut self, unit: Unit<'_, '_>) -> Result<(), gimli::Error> {
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            match entry.tag() {
                gimli::DW_TAG_subprogram => self.function(unit, entry)?,
                gimli::DW_TAG_inlined_subroutine => self.copy(unit, entry)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn function<'d>(&mut self, unit: Unit<'_, 'd>, entry: &Entry<'d>) -> Result<(), gimli::Error> {
        let mut ranges = unit.die_ranges(entry)?;
        if let Some(first) = ranges.next()? {
            let told = told(unit, entry, 0)?;
            if first.begin != 0 {
                self.functions.insert(first.begin, told);
            }
        }
        Ok(())
    }

    fn copy<'d>(&mut self, unit: Unit<'_, 'd>, entry: &Entry<'d>) -> Result<(), gimli::Error> {
        let told = told(unit, entry, 0)?;
        if told.name.is_empty() {
            return Ok(());
        }
        let mut ranges = unit.die_ranges(entry)?;
        while let Some(range) = ranges.next()? {
            if range.begin < range.end {
                self.inlined.push(Copied {
                    name: told.name.clone(),
                    source: told.source.clone(),
                    line: told.line,
                    address: None,
                    start: range.begin,
                    end: range.end,
                });
            }
        }
        Ok(())
    }

    /// Copies of functions that stand somewhere themselves.
    fn find_addresses(&mut self) {
        let mut by_name: FxHashMap<(&str, Option<&str>, Option<u32>), u64> = FxHashMap::default();
        for (address, told) in &self.functions {
            let key = (told.name.as_str(), told.source.as_deref(), told.line);
            let least = by_name.entry(key).or_insert(*address);
            *least = (*least).min(*address);
        }
        for copy in &mut self.inlined {
            let key = (copy.name.as_str(), copy.source.as_deref(), copy.line);
            copy.address = by_name.get(&key).copied();
        }
    }
}

/// Name and place of an entry, or of the one that it points to.
fn told<'d>(unit: Unit<'_, 'd>, entry: &Entry<'d>, depth: u32) -> Result<Told, gimli::Error> {
    let mut told = Told::default();
    for name in [
        gimli::DW_AT_linkage_name,
        gimli::DW_AT_MIPS_linkage_name,
        gimli::DW_AT_name,
    ] {
        if let Some(value) = entry.attr_value(name).filter(|_| told.name.is_empty()) {
            told.name = unit.attr_string(value)?.to_string_lossy().into_owned();
        }
    }
    told.line = line(entry);
    told.source = source(unit, entry)?;
    let origin = entry
        .attr_value(gimli::DW_AT_abstract_origin)
        .or_else(|| entry.attr_value(gimli::DW_AT_specification));
    if let Some(origin) = origin.filter(|_| depth < MOST_ORIGINS) {
        let from = at(unit, origin, depth)?;
        let has_linkage = entry.attr_value(gimli::DW_AT_linkage_name).is_some();
        if !has_linkage && !from.name.is_empty() {
            told.name = from.name;
        }
        told.line = told.line.or(from.line);
        told.source = told.source.or(from.source);
    }
    Ok(told)
}

fn at<'d>(
    unit: Unit<'_, 'd>,
    origin: AttributeValue<Bytes<'d>>,
    depth: u32,
) -> Result<Told, gimli::Error> {
    match origin {
        AttributeValue::UnitRef(offset) => told(unit, &unit.entry(offset)?, depth + 1),
        AttributeValue::DebugInfoRef(offset) => {
            let here = offset.to_unit_offset(&unit.header);
            match here {
                Some(offset) => told(unit, &unit.entry(offset)?, depth + 1),
                // Of another unit: its own copies tell it.
                None => Ok(Told::default()),
            }
        }
        _ => Ok(Told::default()),
    }
}

fn line(entry: &Entry<'_>) -> Option<u32> {
    let value = entry.attr_value(gimli::DW_AT_decl_line)?;
    value
        .udata_value()
        .and_then(|line| u32::try_from(line).ok())
}

fn source<'d>(unit: Unit<'_, 'd>, entry: &Entry<'d>) -> Result<Option<String>, gimli::Error> {
    let Some(AttributeValue::FileIndex(index)) = entry.attr_value(gimli::DW_AT_decl_file) else {
        return Ok(None);
    };
    let Some(program) = &unit.line_program else {
        return Ok(None);
    };
    let header = program.header();
    let Some(file) = header.file(index) else {
        return Ok(None);
    };
    let name = unit
        .attr_string(file.path_name())?
        .to_string_lossy()
        .into_owned();
    let folder = match file.directory(header) {
        Some(folder) => unit.attr_string(folder)?.to_string_lossy().into_owned(),
        None => String::new(),
    };
    Ok(Some(match folder.is_empty() || name.starts_with('/') {
        true => name,
        false => format!("{folder}/{name}"),
    }))
}
