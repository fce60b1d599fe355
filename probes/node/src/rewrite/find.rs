//! Walks a parsed text: which functions it has, and where each one's pieces would stand.
//!
//! Insertions are listed in the order in which they are met, outer before inner at a start and inner before outer at an
//! end, so that a stable sort by place keeps them nested.
use std::collections::HashSet;

use oxc_ast::ast::{
    Expression, ForOfStatement, FormalParameters, Function as JsFunction, FunctionBody, Program,
    Statement,
};
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use scalpel_common::segment::name_flags;

use super::names::{self, Names};
use super::units::Units;

/// One function of a text. Places are in UTF-16 units, as V8 gives them: from the first word that belongs to the function
/// (`async`, `get`, a method's name) to behind its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Qualified name.
    pub name: String,
    /// Class or object that it belongs to, or nothing.
    pub owner: String,
    /// Bits of [`name_flags`].
    pub flags: u16,
    /// First line, from 1.
    pub line: u32,
    /// Last line.
    pub end_line: u32,
    /// Column, from 0.
    pub column: u32,
    /// Where it starts.
    pub start: u32,
    /// Behind its end.
    pub end: u32,
    /// Its body in the text, in bytes.
    pub body: std::ops::Range<usize>,
    /// Whether it can be suspended: async, generator.
    pub suspends: bool,
    /// In no other function's body.
    pub outermost: bool,
    /// A block around its body would change what it means: call mode only counts it.
    pub left_alone: bool,
}

/// The body of an ECMAScript module. It can stand in no block, for what it exports is declared in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopLevel {
    /// Whether it waits, as an `async` function does.
    pub suspends: bool,
}

/// In place of an index into the functions: the module's own body.
pub(super) const TOP_LEVEL: usize = usize::MAX;

/// What a text holds.
#[derive(Debug, Default)]
pub struct Found {
    /// Its functions, in the order of their starts of visit.
    pub functions: Vec<Function>,
    /// The text's own body, of a module.
    pub top_level: Option<TopLevel>,
    /// By place.
    pub(super) insertions: Vec<Insertion>,
    /// Places that make functions of text at run time: `eval(...)`, `new Function(...)`.
    pub evals: u32,
    /// Whether it holds `import(...)`.
    pub imports: bool,
}

/// Something to be inserted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Insertion {
    /// Byte of the text.
    pub(super) at: u32,
    /// Index of the function it belongs to.
    pub(super) function: usize,
    pub(super) piece: Piece,
}

/// The kinds of pieces; [`super::pieces`] has their texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Start,
    End,
    ArrowStart,
    ArrowEnd,
    ReturnStart,
    ReturnEnd,
    ReturnNothing,
    ReturnedNothing,
    /// Around `await x`, `yield x`.
    WaitStart,
    WaitEnd,
    /// Around the `x`.
    ArgumentStart,
    ArgumentEnd,
    /// In its place.
    NoArgument,
    /// A statement: go on, if suspended.
    Resume,
    /// A statement: suspended from here.
    Suspend,
    BlockStart,
    BlockEnd,
}

pub(super) fn find(program: &Program<'_>, text: &str) -> Found {
    let mut finder = Finder {
        text,
        units: Units::new(text),
        found: Found::default(),
        open: Vec::new(),
        names: Names::default(),
        bodies: 0,
        with: 0,
        label: None,
    };
    if program.source_type.is_module() {
        finder.module(program);
    } else {
        finder.visit_program(program);
    }
    let mut found = finder.found;
    found.insertions.sort_by_key(|insertion| insertion.at);
    found
}

/// Where a module's first statement may be put: what begins with `#!` keeps its line.
fn first_place(program: &Program<'_>, text: &str) -> Option<u32> {
    let Some(hashbang) = &program.hashbang else {
        return Some(0);
    };
    let rest = text.get(hashbang.span.end as usize..)?;
    let line_break = rest.chars().next()?.len_utf8() as u32;
    let second = u32::from(rest.starts_with("\r\n"));
    Some(hashbang.span.end + line_break + second)
}

pub(super) struct Finder<'t> {
    pub(super) text: &'t str,
    pub(super) units: Units<'t>,
    pub(super) found: Found,
    pub(super) open: Vec<Open>,
    pub(super) names: Names,
    /// Function bodies around.
    pub(super) bodies: usize,
    /// Bodies of `with` around.
    pub(super) with: usize,
    /// Start of the labels right before the next statement, and their names.
    pub(super) label: Option<(u32, Vec<String>)>,
}

