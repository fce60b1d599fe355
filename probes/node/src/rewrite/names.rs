//! What a function is called: its own name or the one that it takes from where it stands, behind the functions, classes and
//! objects around it.
use oxc_ast::ast::{
    MethodDefinition, MethodDefinitionKind, ObjectProperty, PropertyKey, PropertyKind,
};

/// Longest name taken from the text of an expression, in bytes.
const LONGEST: usize = 60;

/// What stands for a name where there is none.
const ANONYMOUS: &str = "(anonymous)";

/// A name, and whether the source gives the function none.
pub(super) struct Name {
    pub(super) text: String,
    pub(super) anonymous: bool,
}

/// The names around, and the one that the next function or class is to have.
#[derive(Default)]
pub(super) struct Names {
    around: Vec<String>,
    next: Option<String>,
    at: Option<u32>,
}

impl Names {
    pub(super) fn push(&mut self, name: &str) {
        self.around.push(name.to_owned());
    }

    pub(super) fn pop(&mut self) {
        self.around.pop();
    }

    pub(super) fn expect(&mut self, name: Option<String>) {
        self.next = name;
        self.at = None;
    }

    pub(super) fn expect_at(&mut self, name: Option<String>, start: u32) {
        self.next = name;
        self.at = Some(start);
    }

    pub(super) fn forget(&mut self) {
        self.next = None;
        self.at = None;
    }

    /// Where the next function starts, if not at its node.
    pub(super) fn start(&mut self) -> Option<u32> {
        self.at.take()
    }

    /// The next function's name; `own` is the one in its head.
    pub(super) fn take(&mut self, own: Option<&str>) -> Name {
        let given = self.next.take();
        self.at = None;
        let text = own.map(str::to_owned).or(given);
        let anonymous = text.as_ref().is_none_or(|text| text.ends_with(')'));
        Name {
            text: text.unwrap_or_else(|| ANONYMOUS.to_owned()),
            anonymous,
        }
    }

    /// Behind the names around it; functions without a name that wrap a whole text (UMD, a bundler's) are not among them.
    pub(super) fn qualified(&self, name: &str) -> String {
        let around = self.around.iter().map(String::as_str);
        let around = around.skip_while(|name| *name == ANONYMOUS);
        let parts: Vec<_> = around
            .chain([name])
            .filter(|part| !part.is_empty())
            .collect();
        parts.join(".")
    }

    pub(super) fn owner(&self) -> String {
        self.qualified("")
    }
}

pub(super) fn is_accessor(kind: PropertyKind) -> bool {
    kind != PropertyKind::Init
}

/// `name`, `#name`, `get name`, `constructor`, `[computed]`.
pub(super) fn method(it: &MethodDefinition<'_>) -> String {
    let name = key(&it.key, it.computed).unwrap_or_else(|| "[computed]".to_owned());
    match it.kind {
        MethodDefinitionKind::Get => format!("get {name}"),
        MethodDefinitionKind::Set => format!("set {name}"),
        MethodDefinitionKind::Constructor | MethodDefinitionKind::Method => name,
    }
}

pub(super) fn property(it: &ObjectProperty<'_>) -> String {
    let name = key(&it.key, it.computed).unwrap_or_else(|| "[computed]".to_owned());
    match it.kind {
        PropertyKind::Get => format!("get {name}"),
        PropertyKind::Set => format!("set {name}"),
        PropertyKind::Init => name,
    }
}

pub(super) fn key(key: &PropertyKey<'_>, computed: bool) -> Option<String> {
    if let PropertyKey::PrivateIdentifier(name) = key {
        return Some(format!("#{}", name.name));
    }
    let name = key.static_name().map(std::borrow::Cow::into_owned);
    if computed && name.is_none() {
        return None;
    }
    name
}

/// The name that an assignment gives: `exports.x = ` is `x`, `A.prototype.x = ` is itself.
pub(super) fn target(text: &str) -> Option<String> {
    let exports = ["module.exports.", "exports."];
    let text = exports
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .unwrap_or(text);
    plain(text).then(|| text.to_owned())
}

/// The name of a function that is handed to a call: `app.get(argument)`.
pub(super) fn argument(callee: &str) -> Option<String> {
    let last = callee.rsplit(['\n', ' ', ')', ']']).next().unwrap_or("");
    let last = last.trim_start_matches(['?', '.']);
    (!last.is_empty() && plain(last)).then(|| format!("{last}(argument)"))
}

fn plain(text: &str) -> bool {
    text.len() <= LONGEST
        && text
            .chars()
            .all(|char| char.is_alphanumeric() || ['.', '_', '$', '#', '?'].contains(&char))
}

/// What follows white space and comments.
pub(super) fn skip_space(text: &str) -> &str {
    let text = text.trim_start();
    if let Some(comment) = text.strip_prefix("/*") {
        comment
            .split_once("*/")
            .map_or("", |(_, rest)| skip_space(rest))
    } else if let Some(comment) = text.strip_prefix("//") {
        comment
            .split_once('\n')
            .map_or("", |(_, rest)| skip_space(rest))
    } else {
        text
    }
}
