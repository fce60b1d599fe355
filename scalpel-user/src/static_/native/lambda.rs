//! Where the lambdas of C++ stand: gcc says it of the class of one, and not of the call in it.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::dwarf::{Bytes, Entry, Told, Unit, number, source};

/// By unit, for units that were searched: the places of all classes without a name, by the functions in them.
#[derive(Default)]
pub(super) struct Lambdas(FxHashMap<usize, Rc<FxHashMap<usize, Told>>>);

impl Lambdas {
    /// Where the class around an entry stands, if that is a lambda's and the entry is its call.
    pub(super) fn around<'d>(
        &mut self,
        dwarf: &gimli::Dwarf<Bytes<'d>>,
        unit: &Unit<'d>,
        entry: &Entry<'d>,
    ) -> Result<Option<Told>, gimli::Error> {
        let Some(name) = entry.attr_value(gimli::DW_AT_name) else {
            return Ok(None);
        };
        let name = dwarf.attr_string(unit, name)?;
        let rest = name.slice().strip_prefix(b"operator()");
        // One with a parameter `auto` is called `operator()<int>`.
        if rest.is_none_or(|rest| !rest.is_empty() && !rest.starts_with(b"<")) {
            return Ok(None);
        }
        let begins = unit.header.debug_info_offset().map_or(0, |at| at.0);
        let known = match self.0.get(&begins) {
            Some(known) => Rc::clone(known),
            None => {
                let found = Rc::new(search(dwarf, unit)?);
                self.0.insert(begins, Rc::clone(&found));
                found
            }
        };
        Ok(known.get(&entry.offset().0).cloned())
    }
}

fn search<'d>(
    dwarf: &gimli::Dwarf<Bytes<'d>>,
    unit: &Unit<'d>,
) -> Result<FxHashMap<usize, Told>, gimli::Error> {
    let mut found = FxHashMap::default();
    // Entries that are open; of a lambda's class, where it stands.
    let mut around: Vec<Option<Told>> = Vec::new();
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        around.truncate(usize::try_from(entry.depth()).unwrap_or(0));
        let class = around.last().and_then(Option::as_ref);
        if let (gimli::DW_TAG_subprogram, Some(class)) = (entry.tag(), class) {
            found.insert(entry.offset().0, class.clone());
        }
        around.push(class_of_lambda(dwarf, unit, entry)?);
    }
    Ok(found)
}

fn class_of_lambda<'d>(
    dwarf: &gimli::Dwarf<Bytes<'d>>,
    unit: &Unit<'d>,
    entry: &Entry<'d>,
) -> Result<Option<Told>, gimli::Error> {
    let is_class = matches!(
        entry.tag(),
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type
    );
    if !is_class {
        return Ok(None);
    }
    if let Some(name) = entry.attr_value(gimli::DW_AT_name) {
        let name = dwarf.attr_string(unit, name)?;
        // `<lambda(int)>`
        if !name.slice().starts_with(b"<lambda") {
            return Ok(None);
        }
    }
    Ok(Some(Told {
        source: source(dwarf, unit, entry)?,
        line: number(entry, gimli::DW_AT_decl_line),
        column: number(entry, gimli::DW_AT_decl_column),
        ..Told::default()
    }))
}