/// A function whose end is not reached.
#[derive(Default)]
pub(super) struct Open {
    pub(super) index: usize,
    pub(super) suspends: bool,
    pub(super) loops: Vec<Loop>,
    /// Functions declared at the top of its body, and its parameters.
    pub(super) declared: HashSet<String>,
}

pub(super) struct Loop {
    pub(super) labels: Vec<String>,
    pub(super) awaits: bool,
}

/// How a function begins.
pub(super) struct Head {
    pub(super) start: u32,
    pub(super) suspends: bool,
    pub(super) flags: u16,
}

impl Finder<'_> {
    pub(super) fn insert(&mut self, at: u32, piece: Piece) {
        if let Some(open) = self.open.last() {
            let function = open.index;
            self.found.insertions.push(Insertion {
                at,
                function,
                piece,
            });
        }
    }

    pub(super) fn suspends(&self) -> bool {
        self.open.last().is_some_and(|open| open.suspends)
    }

    pub(super) fn leave_alone(&mut self) {
        if let Some(function) = self
            .open
            .last()
            .and_then(|open| self.found.functions.get_mut(open.index))
        {
            function.left_alone = true;
        }
    }

    /// A module: its body begins before all that stands in it, and ends behind its last statement.
    fn module(&mut self, program: &Program<'_>) {
        let Some(start) = first_place(program, self.text) else {
            return self.visit_program(program);
        };
        self.open.push(Open {
            index: TOP_LEVEL,
            suspends: true,
            ..Open::default()
        });
        self.insert(start, Piece::Start);
        self.visit_program(program);
        let end = program.body.last().map_or(start, |last| last.span().end);
        self.insert(end.max(start), Piece::End);
        self.open.pop();
        let mut own = self.found.insertions.iter();
        let suspends = own.any(|one| {
            let waits = matches!(one.piece, Piece::WaitStart | Piece::Suspend);
            one.function == TOP_LEVEL && waits
        });
        self.found.top_level = Some(TopLevel { suspends });
    }

    pub(super) fn enter(&mut self, head: &Head, body: Span, name: &names::Name) {
        let (line, column) = self.units.position(head.start);
        let anonymous = if name.anonymous {
            name_flags::ANONYMOUS
        } else {
            0
        };
        self.found.functions.push(Function {
            name: self.names.qualified(&name.text),
            owner: self.names.owner(),
            flags: head.flags | anonymous,
            line,
            end_line: self.units.position(body.end.saturating_sub(1)).0,
            column,
            start: self.units.offset(head.start),
            end: self.units.offset(body.end),
            body: body.start as usize..body.end as usize,
            suspends: head.suspends,
            outermost: self.bodies == 0,
            left_alone: self.with > 0,
        });
        self.open.push(Open {
            index: self.found.functions.len() - 1,
            suspends: head.suspends,
            ..Open::default()
        });
        self.names.push(&name.text);
    }

    pub(super) fn leave(&mut self) {
        self.names.pop();
        self.open.pop();
    }

    /// The functions that the body declares would become names of the block that is put around it: two of one name, one of
    /// a `var`'s or a parameter's name would not do there what they do in a function's body.
    pub(super) fn declare(&mut self, body: &FunctionBody<'_>, params: &FormalParameters<'_>) {
        let mut declared = HashSet::new();
        let mut twice = false;
        for statement in &body.statements {
            if let Statement::FunctionDeclaration(function) = statement {
                let name = function.id.as_ref().map(|id| id.name.to_string());
                twice |= name.is_some_and(|name| !declared.insert(name));
            }
        }
        if !declared.is_empty() {
            for pattern in params.items.iter().map(|item| &item.pattern) {
                for id in pattern.get_binding_identifiers() {
                    twice |= declared.contains(id.name.as_str());
                }
            }
        }
        if twice {
            self.leave_alone();
        }
        if let Some(open) = self.open.last_mut() {
            open.declared = declared;
        }
    }

    pub(super) fn body(&mut self, body: &FunctionBody<'_>, params: &FormalParameters<'_>) {
        self.declare(body, params);
        let start = body
            .directives
            .last()
            .map_or(body.span.start + 1, |last| last.span.end);
        self.insert(start, Piece::Start);
        self.bodies += 1;
        let with = std::mem::take(&mut self.with);
        walk::walk_function_body(self, body);
        self.with = with;
        self.bodies -= 1;
        self.insert(body.span.end - 1, Piece::End);
    }

    pub(super) fn concise(&mut self, expression: &Expression<'_>) {
        let span = expression.span();
        self.insert(span.start, Piece::ArrowStart);
        self.bodies += 1;
        self.visit_expression(expression);
        self.bodies -= 1;
        self.insert(span.end, Piece::ArrowEnd);
    }

    pub(super) fn waits(&mut self, span: Span, argument: &Expression<'_>) {
        self.insert(span.start, Piece::WaitStart);
        self.insert(argument.span().start, Piece::ArgumentStart);
        self.visit_expression(argument);
        self.insert(argument.span().end, Piece::ArgumentEnd);
        self.insert(span.end, Piece::WaitEnd);
    }

    /// Visits a value that takes its name from where it stands.
    pub(super) fn named(&mut self, name: Option<String>, value: &Expression<'_>) {
        match value.get_inner_expression() {
            Expression::ObjectExpression(_) => {
                self.names.push(name.as_deref().unwrap_or(""));
                self.visit_expression(value);
                self.names.pop();
            }
            Expression::FunctionExpression(_)
            | Expression::ArrowFunctionExpression(_)
            | Expression::ClassExpression(_) => {
                self.names.expect(name);
                self.visit_expression(value);
            }
            _ => self.visit_expression(value),
        }
    }

    pub(super) fn in_loop(&mut self, awaits: bool, walk: impl FnOnce(&mut Self)) {
        let labels = self
            .label
            .take()
            .map_or_else(Vec::new, |(_, labels)| labels);
        if let Some(open) = self.open.last_mut() {
            open.loops.push(Loop { labels, awaits });
        }
        walk(self);
        if let Some(open) = self.open.last_mut() {
            open.loops.pop();
        }
    }

    /// Whether `continue` goes on with a `for await` of this function.
    pub(super) fn continues_waiting(&self, label: Option<&str>) -> bool {
        let loops = self.open.last().map_or(&[][..], |open| &open.loops);
        let goes_to = loops
            .iter()
            .rev()
            .find(|one| label.is_none_or(|label| one.labels.iter().any(|name| name == label)));
        goes_to.is_some_and(|one| one.awaits)
    }

    pub(super) fn for_await(&mut self, it: &ForOfStatement<'_>) {
        let start = self.label.as_ref().map_or(it.span.start, |(at, _)| *at);
        self.insert(start, Piece::BlockStart);
        self.in_loop(true, |this| {
            this.visit_for_statement_left(&it.left);
            let right = it.right.span();
            this.insert(right.start, Piece::ArgumentStart);
            this.visit_expression(&it.right);
            this.insert(right.end, Piece::ArgumentEnd);
            this.awaited_body(&it.body);
        });
        self.insert(it.span.end, Piece::Resume);
        self.insert(it.span.end, Piece::BlockEnd);
    }

    pub(super) fn awaited_body(&mut self, body: &Statement<'_>) {
        let span = body.span();
        let block = matches!(body, Statement::BlockStatement(_));
        let (start, end) = if block {
            (span.start + 1, span.end - 1)
        } else {
            self.insert(span.start, Piece::BlockStart);
            (span.start, span.end)
        };
        self.insert(start, Piece::Resume);
        self.visit_statement(body);
        self.insert(end, Piece::Suspend);
        if !block {
            self.insert(span.end, Piece::BlockEnd);
        }
    }

    pub(super) fn method_start(&self, span: Span, is_static: bool) -> u32 {
        let text = self.text.get(span.start as usize..span.end as usize);
        let rest = text.and_then(|text| text.strip_prefix("static"));
        match rest.filter(|_| is_static) {
            Some(rest) => span.end - (names::skip_space(rest).len() as u32),
            None => span.start,
        }
    }

    pub(super) fn function(&mut self, it: &JsFunction<'_>, start: u32) {
        let Some(body) = &it.body else {
            return;
        };
        let own = it.id.as_ref().map(|id| id.name.as_str());
        let head = Head {
            start,
            suspends: it.r#async || it.generator,
            flags: flags(it.r#async, it.generator),
        };
        let name = self.names.take(own);
        self.enter(&head, body.span, &name);
        self.visit_formal_parameters(&it.params);
        self.body(body, &it.params);
        self.leave();
    }
}

pub(super) fn flags(is_async: bool, generator: bool) -> u16 {
    let or = |set, flag| if set { flag } else { 0 };
    or(is_async, name_flags::ASYNC) | or(generator, name_flags::GENERATOR)
}
