//! Functions and their inlined copies as debug information has them. Whatever is wrong with it is told, and what was read
//! before is kept.

use std::borrow::Cow;
use std::rc::Rc;

use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, EndianSlice, LittleEndian,
};
use object::{Object as _, ObjectSection as _};
use rustc_hash::FxHashMap;

use super::lambda::Lambdas;
use crate::image::{Declared, Image, ImageFunction};

pub(super) type Bytes<'d> = EndianSlice<'d, LittleEndian>;
pub(super) type Unit<'d> = gimli::Unit<Bytes<'d>>;
pub(super) type Entry<'d> = DebuggingInformationEntry<Bytes<'d>>;

/// Longest chain from an entry to the one that names it.
const MOST_ORIGINS: u32 = 8;

/// What debug information tells.
#[derive(Debug, Default)]
pub(super) struct Debug {
    /// By address of the first instruction.
    pub(super) functions: FxHashMap<u64, Told>,
    /// Ranges beyond the first one of a function: start, end, first instruction of the function.
    pub(super) ranges: Vec<(u64, u64, u64)>,
    /// Inlined copies, one a stretch of code.
    pub(super) inlined: Vec<Copied>,
    /// Why not all of it could be read.
    pub(super) fault: Option<String>,
}

/// A function. Its name alone does not tell it apart: many are called `operator()`, or as a `static` function of another file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Told {
    pub(super) name: Rc<str>,
    pub(super) source: Option<Rc<str>>,
    pub(super) line: Option<u32>,
    /// In bytes, from 1.
    pub(super) column: Option<u32>,
}

