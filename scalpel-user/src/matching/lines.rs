//! Languages whose probes tell a name and lines: Python, and others like it.
//!
//! Python's code objects begin at the first decorator. A probe does not see the text, so a file is believed only as long
//! as nothing that ran contradicts it: one function at another line, and the file was edited.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use crate::catalog::{DefId, Definition, FileId, Kind, Why};
use crate::function::{FunctionInfo, FunctionTable, Language};
use scalpel_common::segment::name_flags;

use super::index::Index;
use super::{absent, flagged, foreign, is_text};

/// Files of which a function ran that stands elsewhere now.
pub(super) fn edited_files(functions: &FunctionTable, index: &Index<'_>) -> FxHashSet<FileId> {
    let contradicts = |info: &FunctionInfo| {
        let file = index.file_at(&info.path)?;
        let named = |(_, definition): &(DefId, &Definition)| is_called(&info.raw_name, definition);
        let (mut of_name, mut moved) = (0, 0);
        for (_, definition) in index.definitions(file).filter(named) {
            of_name += 1;
            moved += u32::from(!is_at(info, definition));
        }
        (of_name > 0 && of_name == moved).then_some(file)
    };
    let of_text = |info: &&std::sync::Arc<FunctionInfo>| {
        info.language != Language::JavaScript
            && is_text(info.language, info)
            && info.line.is_some()
            // Of a text that a probe has the hash of, that decides.
            && info.place.text_hash == 0
            && foreign(info).is_none()
    };
    let infos = functions.iter().map(|(_, info)| info);
    infos
        .filter(of_text)
        .filter_map(|info| contradicts(info))
        .collect()
}

/// The definition that a function is.
pub(super) fn find(
    index: &Index<'_>,
    edited: &FxHashSet<FileId>,
    info: &FunctionInfo,
    maybe: &mut BTreeSet<DefId>,
) -> Result<DefId, Why> {
    if let Some(why) = foreign(info) {
        return Err(why);
    }
    if info.path.is_empty() || info.line.is_none() {
        return Err(Why::NoPlace);
    }
    let file = index
        .file_at(&info.path)
        .ok_or_else(|| absent(index, info, &info.path))?;
    if edited.contains(&file) || !is_same_text(index, file, info) {
        return Err(Why::Edited);
    }
    let here = |(_, definition): &(DefId, &Definition)| {
        is_at(info, definition) && is_named(info, definition) && fits(info, definition)
    };
    let found = index.definitions(file).filter(here);
    let found: Vec<DefId> = found.map(|(id, _)| id).collect();
    match *found {
        [] if is_made_by_python(info) => Err(Why::Generated),
        [] => Err(Why::NotFound),
        [id] => Ok(id),
        _ => {
            maybe.extend(found);
            Err(Why::Ambiguous)
        }
    }
}

/// Where a probe tells the hash of the text, it decides.
fn is_same_text(index: &Index<'_>, file: FileId, info: &FunctionInfo) -> bool {
    let here = index.catalog.file(file).map_or(0, |file| file.text_hash);
    info.place.text_hash == 0 || info.place.text_hash == here
}

/// Python tells the line of the first decorator; other runtimes one between that and the name. Where the last line is
/// known, the body may not end behind the definition.
fn is_at(info: &FunctionInfo, definition: &Definition) -> bool {
    let (Some(line), span) = (info.line, &definition.span) else {
        return false;
    };
    if definition.kind == Kind::Module {
        return flagged(info, name_flags::MODULE);
    }
    let starts = match info.language {
        Language::Python => line == span.declared.line,
        _ => span.declared.line <= line && line <= span.body.line.max(span.name.line),
    };
    starts && info.place.end_line.is_none_or(|end| end <= span.end.line)
}

/// Functions that the compiler makes for annotations (3.14) and type parameters (3.12), which no text spells out.
fn is_made_by_python(info: &FunctionInfo) -> bool {
    let name = &info.raw_name;
    info.language == Language::Python
        && (name == "__annotate__"
            || name.ends_with(".__annotate__")
            || name.ends_with('>') && name.contains("<generic parameters of "))
}

fn is_named(info: &FunctionInfo, definition: &Definition) -> bool {
    if definition.kind == Kind::Module {
        return true;
    }
    let name = &info.raw_name;
    if info.language == Language::Python {
        return is_called(name, definition);
    }
    let last = name
        .rsplit(['.', ':', '#', '\\', '$'])
        .next()
        .unwrap_or(name);
    last == definition.name || (definition.kind == Kind::Closure && definition.flags.anonymous)
}

/// From 3.12 on list, set and dict comprehensions are part of what is around them, in names too.
fn is_called(name: &str, definition: &Definition) -> bool {
    let qualified = &definition.qualified;
    name == qualified || {
        let folded = ["<listcomp>", "<setcomp>", "<dictcomp>"].iter();
        let folded = folded.fold(qualified.clone(), |name, comprehension| {
            name.replace(&format!("{comprehension}.<locals>."), "")
        });
        name == folded
    }
}

fn fits(info: &FunctionInfo, definition: &Definition) -> bool {
    let is_class = definition.kind == Kind::Class;
    let is_module = definition.kind == Kind::Module;
    flagged(info, name_flags::CLASS_BODY) == is_class
        && flagged(info, name_flags::MODULE) == is_module
        && (info.language != Language::Python
            || flagged(info, name_flags::ASYNC) == definition.flags.is_async
            || definition.kind == Kind::Comprehension)
}
