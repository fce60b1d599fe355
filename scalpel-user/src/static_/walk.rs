//! Walks a syntax tree once and writes down what the language's rules point out. Without recursion: foreign text may
//! nest as deep as it likes.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use tree_sitter::{Node, ParseOptions, Parser};

use super::dialect::Dialect;
use super::facts::{Class, Facts, Found, Name, Parsed, Scope};
use super::text::Text;
use crate::catalog::{Flags, Gap, GapKind, Kind, Span, hash};

/// Longest time for one text: parsers are not linear on every input.
const MOST_TIME: Duration = Duration::from_secs(10);
/// Deepest nesting of definitions and scopes that is followed.
const MOST_DEPTH: usize = 500;

/// The facts of one text, or why there are none.
pub(super) fn parse(text: &str, dialect: &Dialect) -> Result<Parsed, GapKind> {
    let text = Text::new(text);
    let tree = tree_of(text.str(), dialect)?;
    let mut walk = Walk::new(&text, dialect);
    walk.run(tree.root_node());
    Ok(walk.finish())
}

fn tree_of(text: &str, dialect: &Dialect) -> Result<tree_sitter::Tree, GapKind> {
    let mut parser = Parser::new();
    // The grammars are of this build: a test loads each.
    if parser.set_language(&(dialect.grammar)()).is_err() {
        return Err(GapKind::Unreadable);
    }
    let deadline = Instant::now() + MOST_TIME;
    let mut progress = |_: &tree_sitter::ParseState| match Instant::now() < deadline {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    let bytes = text.as_bytes();
    let mut read = |at: usize, _| bytes.get(at..).unwrap_or_default();
    let options = ParseOptions::new().progress_callback(&mut progress);
    parser
        .parse_with_options(&mut read, None, Some(options))
        .ok_or(GapKind::TimedOut)
}

/// What a language says of a definition.
pub(super) struct Open<'n> {
    pub(super) node: Node<'n>,
    pub(super) kind: Kind,
    /// Its name; `None`: it has none, and is called `made_up`.
    pub(super) name: Option<String>,
    pub(super) made_up: &'static str,
    pub(super) flags: Flags,
    /// Byte where the function itself starts, past modifiers.
    pub(super) start: usize,
    /// Byte where decorators and modifiers start.
    pub(super) declared: usize,
    pub(super) name_at: Option<Node<'n>>,
    pub(super) body: Option<Node<'n>>,
    /// What stands between this and what lies in it, in qualified names.
    pub(super) inner: &'static str,
    /// It stands in the head of what is around it, and has its qualified name from outside of that.
    pub(super) in_head: bool,
}

impl<'n> Open<'n> {
    /// A definition that starts and ends with its node.
    pub(super) fn of(node: Node<'n>, kind: Kind) -> Self {
        Self {
            node,
            kind,
            name: None,
            made_up: "<anonymous>",
            flags: Flags::default(),
            start: node.start_byte(),
            declared: node.start_byte(),
            name_at: None,
            body: node.child_by_field_name("body"),
            inner: "",
            in_head: false,
        }
    }
}

/// A scope that is left with its node.
pub(super) struct Frame {
    depth: usize,
    pub(super) scope: u32,
    /// Length of the qualified name's prefix before it.
    prefix: usize,
    /// What was taken off that prefix for it.
    taken: String,
}

/// One text being walked.
pub(super) struct Walk<'t> {
    pub(super) text: &'t Text<'t>,
    dialect: &'t Dialect,
    pub(super) parsed: Parsed,
    pub(super) names: FxHashMap<Box<str>, Name>,
    pub(super) frames: Vec<Frame>,
    /// Joined names of all open definitions and classes, with what joins.
    prefix: String,
    depth: usize,
    /// Anonymous functions of each definition so far, for languages that number them.
    numbered: FxHashMap<Option<u32>, u32>,
    errors: (u32, u32),
    too_deep: bool,
    /// How many calls and names there were before each scope.
    pub(super) before: Vec<(usize, usize)>,
    /// Names whose declarations are being looked at, with the bytes where these end.
    pub(super) declaring: Vec<(Name, u32)>,
}

