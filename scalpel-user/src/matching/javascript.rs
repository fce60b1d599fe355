//! JavaScript: by the exact range in the text that was loaded, or through its source map.
//!
//! Through a map the start has to be mapped exactly, into the head of the definition, and the end into the same
//! definition. Names in maps are not looked at.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::catalog::{DefId, Definition, FileId, Kind, Why};
use crate::function::{FunctionInfo, FunctionTable};
use crate::maps::{Map, Maps, Original, Stretch};
use scalpel_common::segment::name_flags;

use super::index::Index;
use super::{absent, flagged, foreign};

/// The definition that a function is.
pub(super) fn find(
    index: &Index<'_>,
    maps: &Maps,
    info: &FunctionInfo,
    maybe: &mut BTreeSet<DefId>,
) -> Result<DefId, Why> {
    if let Some(why) = foreign(info) {
        return Err(why);
    }
    let Some(range) = info.place.range else {
        return Err(Why::NoPlace);
    };
    match maps.of(info.place.text_hash) {
        Some(map) => through_map(index, maps, map, info, range, maybe),
        None => in_text(index, info, range, maybe),
    }
}

fn in_text(
    index: &Index<'_>,
    info: &FunctionInfo,
    range: (u32, u32),
    maybe: &mut BTreeSet<DefId>,
) -> Result<DefId, Why> {
    let files = index.files_of_text(info.place.text_hash, &info.path);
    let Some(&file) = files.first() else {
        // Only the file itself: one of the same name in another package says nothing about this text.
        return Err(match index.file_exactly_at(&info.path) {
            Some(_) => Why::Edited,
            None => absent(index, info, &info.path),
        });
    };
    if flagged(info, name_flags::MODULE) {
        return module(index, file);
    }
    let ends = |(_, definition): &(DefId, &Definition)| definition.span.end.utf16 == range.1;
    let exact = |definition: &Definition| definition.span.start.utf16 == range.0;
    let in_head = |definition: &Definition| {
        let span = &definition.span;
        span.declared.utf16 <= range.0 && range.0 <= span.body.utf16
    };
    let all: Vec<_> = index
        .definitions(file)
        .filter(ends)
        .filter(|(_, definition)| fits(info, definition))
        .collect();
    let only = |is: &dyn Fn(&Definition) -> bool| {
        let mut found = all.iter().filter(|(_, definition)| is(definition));
        found
            .next()
            .filter(|_| found.next().is_none())
            .map(|(id, _)| *id)
    };
    let several = all.len() > 1;
    let found = only(&exact).or_else(|| only(&in_head));
    if found.is_none() {
        maybe.extend(all.iter().map(|(id, _)| *id));
    }
    found.ok_or(if several {
        Why::Ambiguous
    } else {
        Why::NotFound
    })
}

/// Definitions that begin as functions in the bundles that ran, and those of which there is code there at all.
pub(super) fn built(
    functions: &FunctionTable,
    index: &Index<'_>,
    maps: &Maps,
) -> (BTreeSet<DefId>, BTreeSet<DefId>) {
    let infos = functions.iter().map(|(_, info)| info);
    let texts: BTreeSet<u64> = infos.map(|info| info.place.text_hash).collect();
    let mut files: FxHashMap<String, Option<FileId>> = FxHashMap::default();
    let (mut built, mut folded) = (BTreeSet::new(), BTreeSet::new());
    for map in texts.into_iter().filter_map(|text| maps.of(text)) {
        let follow = |(place, begins)| Some((maps.follow(place)?, begins));
        for (original, begins) in map.originals().filter_map(follow) {
            let file = match files.get(original.source) {
                Some(file) => *file,
                None => *files
                    .entry(original.source.to_owned())
                    .or_insert(index.file_at(original.source)),
            };
            let found = file.and_then(|file| at(index, file, original));
            let in_head = |id: &DefId| {
                let definition = index.catalog.definition(*id);
                definition.is_some_and(|definition| in_head(definition, original))
            };
            folded.extend(found);
            built.extend(found.filter(|id| begins && in_head(id)));
        }
    }
    (built, folded)
}

