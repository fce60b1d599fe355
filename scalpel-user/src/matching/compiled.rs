//! Machine code -> the text that it was made of: by the line that debug information or Go's table gives, and where several
//! functions begin in that line by the column, or else by what the name tells. A doubtful one is none.

use rustc_hash::FxHashSet;

use crate::catalog::{DefId, Definition, FileId, Kind, Native, Position};

use super::index::Index;

/// What in the sources a function of an executable is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// This one.
    One(DefId),
    /// One of these.
    OneOf(Vec<DefId>),
    /// Nothing that is known.
    None,
}

/// What a function of an executable was made of.
pub(super) fn text_of(index: &Index<'_>, definition: &Definition) -> Text {
    let Some(native) = &definition.native else {
        return Text::None;
    };
    let place = native.source.as_deref().zip(native.line);
    let Some((file, line)) = place.and_then(|(path, line)| Some((index.file_at(path)?, line)))
    else {
        return Text::None;
    };
    let name = &definition.name;
    let here = |(_, source): &(DefId, &Definition)| {
        let span = &source.span;
        span.declared.line <= line && line <= span.body.line && fits(source, name)
    };
    let all: Vec<(DefId, &Definition)> = index.definitions(file).filter(here).collect();
    let by_column = |(_, source): &&(DefId, &Definition)| begins_at(index, source, native);
    let by_name = |(_, source): &&(DefId, &Definition)| last(name) == last(&source.name);
    only(all.iter())
        .or_else(|| only(all.iter().filter(by_column)))
        .or_else(|| only(all.iter().filter(by_name)))
        .map(Text::One)
        .unwrap_or_else(|| match all.is_empty() {
            true => Text::None,
            false => Text::OneOf(all.into_iter().map(|(id, _)| id).collect()),
        })
}

fn only<'a>(mut all: impl Iterator<Item = &'a (DefId, &'a Definition)>) -> Option<DefId> {
    let (id, _) = all.next()?;
    all.next().is_none().then_some(*id)
}

/// Whether its name stands at the very column; or that of a lambda, which is its first bracket or its last one, lies in its head.
fn begins_at(index: &Index<'_>, source: &Definition, native: &Native) -> bool {
    let column = native.column.and_then(|column| column.checked_sub(1));
    let Some(at) = native.line.zip(column) else {
        return false;
    };
    let place = |position: Position| (position.line, position.column);
    let span = &source.span;
    match source.kind {
        Kind::Closure => {
            let head = place(span.start)..place(span.body);
            head.contains(&at) && is_ascii_up_to(index, source)
        }
        _ => place(span.name) == at,
    }
}

/// Whether the line of a lambda has nothing but ASCII before its body: compilers count bytes, and places here UTF-16 units.
fn is_ascii_up_to(index: &Index<'_>, source: &Definition) -> bool {
    let more = |position: Position| position.byte.wrapping_sub(position.utf16);
    let upto = more(source.span.body);
    let mut around = Some(source);
    // What began in a line before it tells how many there were until then.
    while let Some(definition) = around {
        if definition.span.body.line < source.span.start.line {
            return more(definition.span.body) == upto;
        }
        around = definition
            .parent
            .and_then(|id| index.catalog.definition(id));
    }
    upto == 0
}

/// Whether both are closures, or none of them. The body of an `async` function is a closure for its compiler, and what has no
/// name may be either.
fn fits(source: &Definition, name: &str) -> bool {
    match (source.kind, is_closure(name)) {
        (Kind::Module, _) => false,
        (_, None) => true,
        (Kind::Closure, Some(closure)) => closure,
        (_, Some(closure)) => !closure || source.flags.is_async,
    }
}

/// Whether a name is one that a compiler gives to a closure.
fn is_closure(name: &str) -> Option<bool> {
    // Debug information of what has no symbol, a lambda or a class in a function; a name that nobody could demangle.
    if name.is_empty() || name.starts_with("operator()") || name.starts_with("_Z") {
        return None;
    }
    let (from, last) = last_word(name);
    let owner = name.get(..from).unwrap_or_default().trim_end_matches(':');
    let is_lambda = owner.ends_with('}')
        || owner
            .rsplit("::")
            .next()
            .is_some_and(|it| it.starts_with("$_"));
    // `main.run.func1`, and within that one `main.run.func1.2`
    let number = match last.strip_prefix("func") {
        Some(number) if name.contains('.') => number,
        None if name.contains(".func") => last,
        _ => "",
    };
    let of_go = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let of_rust = last.starts_with("{closure") || last.starts_with("{{closure");
    Some(last == "operator()" && is_lambda || of_rust || of_go)
}

/// What compilers append to the names of copies that they made.
const COPIES: [&str; 6] = [
    " [clone",
    ".isra.",
    ".constprop.",
    ".part.",
    ".llvm.",
    ".lto_priv.",
];

fn last(name: &str) -> &str {
    last_word(name).1
}

