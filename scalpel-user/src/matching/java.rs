//! Java as its virtual machine names what it compiled: `int shop.Item$Box.cost(int)`. Class and method name the definition;
//! what the names leave open, as overloads, lambdas and classes without a name do, is not guessed at.

use std::collections::BTreeSet;

use crate::catalog::{DefId, Definition, FileId, Kind, Why};
use crate::function::{FunctionInfo, Language};

use super::index::Index;

/// Packages of the platform.
const PLATFORM: &[&str] = &["java.", "javax.", "jdk.", "sun.", "com.sun."];

/// A name of the virtual machine, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Parts<'a> {
    package: &'a str,
    /// Classes, the outermost first.
    classes: Vec<&'a str>,
    method: &'a str,
}

/// The definition that a compiled function is.
pub(super) fn find(
    index: &Index<'_>,
    info: &FunctionInfo,
    maybe: &mut BTreeSet<DefId>,
) -> Result<DefId, Why> {
    let parts = parts(&info.name).ok_or(Why::Jit)?;
    let package = format!("{}.", parts.package);
    if PLATFORM.iter().any(|prefix| package.starts_with(prefix)) {
        return Err(Why::StandardLibrary);
    }
    // `Item$$Lambda$12/0x0000` is made by the virtual machine around a lambda, or around a method that is taken as a value.
    if info.name.contains("$$") || info.name.contains("/0x") {
        return Err(Why::Generated);
    }
    let outer = parts.classes.first().copied().unwrap_or_default();
    let files: Vec<FileId> = index
        .files_of_class(outer)
        .filter(|file| is_in_package(index, *file, parts.package))
        .collect();
    let file = match *files {
        [] => return Err(Why::OutOfTree),
        [file] => file,
        // Two of one name: which was compiled is not told.
        _ => return Err(Why::Ambiguous),
    };
    if parts.method.starts_with("lambda$") || parts.classes.iter().copied().any(is_nameless) {
        let unsure = |(_, definition): &(DefId, &Definition)| {
            definition.kind == Kind::Closure || definition.qualified.split('.').any(is_nameless)
        };
        maybe.extend(index.definitions(file).filter(unsure).map(|(id, _)| id));
        return Err(Why::Ambiguous);
    }
    let class = parts.classes.join(".");
    let name = match parts.method {
        "<init>" => format!(
            "{class}.{}",
            parts.classes.last().copied().unwrap_or_default()
        ),
        "<clinit>" => return Err(Why::Generated),
        method => format!("{class}.{method}"),
    };
    let named = |(_, definition): &(DefId, &Definition)| {
        definition.qualified == name && definition.kind.is_written() && !definition.flags.declared
    };
    let found: Vec<DefId> = index
        .definitions(file)
        .filter(named)
        .map(|(id, _)| id)
        .collect();
    match *found {
        [id] => Ok(id),
        // A constructor that nobody wrote, an accessor of a record, `values` of an enum.
        [] => Err(Why::Generated),
        _ => {
            maybe.extend(found);
            Err(Why::Ambiguous)
        }
    }
}

/// Whether a function is Java's, and known by nothing but its name.
pub(super) fn is_compiled(info: &FunctionInfo) -> bool {
    info.language == Language::Java && info.path == "[jit]"
}

fn is_in_package(index: &Index<'_>, file: FileId, package: &str) -> bool {
    index.catalog.file(file).is_some_and(|file| {
        let path = index.catalog.path_of(file);
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let wanted = package.replace('.', "/");
        wanted.is_empty() || folder == wanted || folder.ends_with(&format!("/{wanted}"))
    })
}

/// Classes without a name have a number.
fn is_nameless(class: &str) -> bool {
    class.starts_with(|letter: char| letter.is_ascii_digit())
}

/// `shop.Item$Box.cost(int)`.
fn parts(name: &str) -> Option<Parts<'_>> {
    let (head, _) = name.split_once('(')?;
    let (path, method) = head.rsplit_once('.')?;
    let (package, classes) = path.rsplit_once('.').unwrap_or(("", path));
    let classes: Vec<&str> = classes.split('$').collect();
    let is_whole = !method.is_empty() && classes.iter().all(|class| !class.is_empty());
    (is_whole || name.contains("$$")).then_some(Parts {
        package,
        classes,
        method,
    })
}

#[cfg(test)]
mod tests {
    use super::{Parts, parts};

    #[test]
    fn names_of_the_virtual_machine_are_taken_apart() {
        let check = |name, package, classes: &[&'static str], method| {
            let classes = classes.to_vec();
            let expected = Parts {
                package,
                classes,
                method,
            };
            assert_eq!(parts(name), Some(expected), "{name}");
        };
        check(
            "shop.till.Item$Box.cost(int, long)",
            "shop.till",
            &["Item", "Box"],
            "cost",
        );
        check("Main.main(java.lang.String[])", "", &["Main"], "main");
        check("Main$1.<init>(Main)", "", &["Main", "1"], "<init>");
        for name in ["", "main", "main(int)", ".(", "a.b", "Main$.x()"] {
            assert_eq!(parts(name), None, "{name}");
        }
    }
}