fn module(index: &Index<'_>, file: FileId) -> Result<DefId, Why> {
    let mut all = index.definitions(file);
    all.find(|(_, definition)| definition.kind == Kind::Module)
        .map(|(id, _)| id)
        .ok_or(Why::NotFound)
}

fn through_map(
    index: &Index<'_>,
    maps: &Maps,
    map: &Map,
    info: &FunctionInfo,
    range: (u32, u32),
    maybe: &mut BTreeSet<DefId>,
) -> Result<DefId, Why> {
    // The top level of a bundle is that of all its files.
    if flagged(info, name_flags::MODULE) {
        return Err(Why::Generated);
    }
    let stretch = map.stretch(range.0, range.1);
    let (Some(_), Some(last)) = (stretch.first, stretch.last) else {
        return Err(Why::Generated);
    };
    let Some(start) = stretch.start else {
        return wrapper(index, maps, info, stretch, maybe);
    };
    let (start, last) = (maps.follow(start), maps.follow(last));
    let (Some(start), Some(last)) = (start, last) else {
        return Err(Why::NoMapping);
    };
    let file = file_of(index, maps, info, start)?;
    // No function of the original begins at its top level: this is what a bundler put around a module.
    let id = at(index, file, start).ok_or(Why::Generated)?;
    let definition = index.catalog.definition(id).ok_or(Why::NotFound)?;
    if definition.kind == Kind::Module {
        return Err(Why::Generated);
    }
    let is_it = in_head(definition, start)
        && last.source == start.source
        && holds(definition, last)
        && fits(info, definition);
    if is_it {
        Ok(id)
    } else {
        maybe.insert(id);
        Err(Why::NotFound)
    }
}

/// A function that begins with nothing of an original. What compilers put around enums and namespaces goes on with their
/// names.
fn wrapper(
    index: &Index<'_>,
    maps: &Maps,
    info: &FunctionInfo,
    stretch: Stretch<'_>,
    maybe: &mut BTreeSet<DefId>,
) -> Result<DefId, Why> {
    let first = stretch.first.and_then(|place| maps.follow(place));
    let last = stretch.last.and_then(|place| maps.follow(place));
    let (Some(first), Some(last)) = (first, last) else {
        return Err(Why::NoMapping);
    };
    let file = file_of(index, maps, info, first)?;
    let found = at(index, file, first).and_then(|id| Some((id, index.catalog.definition(id)?)));
    let is_wrapped = |(_, definition): &(DefId, &Definition)| {
        matches!(definition.kind, Kind::Enum | Kind::Namespace)
            && in_head(definition, first)
            && last.source == first.source
            && holds(definition, last)
    };
    if let Some(id) = moved(index, info, file, first, last) {
        return Ok(id);
    }
    match found {
        // Nothing of the original is a function there: a module's top level, as getters of what it passes on are made of.
        None => Err(Why::Generated),
        Some((_, definition)) if definition.kind == Kind::Module => Err(Why::Generated),
        Some((id, _)) if found.as_ref().is_some_and(is_wrapped) => Ok(id),
        // What compilers of older targets put around a class.
        Some((id, _)) if wraps_class(index, info, id, last) => Err(Why::Generated),
        // Its code is of this definition, whether it is that itself or not.
        _ => {
            maybe.extend(found.map(|(id, _)| id));
            Err(Why::NoMapping)
        }
    }
}

/// Whether a function without a name ends where a class around `id` ends.
fn wraps_class(index: &Index<'_>, info: &FunctionInfo, id: DefId, last: Original<'_>) -> bool {
    let mut at = index.catalog.definition(id);
    while let Some(definition) = at.filter(|_| flagged(info, name_flags::ANONYMOUS)) {
        if definition.kind == Kind::Class && ends(definition, last) {
            return true;
        }
        at = definition
            .parent
            .and_then(|parent| index.catalog.definition(parent));
    }
    false
}

