//! The walk: which nodes of a tree matter to [`Finder`], and in which order their pieces come.
use oxc_ast::ast::{
    Argument, ArrowFunctionBody, ArrowFunctionExpression, AssignmentExpression, AssignmentPattern,
    AwaitExpression, CallExpression, CatchClause, Class, ContinueStatement, DoWhileStatement,
    ExportDefaultDeclaration, Expression, ForInStatement, ForOfStatement, ForStatement,
    FormalParameter, Function as JsFunction, ImportExpression, LabeledStatement, MethodDefinition,
    NewExpression, ObjectProperty, PropertyDefinition, ReturnStatement, Statement, TryStatement,
    VariableDeclaration, VariableDeclarationKind, VariableDeclarator, WhileStatement,
    WithStatement, YieldExpression,
};
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeFlags;

use super::find::{Finder, Head, Open, Piece, flags};
use super::names;

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_function(&mut self, it: &JsFunction<'a>, _: ScopeFlags) {
        let start = self.names.start().unwrap_or(it.span.start);
        self.function(it, start);
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        let name = self.names.take(None);
        let head = Head {
            start: it.span.start,
            suspends: it.r#async,
            flags: flags(it.r#async, false),
        };
        let body = it.body.span();
        self.enter(&head, Span::new(body.start, it.span.end), &name);
        self.visit_formal_parameters(&it.params);
        match &it.body {
            ArrowFunctionBody::FunctionBody(body) => self.body(body, &it.params),
            concise => {
                if let Some(expression) = concise.as_expression() {
                    self.concise(expression);
                }
            }
        }
        self.leave();
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        let name = self.names.take(it.id.as_ref().map(|id| id.name.as_str()));
        self.names.push(&name.text);
        walk::walk_class(self, it);
        self.names.pop();
    }

    fn visit_method_definition(&mut self, it: &MethodDefinition<'a>) {
        for decorator in &it.decorators {
            self.visit_decorator(decorator);
        }
        self.visit_property_key(&it.key);
        let name = names::method(it);
        let start = self.method_start(it.span, it.r#static);
        self.names.expect_at(Some(name), start);
        self.visit_function(&it.value, ScopeFlags::Function);
        self.names.forget();
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        for decorator in &it.decorators {
            self.visit_decorator(decorator);
        }
        self.visit_property_key(&it.key);
        if let Some(value) = &it.value {
            self.named(names::key(&it.key, it.computed), value);
        }
    }

    fn visit_object_property(&mut self, it: &ObjectProperty<'a>) {
        self.visit_property_key(&it.key);
        match &it.value {
            Expression::FunctionExpression(function)
                if it.method || names::is_accessor(it.kind) =>
            {
                let name = names::property(it);
                self.names.expect_at(Some(name), it.span.start);
                self.visit_function(function, ScopeFlags::Function);
                self.names.forget();
            }
            value => self.named(names::key(&it.key, it.computed), value),
        }
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        for decorator in &it.decorators {
            self.visit_decorator(decorator);
        }
        self.visit_binding_pattern(&it.pattern);
        if let Some(value) = &it.initializer {
            let name = it.pattern.get_identifier_name();
            self.named(name.map(|name| name.to_string()), value);
        }
    }

    fn visit_assignment_pattern(&mut self, it: &AssignmentPattern<'a>) {
        self.visit_binding_pattern(&it.left);
        let name = it.left.get_identifier_name();
        self.named(name.map(|name| name.to_string()), &it.right);
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        self.visit_binding_pattern(&it.id);
        if let Some(init) = &it.init {
            let name = it.id.get_identifier_name().map(|name| name.to_string());
            self.named(name, init);
        }
    }

    fn visit_variable_declaration(&mut self, it: &VariableDeclaration<'a>) {
        let clash = |open: &Open| {
            it.kind == VariableDeclarationKind::Var
                && !open.declared.is_empty()
                && it
                    .declarations
                    .iter()
                    .flat_map(|one| one.id.get_binding_identifiers())
                    .any(|id| open.declared.contains(id.name.as_str()))
        };
        if self.open.last().is_some_and(clash) {
            self.leave_alone();
        }
        walk::walk_variable_declaration(self, it);
    }

    fn visit_assignment_expression(&mut self, it: &AssignmentExpression<'a>) {
        self.visit_assignment_target(&it.left);
        let target = it.left.span();
        let text = self
            .text
            .get(target.start as usize..target.end as usize)
            .unwrap_or("");
        self.named(names::target(text), &it.right);
    }

    fn visit_export_default_declaration(&mut self, it: &ExportDefaultDeclaration<'a>) {
        self.names.expect(Some("default".to_owned()));
        walk::walk_export_default_declaration(self, it);
        self.names.forget();
    }

    fn visit_call_expression(&mut self, it: &CallExpression<'a>) {
        if it.callee.is_specific_id("eval") || it.callee.is_specific_id("Function") {
            self.found.evals += 1;
        }
        self.named(None, &it.callee);
        let callee = it.callee.span();
        let text = self.text.get(callee.start as usize..callee.end as usize);
        for argument in &it.arguments {
            match argument {
                Argument::SpreadElement(spread) => self.visit_spread_element(spread),
                other => {
                    if let Some(value) = other.as_expression() {
                        self.named(names::argument(text.unwrap_or("")), value);
                    }
                }
            }
        }
    }

    fn visit_new_expression(&mut self, it: &NewExpression<'a>) {
        if it.callee.is_specific_id("Function") {
            self.found.evals += 1;
        }
        walk::walk_new_expression(self, it);
    }

    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        self.found.imports = true;
        walk::walk_import_expression(self, it);
    }

    fn visit_await_expression(&mut self, it: &AwaitExpression<'a>) {
        self.waits(it.span, &it.argument);
    }

    fn visit_yield_expression(&mut self, it: &YieldExpression<'a>) {
        if let Some(argument) = &it.argument {
            self.waits(it.span, argument);
        } else {
            self.insert(it.span.start, Piece::WaitStart);
            self.insert(it.span.end, Piece::NoArgument);
            self.insert(it.span.end, Piece::WaitEnd);
        }
    }

    fn visit_return_statement(&mut self, it: &ReturnStatement<'a>) {
        if let Some(argument) = &it.argument {
            let span = argument.span();
            self.insert(span.start, Piece::ReturnStart);
            self.visit_expression(argument);
            self.insert(span.end, Piece::ReturnEnd);
        } else {
            self.insert(it.span.start, Piece::ReturnNothing);
            self.insert(it.span.end, Piece::ReturnedNothing);
        }
    }

    fn visit_catch_clause(&mut self, it: &CatchClause<'a>) {
        if self.suspends() {
            self.insert(it.body.span.start + 1, Piece::Resume);
        }
        walk::walk_catch_clause(self, it);
    }

    fn visit_try_statement(&mut self, it: &TryStatement<'a>) {
        self.visit_block_statement(&it.block);
        if let Some(handler) = &it.handler {
            self.visit_catch_clause(handler);
        }
        if let Some(finalizer) = &it.finalizer {
            if self.suspends() {
                self.insert(finalizer.span.start + 1, Piece::Resume);
            }
            self.visit_block_statement(finalizer);
        }
    }

    fn visit_labeled_statement(&mut self, it: &LabeledStatement<'a>) {
        let (start, mut labels) = self.label.take().unwrap_or((it.span.start, Vec::new()));
        labels.push(it.label.name.to_string());
        self.label = Some((start, labels));
        self.visit_statement(&it.body);
        self.label = None;
    }

    fn visit_continue_statement(&mut self, it: &ContinueStatement<'a>) {
        let label = it.label.as_ref().map(|label| label.name.as_str());
        if self.continues_waiting(label) {
            self.insert(it.span.start, Piece::BlockStart);
            self.insert(it.span.start, Piece::Suspend);
            self.insert(it.span.end, Piece::BlockEnd);
        }
    }

    fn visit_with_statement(&mut self, it: &WithStatement<'a>) {
        self.leave_alone();
        self.visit_expression(&it.object);
        self.with += 1;
        self.visit_statement(&it.body);
        self.with -= 1;
    }

    fn visit_for_of_statement(&mut self, it: &ForOfStatement<'a>) {
        if it.r#await && !self.open.is_empty() {
            self.for_await(it);
        } else {
            self.in_loop(false, |this| walk::walk_for_of_statement(this, it));
        }
    }

    fn visit_for_in_statement(&mut self, it: &ForInStatement<'a>) {
        self.in_loop(false, |this| walk::walk_for_in_statement(this, it));
    }

    fn visit_for_statement(&mut self, it: &ForStatement<'a>) {
        self.in_loop(false, |this| walk::walk_for_statement(this, it));
    }

    fn visit_while_statement(&mut self, it: &WhileStatement<'a>) {
        self.in_loop(false, |this| walk::walk_while_statement(this, it));
    }

    fn visit_do_while_statement(&mut self, it: &DoWhileStatement<'a>) {
        self.in_loop(false, |this| walk::walk_do_while_statement(this, it));
    }

    fn visit_statement(&mut self, it: &Statement<'a>) {
        let labels_a_loop = matches!(
            it,
            Statement::LabeledStatement(_)
                | Statement::ForOfStatement(_)
                | Statement::ForInStatement(_)
                | Statement::ForStatement(_)
                | Statement::WhileStatement(_)
                | Statement::DoWhileStatement(_)
        );
        if !labels_a_loop {
            self.label = None;
        }
        walk::walk_statement(self, it);
    }
}