/// The last word of a qualified name, without parameters, and where it begins: `get` of `shop::Box<int>::get() const`, `run`
/// of `main.run`.
fn last_word(name: &str) -> (usize, &str) {
    let copy = COPIES.iter().filter_map(|word| name.find(word)).min();
    let name = name.get(..copy.unwrap_or(name.len())).unwrap_or_default();
    let (mut depth, mut from, mut to) = (0u32, 0, None);
    let mut operator = 0;
    for (at, byte) in name.bytes().enumerate() {
        if at < operator {
            continue;
        }
        let rest = name.get(at..).unwrap_or_default();
        if depth == 0 && at == from && rest.starts_with("operator") {
            operator = at + length_of_operator(rest);
            to = Some(operator);
            continue;
        }
        match byte {
            // Not of an owner: `(anonymous namespace)::`, Go's `(*T).`, `<T as U>::`
            b'<' | b'(' | b'[' | b'{' => {
                if depth == 0 && at > from {
                    to = to.or(Some(at));
                }
                depth += 1;
            }
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b':' | b'.' if depth == 0 => (from, to) = (at + 1, None),
            // Behind a type that is given back.
            b' ' if depth == 0 && to.is_none() => from = at + 1,
            _ => {}
        }
    }
    let word = name.get(from..to.unwrap_or(name.len()));
    (from, word.unwrap_or_default())
}

/// `operator<<`, `operator()`, `operator int`
fn length_of_operator(rest: &str) -> usize {
    let symbol = rest.get("operator".len()..).unwrap_or_default();
    let length = match symbol.bytes().next() {
        Some(b'(') => 2,
        Some(b' ') => symbol.find('(').unwrap_or(symbol.len()),
        _ => symbol
            .find(|letter: char| !"<>-=+*/%^&|~!,[]".contains(letter))
            .unwrap_or(symbol.len()),
    };
    "operator".len() + length
}

/// Which sources executables have debug information of.
pub(super) struct Covered {
    files: FxHashSet<FileId>,
    /// Names of code without a line.
    unplaced: FxHashSet<String>,
}

impl Covered {
    pub(super) fn of(index: &Index<'_>) -> Self {
        let mut covered = Self {
            files: FxHashSet::default(),
            unplaced: FxHashSet::default(),
        };
        for definition in &index.catalog.definitions {
            let Some(native) = definition
                .native
                .as_ref()
                .filter(|_| definition.kind != Kind::Import)
            else {
                continue;
            };
            match native.source.as_deref().filter(|_| native.line.is_some()) {
                Some(path) => covered.files.extend(index.file_at(path)),
                None => drop(covered.unplaced.insert(last(&definition.name).to_owned())),
            }
        }
        covered
    }

    /// Whether a source of which there is no line is not in the executables either: none of the code without lines is called
    /// as one of its functions.
    pub(super) fn can_tell(&self, index: &Index<'_>, file: FileId) -> bool {
        let is_there =
            |(_, definition): (DefId, &Definition)| self.unplaced.contains(last(&definition.name));
        self.files.contains(&file)
            || !self.files.is_empty() && !index.definitions(file).any(is_there)
    }
}

#[cfg(test)]
mod tests {
    use super::{is_closure, last};

    #[test]
    fn the_last_word_of_a_name_is_found_among_templates_and_parameters() {
        for (name, word) in [
            ("serve", "serve"),
            ("shop::Box<int>::get() const", "get"),
            ("int shop::Box<int>::as<short>() const", "as"),
            ("shop::(anonymous namespace)::hidden(int)", "hidden"),
            ("shop::Item::~Item()", "~Item"),
            ("shop::operator*(shop::Item const&)", "operator*"),
            ("a::operator<(a::b, a::c)", "operator<"),
            ("a::operator<<(a::b, a::c)", "operator<<"),
            ("a::operator->() const", "operator->"),
            ("main::{lambda(int)#1}::operator()(int) const", "operator()"),
            (
                "main::{lambda(std::string)#2}::operator()(int) const::Local::go(a::b)",
                "go",
            ),
            ("<rg::A as core::fmt::Debug>::fmt", "fmt"),
            ("rg::run::{closure#0}", "{closure#0}"),
            ("rg::run::{{closure}}", "{{closure}}"),
            ("main.(*List[go.shape.int]).Push", "Push"),
            ("example.com/shop/list.run.func1", "func1"),
            ("main.Map[...]", "Map"),
            ("pack.constprop.0", "pack"),
            ("shop::pack(int) [clone .isra.0]", "pack"),
            ("", ""),
        ] {
            assert_eq!(last(name), word, "{name}");
        }
    }

    #[test]
    fn closures_are_told_by_the_names_that_compilers_give_them() {
        for closure in [
            "main::{lambda(int)#1}::operator()(int) const",
            "auto main::{lambda(auto:1)#2}::operator()<int>(int) const",
            "main::$_0::operator()(int) const",
            "rg::run::{closure#0}",
            "rg::run::{{closure}}",
            "main.run.func1",
            "main.run.func1.2",
        ] {
            assert_eq!(is_closure(closure), Some(true), "{closure}");
        }
        for function in [
            "shop::Compare::operator()(int, int) const",
            "main::{lambda(int)#1}::operator()(int) const::Local::go()",
            "main",
            "main.function",
            "main.func",
            "pack.part.0",
            "rg::closure",
        ] {
            assert_eq!(is_closure(function), Some(false), "{function}");
        }
        for open in [
            "operator()",
            "operator()<int>",
            "_ZNK4shopL4keptMUliE_clEi",
            "",
        ] {
            assert_eq!(is_closure(open), None, "{open}");
        }
    }
}