/// What compilers move out of a class as a function of its own, and map nothing to at its beginning: static blocks, which
/// have no name then, and `#private` methods, whose name holds theirs. Its end is the end of the original, which no other
/// function with that name has.
fn moved(
    index: &Index<'_>,
    info: &FunctionInfo,
    file: FileId,
    first: Original<'_>,
    last: Original<'_>,
) -> Option<DefId> {
    let mut id = at(index, file, first)?;
    loop {
        let definition = index.catalog.definition(id)?;
        let is_it = match definition.kind {
            Kind::StaticBlock => flagged(info, name_flags::ANONYMOUS),
            _ => is_private_name(&info.raw_name, &definition.name),
        };
        let in_body = !in_head(definition, first) || starts_body(definition, first);
        if is_it
            && in_body
            && last.source == first.source
            && ends(definition, last)
            && fits(info, definition)
        {
            return Some(id);
        }
        id = definition.parent?;
    }
}

/// `_Shop_total`, `_Shop_total_get`, `_Shop_total_1` of `#total`, as tsc names them.
fn is_private_name(made: &str, name: &str) -> bool {
    let (Some(name), Some(made)) = (name.strip_prefix('#'), made.rsplit('.').next()) else {
        return false;
    };
    let without = |made: &str, end: &str| made.strip_suffix(end).map(str::to_owned);
    let digits = made.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let numbered = digits
        .strip_suffix('_')
        .filter(|_| digits.len() < made.len());
    let plain = [Some(made), numbered].into_iter().flatten();
    plain
        .flat_map(|made| {
            [
                Some(made.to_owned()),
                without(made, "_get"),
                without(made, "_set"),
            ]
        })
        .flatten()
        .any(|made| {
            made.strip_suffix(name)
                .is_some_and(|class| class.starts_with('_') && class.ends_with('_'))
        })
}

fn starts_body(definition: &Definition, original: Original<'_>) -> bool {
    let at = (original.place.line + 1, original.place.column);
    at == (definition.span.body.line, definition.span.body.column)
}

/// At its closing brace, or right behind it.
fn ends(definition: &Definition, original: Original<'_>) -> bool {
    let end = definition.span.end;
    let is_there = |column: u32| original.place.column == column;
    original.place.line + 1 == end.line
        && (is_there(end.column) || end.column.checked_sub(1).is_some_and(is_there))
}

/// The file of an original, if it is the text that was built.
fn file_of(
    index: &Index<'_>,
    maps: &Maps,
    info: &FunctionInfo,
    original: Original<'_>,
) -> Result<FileId, Why> {
    let file = index
        .file_at(original.source)
        .ok_or_else(|| absent(index, info, original.source))?;
    let here = index.catalog.file(file).map_or(0, |file| file.text_hash);
    match maps.content(info.place.text_hash, original.source) {
        None => Err(Why::NotCompared),
        Some(built) if built != here => Err(Why::Edited),
        Some(_) if !is_alike(maps, info) => Err(Why::NotCompared),
        Some(_) => Ok(file),
    }
}

/// Whether the words of the function are those of its original, where nothing but words tells which text was built.
fn is_alike(maps: &Maps, info: &FunctionInfo) -> bool {
    let map = maps.of(info.place.text_hash);
    let around = map.zip(info.place.range);
    around.is_none_or(|(map, (start, end))| map.is_alike(start, end))
}

/// Maps count lines from 0.
fn at(index: &Index<'_>, file: FileId, original: Original<'_>) -> Option<DefId> {
    index.around(file, original.place.line + 1, original.place.column)
}

fn in_head(definition: &Definition, original: Original<'_>) -> bool {
    let at = (original.place.line + 1, original.place.column);
    let (from, to) = (definition.span.declared, definition.span.body);
    (from.line, from.column) <= at && at <= (to.line, to.column)
}

fn holds(definition: &Definition, original: Original<'_>) -> bool {
    let at = (original.place.line + 1, original.place.column);
    let (from, to) = (definition.span.declared, definition.span.end);
    (from.line, from.column) <= at && at <= (to.line, to.column)
}

/// What a compiler may take away from a function, but never adds: `async`, `*`. And what runs as a function at all.
fn fits(info: &FunctionInfo, definition: &Definition) -> bool {
    let is_async = flagged(info, name_flags::ASYNC);
    let generator = flagged(info, name_flags::GENERATOR);
    let may_be = definition.kind.is_written()
        || matches!(definition.kind, Kind::Enum | Kind::Namespace | Kind::Class);
    may_be
        && (!is_async || definition.flags.is_async)
        // An `async` function of older targets is a generator.
        && (!generator || definition.flags.generator || definition.flags.is_async)
}
