//! Native code: by build-id and the offset of the first instruction. Another build is another program.

use crate::catalog::{DefId, Outcome, Why};
use crate::function::{FunctionInfo, UnknownReason};

use super::compiled::{self, Text};
use super::index::Index;
use super::states::is_compiled;

/// What the sources that were searched have of a function of an executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Its definition.
    Found(DefId),
    /// Several definitions, one of which it is.
    Ambiguous,
    /// Its file, and no definition where it begins.
    Missing,
    /// Its file, but no text of it: the compiler made it, and calls it by a name of its own.
    Made,
    /// Nothing: it comes from elsewhere, or no text of it is known, which is so for what a compiler makes.
    Foreign,
}

/// Of each function of the run; `None` where no source of a compiled language was searched, or where it is not by an
/// executable that the function is known.
pub(super) fn sources(index: &Index<'_>, outcomes: &[Outcome]) -> Vec<Option<Source>> {
    let mut files = index.catalog.files.iter();
    if !files.any(|file| is_compiled(file.language)) {
        return vec![None; outcomes.len()];
    }
    outcomes
        .iter()
        .map(|outcome| source(index, *outcome))
        .collect()
}

fn source(index: &Index<'_>, outcome: Outcome) -> Option<Source> {
    let definition = index.catalog.definition(outcome.definition()?)?;
    let native = definition.native.as_ref()?;
    match compiled::text_of(index, definition) {
        Text::One(id) => return Some(Source::Found(id)),
        Text::OneOf(_) => return Some(Source::Ambiguous),
        Text::None => {}
    }
    let is_ours = |path| index.is_in_tree(path) || index.file_at(path).is_some();
    Some(match native.source.as_deref().is_some_and(is_ours) {
        false => Source::Foreign,
        true if is_made_by_go(&native.raw_name) => Source::Made,
        true => Source::Missing,
    })
}

/// Wrappers of deferred and started calls and of methods taken as values, and what sets up the variables of a package.
/// (`init.0` is a function that somebody wrote.)
fn is_made_by_go(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let numbered = |word: &str| {
        last.strip_prefix(word)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let is_go = name.contains('.');
    is_go
        && (numbered("deferwrap")
            || numbered("gowrap")
            || last.ends_with("-fm")
            || last == "init"
            || name.contains(".map.init."))
}

/// The definition that a function is.
pub(super) fn find(index: &Index<'_>, info: &FunctionInfo) -> Result<DefId, Why> {
    if let Some(why) = unplaced(info) {
        return Err(why);
    }
    let Some(image) = index.image(&info.build_id) else {
        return Err(match index.file_at(&info.path) {
            Some(_) => Why::Edited,
            None => Why::OutOfTree,
        });
    };
    match info.file_offset {
        // It was seen where it is inlined, and stands nowhere by itself.
        0 => match index.only_inlined(image, &info.raw_name) {
            Some(one) => one.ok_or(Why::Ambiguous),
            None => Err(Why::NotFound),
        },
        offset => index.code(image, offset).ok_or(Why::NotFound),
    }
}

fn unplaced(info: &FunctionInfo) -> Option<Why> {
    match (&info.unknown, &*info.path) {
        (Some(UnknownReason::Anonymous), _) | (_, "[jit]") => Some(Why::Jit),
        (_, "[vdso]" | "[kernel]" | "[uprobes]") => Some(Why::System),
        (_, "") => Some(Why::NoPlace),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_made_by_go;

    #[test]
    fn what_go_makes_is_told_from_what_somebody_wrote() {
        for made in [
            "main.run.deferwrap1",
            "example.com/a.(*T).f.gowrap12",
            "main.(*T).Close-fm",
            "example.com/a.init",
            "example.com/a.map.init.0",
        ] {
            assert!(is_made_by_go(made), "{made}");
        }
        for written in [
            "main.init.0",
            "main.init.0.func1",
            "main.deferwrap",
            "main.run.func1",
            "main.glob..func2",
            "init",
            "rg::flags::init",
        ] {
            assert!(!is_made_by_go(written), "{written}");
        }
    }
}
