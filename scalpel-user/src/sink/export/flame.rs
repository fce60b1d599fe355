//! Flame graphs as SVG, drawn by inferno: one recording, or what changed from one to another.

use std::collections::BTreeMap;
use std::io::{self, Write};

use inferno::flamegraph::{self, Options};

use super::{Subject, Weight, folded};

/// Writes the flame graph of `subject`.
pub fn write(subject: &Subject<'_>, weight: Weight, out: &mut dyn Write) -> io::Result<()> {
    let mut lines = Vec::new();
    folded::each(subject, weight, &mut |stack, value| {
        lines.push(format!("{stack} {value}"));
        Ok(())
    })?;
    let mut options = options(subject, weight);
    draw(&mut options, &lines, out)
}

/// Writes the flame graph of `subject`, coloured by how each stack changed since `base`: red grew, blue shrank.
pub fn write_difference(
    base: &Subject<'_>,
    subject: &Subject<'_>,
    weight: Weight,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut stacks: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    folded::each(base, weight, &mut |stack, value| {
        let before = &mut stacks.entry(stack.to_owned()).or_default().0;
        *before = before.saturating_add(value);
        Ok(())
    })?;
    folded::each(subject, weight, &mut |stack, value| {
        let after = &mut stacks.entry(stack.to_owned()).or_default().1;
        *after = after.saturating_add(value);
        Ok(())
    })?;
    let lines: Vec<String> = stacks
        .iter()
        .map(|(stack, (before, after))| format!("{stack} {before} {after}"))
        .collect();
    let mut options = options(subject, weight);
    options.title = format!("{}, since {}", options.title, base.title());
    draw(&mut options, &lines, out)
}

fn options(subject: &Subject<'_>, weight: Weight) -> Options<'static> {
    let mut options = Options::default();
    options.title = subject.title();
    let caveats = subject.caveats();
    options.subtitle = (!caveats.is_empty()).then(|| caveats.join("; "));
    // They become a comment, which two hyphens would end.
    options.notes = caveats.join("\n").replace("--", "- -");
    options.count_name = match weight.unit() {
        "nanoseconds" => "ns".into(),
        _ => weight.word().into(),
    };
    options.name_type = "Function:".into();
    // The same recording gives the same picture.
    options.deterministic = true;
    options
}

fn draw(options: &mut Options<'_>, lines: &[String], out: &mut dyn Write) -> io::Result<()> {
    if lines.is_empty() {
        return Err(io::Error::other(
            "nothing in this recording weighs anything: choose another --weight",
        ));
    }
    flamegraph::from_lines(options, lines.iter().map(String::as_str), out)
        .map_err(|error| io::Error::other(error.to_string()))
}