/// A stretch of an inlined copy.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) told: Told,
    /// Where the function itself stands, if it does.
    pub(super) address: Option<u64>,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Debug {
    /// Reads the debug information of an executable or its separate debug file; `shared` is the file with what several
    /// of those have in common, if it has one.
    pub(super) fn read(bytes: &[u8], shared: Option<&[u8]>) -> Self {
        let mut debug = Self::default();
        if let Err(error) = debug.read_all(bytes, shared) {
            debug.fault(error);
        }
        debug.find_addresses();
        debug
    }

    /// What Go's table tells: functions where they stand, and copies.
    pub(super) fn of_go(image: &Image<'_>) -> Self {
        let mut debug = Self::default();
        let place = |declared: &Option<Declared>| {
            let file = declared.as_ref().map(|it| Rc::from(&*it.file));
            (file, declared.as_ref().map(|it| it.line))
        };
        let mut by_name: FxHashMap<&str, u64> = FxHashMap::default();
        let declared = |it: &&ImageFunction| it.declared.is_some();
        for function in image.functions().iter().filter(declared) {
            let (source, line) = place(&function.declared);
            let name = Rc::from(&*function.raw_name);
            debug.functions.insert(
                function.vaddr,
                Told {
                    name,
                    source,
                    line,
                    column: None,
                },
            );
            by_name.entry(&function.raw_name).or_insert(function.vaddr);
        }
        for copy in image.go_copies() {
            let (source, line) = place(&copy.declared);
            debug.inlined.push(Copied {
                address: by_name.get(&*copy.name).copied(),
                told: Told {
                    name: copy.name.into(),
                    source,
                    line,
                    column: None,
                },
                start: copy.start,
                end: copy.end,
            });
        }
        debug
    }

    /// Whether it tells nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.inlined.is_empty()
    }

    fn fault(&mut self, error: gimli::Error) {
        self.fault.get_or_insert_with(|| error.to_string());
    }

    fn read_all(&mut self, bytes: &[u8], shared: Option<&[u8]>) -> Result<(), gimli::Error> {
        let own = sections(bytes)?;
        let shared = shared.map(sections).transpose()?;
        let dwarf = own.borrow_with_sup(shared.as_ref(), |section| {
            EndianSlice::new(section, LittleEndian)
        });
        let mut book = Book::of(&dwarf);
        if let Some(fault) = book.fault.take() {
            self.fault(fault);
        }
        for at in 0..book.units.len() {
            // What one unit has wrong, the others need not have.
            if let Err(error) = self.unit(&mut book, at) {
                self.fault(error);
            }
        }
        Ok(())
    }

    fn unit<'d>(&mut self, book: &mut Book<'_, 'd>, at: usize) -> Result<(), gimli::Error> {
        let Some(unit) = book.units.get(at).map(Rc::clone) else {
            return Ok(());
        };
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            match entry.tag() {
                gimli::DW_TAG_subprogram => self.function(book, &unit, entry)?,
                gimli::DW_TAG_inlined_subroutine => self.copy(book, &unit, entry)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn function<'d>(
        &mut self,
        book: &mut Book<'_, 'd>,
        unit: &Unit<'d>,
        entry: &Entry<'d>,
    ) -> Result<(), gimli::Error> {
        let mut ranges = book.dwarf.die_ranges(unit, entry)?;
        let mut begins = None;
        while let Some(range) = ranges.next()? {
            // The linker left it out.
            if range.begin == 0 || range.begin >= range.end {
                continue;
            }
            match begins {
                None => begins = Some(range.begin),
                Some(first) => self.ranges.push((range.begin, range.end, first)),
            }
        }
        if let Some(first) = begins {
            self.functions.insert(first, book.told(unit, entry, 0)?);
        }
        Ok(())
    }

    fn copy<'d>(
        &mut self,
        book: &mut Book<'_, 'd>,
        unit: &Unit<'d>,
        entry: &Entry<'d>,
    ) -> Result<(), gimli::Error> {
        let told = book.told(unit, entry, 0)?;
        if told.name.is_empty() {
            return Ok(());
        }
        let mut ranges = book.dwarf.die_ranges(unit, entry)?;
        while let Some(range) = ranges.next()? {
            if range.begin < range.end {
                self.inlined.push(Copied {
                    told: told.clone(),
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
        let mut at: FxHashMap<&Told, u64> = FxHashMap::default();
        for (address, told) in &self.functions {
            let least = at.entry(told).or_insert(*address);
            *least = (*least).min(*address);
        }
        for copy in &mut self.inlined {
            copy.address = at.get(&copy.told).copied();
        }
    }
}

type Sections<'d> = gimli::DwarfSections<Cow<'d, [u8]>>;

fn sections(bytes: &[u8]) -> Result<Sections<'_>, gimli::Error> {
    let file = object::File::parse(bytes).ok();
    gimli::DwarfSections::load(|id| {
        let section = file
            .as_ref()
            .and_then(|file| file.section_by_name(id.name()));
        let data = section.and_then(|section| section.uncompressed_data().ok());
        Ok(data.unwrap_or_default())
    })
}

/// All units of a file, for an entry may point into another unit, or into the shared file.
struct Book<'a, 'd> {
    dwarf: &'a gimli::Dwarf<Bytes<'d>>,
    units: Vec<Rc<Unit<'d>>>,
    shared: Option<Box<Self>>,
    /// What entries that others point to say, by place.
    known: FxHashMap<usize, Told>,
    lambdas: Lambdas,
    fault: Option<gimli::Error>,
}

impl<'a, 'd> Book<'a, 'd> {
    fn of(dwarf: &'a gimli::Dwarf<Bytes<'d>>) -> Self {
        let mut book = Self {
            dwarf,
            units: Vec::new(),
            shared: dwarf.sup().map(|shared| Box::new(Self::of(shared))),
            known: FxHashMap::default(),
            lambdas: Lambdas::default(),
            fault: None,
        };
        let mut headers = dwarf.units();
        loop {
            let header = match headers.next() {
                Ok(Some(header)) => header,
                Ok(None) => return book,
                Err(error) => {
                    book.fault = Some(error);
                    return book;
                }
            };
            match dwarf.unit(header) {
                Ok(unit) => book.units.push(Rc::new(unit)),
                Err(error) => book.fault = Some(error),
            }
        }
    }

    /// Name and place of an entry, or of the one that it points to.
    fn told(
        &mut self,
        unit: &Unit<'d>,
        entry: &Entry<'d>,
        depth: u32,
    ) -> Result<Told, gimli::Error> {
        let mut told = Told::default();
        for name in [
            gimli::DW_AT_linkage_name,
            gimli::DW_AT_MIPS_linkage_name,
            gimli::DW_AT_name,
        ] {
            if let Some(value) = entry.attr_value(name).filter(|_| told.name.is_empty()) {
                told.name = self
                    .dwarf
                    .attr_string(unit, value)?
                    .to_string_lossy()
                    .into();
            }
        }
        told.line = number(entry, gimli::DW_AT_decl_line);
        told.column = number(entry, gimli::DW_AT_decl_column);
        told.source = source(self.dwarf, unit, entry)?;
        let origin = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification));
        if let Some(origin) = origin.filter(|_| depth < MOST_ORIGINS) {
            let from = self.at(unit, origin, depth)?;
            let has_linkage = entry.attr_value(gimli::DW_AT_linkage_name).is_some();
            if !has_linkage && !from.name.is_empty() {
                told.name = from.name;
            }
            // A place is of one of the two.
            if told.line.is_none() {
                told.column = from.column;
            }
            told.line = told.line.or(from.line);
            told.source = told.source.or(from.source);
        }
        if told.line.is_none()
            && let Some(class) = self.lambdas.around(self.dwarf, unit, entry)?
        {
            (told.source, told.line, told.column) = (class.source, class.line, class.column);
        }
        Ok(told)
    }

    fn at(
        &mut self,
        unit: &Unit<'d>,
        origin: AttributeValue<Bytes<'d>>,
        depth: u32,
    ) -> Result<Told, gimli::Error> {
        match origin {
            AttributeValue::UnitRef(offset) => {
                let place = offset.to_debug_info_offset(&unit.header);
                self.at_place(place, depth)
            }
            AttributeValue::DebugInfoRef(offset) => self.at_place(Some(offset), depth),
            AttributeValue::DebugInfoRefSup(offset) => match &mut self.shared {
                Some(shared) => shared.at_place(Some(offset), depth),
                None => Ok(Told::default()),
            },
            _ => Ok(Told::default()),
        }
    }

    fn at_place(
        &mut self,
        place: Option<DebugInfoOffset>,
        depth: u32,
    ) -> Result<Told, gimli::Error> {
        let Some(place) = place else {
            return Ok(Told::default());
        };
        if let Some(known) = self.known.get(&place.0) {
            return Ok(known.clone());
        }
        // The unit that begins last before it.
        let begins = |unit: &Rc<Unit<'d>>| unit.header.debug_info_offset().map(|at| at.0);
        let after = self
            .units
            .partition_point(|unit| begins(unit).is_some_and(|at| at <= place.0));
        let unit = after.checked_sub(1).and_then(|at| self.units.get(at));
        let Some(unit) = unit.map(Rc::clone) else {
            return Ok(Told::default());
        };
        let Some(offset) = place.to_unit_offset(&unit.header) else {
            return Ok(Told::default());
        };
        let told = self.told(&unit, &unit.entry(offset)?, depth + 1)?;
        self.known.insert(place.0, told.clone());
        Ok(told)
    }
}