impl<'t> Walk<'t> {
    fn new(text: &'t Text<'t>, dialect: &'t Dialect) -> Self {
        let mut walk = Self {
            text,
            dialect,
            parsed: Parsed::default(),
            names: FxHashMap::default(),
            frames: Vec::new(),
            prefix: String::new(),
            depth: 0,
            numbered: FxHashMap::default(),
            errors: (0, 0),
            too_deep: false,
            before: vec![(0, 0)],
            declaring: Vec::new(),
        };
        walk.parsed.facts.scopes.push(Scope {
            parent: None,
            class: None,
            definition: None,
        });
        walk
    }

    fn run(&mut self, root: Node<'_>) {
        let interesting = self.dialect.interesting();
        let mut cursor = root.walk();
        if let Some(name) = self.dialect.module {
            self.module(root, name);
        }
        loop {
            let node = cursor.node();
            if interesting.get(usize::from(node.kind_id())) == Some(&true) {
                (self.dialect.enter)(self, node);
            } else if node.is_error() || node.is_missing() {
                self.error(node);
            }
            if cursor.goto_first_child() {
                self.depth += 1;
                continue;
            }
            self.leave();
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return;
                }
                self.depth -= 1;
                self.leave();
            }
        }
    }

    fn module(&mut self, root: Node<'_>, name: &'static str) {
        let open = Open {
            name: Some(name.into()),
            start: 0,
            declared: 0,
            body: None,
            ..Open::of(root, Kind::Module)
        };
        let definition = self.found(&open, None);
        if let (Some(module), Some(scope)) = (
            self.parsed.definitions.get_mut(definition as usize),
            self.parsed.facts.scopes.first_mut(),
        ) {
            module.span.end = self.text.position(self.text.str().len());
            scope.definition = Some(definition);
        }
    }

    fn leave(&mut self) {
        while let Some(frame) = self.frames.pop_if(|frame| frame.depth == self.depth) {
            self.prefix.truncate(frame.prefix);
            self.prefix.push_str(&frame.taken);
        }
    }

    fn error(&mut self, node: Node<'_>) {
        if self.errors.1 == 0 {
            self.errors.0 = self.text.position(node.start_byte()).line;
        }
        self.errors.1 += 1;
    }

    fn finish(mut self) -> Parsed {
        let gap = |kind, line, count| Gap {
            file: None,
            kind,
            line,
            count,
            detail: String::new(),
        };
        if self.errors.1 > 0 {
            let (line, count) = self.errors;
            self.parsed
                .gaps
                .push(gap(GapKind::SyntaxError, line, count));
        }
        if self.too_deep {
            self.parsed.gaps.push(gap(GapKind::TooDeep, 0, 1));
        }
        self.parsed.lines = self.text.line_count();
        self.parsed
    }

    /// The text of a node.
    pub(super) fn str(&self, node: Node<'_>) -> &'t str {
        let text: &'t Text<'t> = self.text;
        text.str().get(node.byte_range()).unwrap_or_default()
    }

    /// The text of a node's field.
    pub(super) fn field(&self, node: Node<'_>, field: &str) -> Option<&'t str> {
        node.child_by_field_name(field).map(|child| self.str(child))
    }

    /// A name as a number.
    pub(super) fn name(&mut self, text: &str) -> Name {
        if let Some(&name) = self.names.get(text) {
            return name;
        }
        let name = self.parsed.facts.names.len() as Name;
        self.parsed.facts.names.push(text.into());
        self.names.insert(text.into(), name);
        name
    }

    /// A path of names.
    pub(super) fn path(&mut self, parts: &[&str]) -> Vec<Name> {
        parts.iter().map(|part| self.name(part)).collect()
    }

    /// The facts so far.
    pub(super) const fn facts(&mut self) -> &mut Facts {
        &mut self.parsed.facts
    }

    /// The innermost open scope.
    pub(super) fn scope(&self) -> u32 {
        self.frames.last().map_or(0, |frame| frame.scope)
    }

    /// The innermost open definition.
    pub(super) fn definition(&self) -> Option<u32> {
        self.scope_data(self.scope())
            .and_then(|scope| scope.definition)
    }

    /// The class whose own scope is the innermost one.
    pub(super) fn class(&self) -> Option<u32> {
        self.scope_data(self.scope()).and_then(|scope| scope.class)
    }

    /// The class around: the innermost scope outwards that is a class's own.
    pub(super) fn class_around(&self) -> Option<u32> {
        self.frames
            .iter()
            .rev()
            .find_map(|frame| self.scope_data(frame.scope)?.class)
    }

    fn scope_data(&self, scope: u32) -> Option<&Scope> {
        self.parsed.facts.scopes.get(scope as usize)
    }

    /// The number of the next anonymous function of the innermost definition, from 0.
    pub(super) fn next_number(&mut self) -> u32 {
        let definition = self.definition();
        let next = self.numbered.entry(definition).or_default();
        *next += 1;
        *next - 1
    }

    /// A definition, entered until its node ends. Gives its number and its scope.
    pub(super) fn open(&mut self, open: &Open<'_>) -> Option<(u32, u32)> {
        if self.frames.len() >= MOST_DEPTH {
            self.too_deep = true;
            return None;
        }
        let parent = self.definition();
        let around = self.frames.last().map_or(0, |frame| frame.prefix);
        let taken = match open.in_head {
            true => self.prefix.split_off(around.min(self.prefix.len())),
            false => String::new(),
        };
        let definition = self.found(open, parent);
        let scope = self.push_scope(None, Some(definition));
        if let Some(frame) = self.frames.last_mut() {
            frame.taken = taken;
        }
        let name = self
            .parsed
            .definitions
            .get(definition as usize)
            .map(|found| found.name.clone())
            .unwrap_or_default();
        self.push_prefix(&name, open.inner);
        Some((definition, scope))
    }

    /// A definition that is not entered: what lies in its node belongs to others.
    pub(super) fn aside(&mut self, open: &Open<'_>) -> u32 {
        self.found(open, self.definition())
    }

    /// A named scope, entered until the node being looked at ends; `definition` runs in it, or the one around.
    pub(super) fn open_class(
        &mut self,
        name: &str,
        definition: Option<u32>,
        bases: Vec<Vec<Name>>,
    ) -> Option<u32> {
        if self.frames.len() >= MOST_DEPTH {
            self.too_deep = true;
            return None;
        }
        let class = self.facts().classes.len() as u32;
        let definition = definition.or_else(|| self.definition());
        let scope = self.push_scope(Some(class), definition);
        let name_id = self.name(name);
        self.facts().classes.push(Class {
            name: name_id,
            scope,
            bases,
            constructor: None,
            implicit: None,
            open: false,
            module: false,
            of_trait: false,
        });
        self.push_prefix(name, "");
        Some(class)
    }

    fn push_scope(&mut self, class: Option<u32>, definition: Option<u32>) -> u32 {
        let parent = Some(self.scope());
        let scope = self.parsed.facts.scopes.len() as u32;
        self.parsed.facts.scopes.push(Scope {
            parent,
            class,
            definition,
        });
        let facts = &self.parsed.facts;
        self.before.push((facts.calls.len(), facts.bindings.len()));
        self.frames.push(Frame {
            depth: self.depth,
            scope,
            prefix: self.prefix.len(),
            taken: String::new(),
        });
        scope
    }

    fn push_prefix(&mut self, name: &str, inner: &str) {
        if name.is_empty() {
            return;
        }
        self.prefix.push_str(name);
        self.prefix.push_str(self.dialect.joint);
        if !inner.is_empty() {
            self.prefix.push_str(inner);
            self.prefix.push_str(self.dialect.joint);
        }
    }

    fn found(&mut self, open: &Open<'_>, parent: Option<u32>) -> u32 {
        let name = open.name.clone().unwrap_or_else(|| open.made_up.into());
        let place = |byte| self.text.position(byte);
        let start = place(open.start);
        let body = open.body.map(|body| body.byte_range());
        let body_text = body.clone().and_then(|range| self.text.str().get(range));
        let found = Found {
            parent,
            kind: open.kind,
            qualified: if open.kind == Kind::Module {
                name.clone()
            } else {
                format!("{}{name}", self.prefix)
            },
            flags: Flags {
                anonymous: open.flags.anonymous || open.name.is_none(),
                doubtful: open.flags.doubtful
                    || (open.kind != Kind::Module && open.node.has_error()),
                ..open.flags
            },
            name,
            body_hash: body_text.map_or(0, |body| hash(body.as_bytes())),
            span: Span {
                start,
                end: place(open.node.end_byte()),
                declared: place(open.declared),
                name: open.name_at.map_or(start, |node| place(node.start_byte())),
                body: place(body.map_or(open.node.end_byte(), |range| range.start)),
            },
        };
        self.parsed.definitions.push(found);
        (self.parsed.definitions.len() - 1) as u32
    }
}
