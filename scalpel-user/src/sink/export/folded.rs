//! Folded stacks: `outermost;...;innermost N`, a line a context that weighs something.
//!
//! A name's `;` becomes `:`, for nothing can escape it; a control character was replaced before.

use std::io::{self, Write};

use super::labels::NO_STACK;
use super::{Subject, Weight};

/// Writes the stacks of `subject`, weighed by `weight`.
pub fn write(subject: &Subject<'_>, weight: Weight, out: &mut dyn Write) -> io::Result<()> {
    each(subject, weight, &mut |stack, value| {
        writeln!(out, "{stack} {value}")
    })
}

/// Gives every stack that weighs something.
pub(super) fn each(
    subject: &Subject<'_>,
    weight: Weight,
    line: &mut dyn FnMut(&str, u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut text = String::new();
    // Where the label of each level begins: a path shares all but its end with the one before.
    let mut ends: Vec<usize> = Vec::new();
    subject.visit(|path, m| {
        let value = weight.of(m);
        let Some((&last, above)) = path.split_last() else {
            return if value > 0 {
                line(NO_STACK, value)
            } else {
                Ok(())
            };
        };
        ends.truncate(above.len());
        text.truncate(ends.last().copied().unwrap_or(0));
        if !text.is_empty() {
            text.push(';');
        }
        text.push_str(&subject.label(last).replace(';', ":"));
        ends.push(text.len());
        if value > 0 {
            line(&text, value)
        } else {
            Ok(())
        }
    })
}