/// The file that an entry says it is declared in.
pub(super) fn source<'d>(
    dwarf: &gimli::Dwarf<Bytes<'d>>,
    unit: &Unit<'d>,
    entry: &Entry<'d>,
) -> Result<Option<Rc<str>>, gimli::Error> {
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
    let text = |value| -> Result<String, gimli::Error> {
        let text = dwarf.attr_string(unit, value)?;
        Ok(text.to_string_lossy().into_owned())
    };
    let name = text(file.path_name())?;
    // What compilers call what has no text: `<autogenerated>`, `<built-in>`.
    if name
        .rsplit('/')
        .next()
        .is_some_and(|last| last.starts_with('<'))
    {
        return Ok(None);
    }
    let folder = file.directory(header).map(text).transpose()?;
    let folder = folder.unwrap_or_default();
    let mut path = match folder.is_empty() || name.starts_with('/') {
        true => name,
        false => format!("{folder}/{name}"),
    };
    if let Some(home) = unit.comp_dir.filter(|_| !path.starts_with('/')) {
        path = format!("{}/{path}", home.to_string_lossy());
    }
    Ok(Some(path.into()))
}

/// A number that an entry gives.
pub(super) fn number(entry: &Entry<'_>, attribute: gimli::DwAt) -> Option<u32> {
    let value = entry.attr_value(attribute)?;
    value
        .udata_value()
        .and_then(|number| u32::try_from(number).ok())
}
