//! speedscope's JSON, sampled: a profile a value that was measured, each context a sample of its self value.

use std::io::{self, Write};

use serde_json::json;

use super::{Subject, Weight};
use crate::function::FunctionInfo;
use crate::tree::ContextId;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Writes `subject`; the profile of `shown` is the one that opens.
pub fn write(subject: &Subject<'_>, shown: Weight, out: &mut dyn Write) -> io::Result<()> {
    let weights = subject.weights();
    let active = weights.iter().position(|weight| *weight == shown);
    head(&name(subject), active.unwrap_or(0), out)?;
    for (at, weight) in weights.iter().enumerate() {
        if at > 0 {
            write!(out, ",")?;
        }
        profile(subject, *weight, out)?;
    }
    write!(out, "],\"shared\":{{\"frames\":[")?;
    frames(subject, out)?;
    writeln!(out, "]}}}}")
}

/// The document up to its list of profiles. `shared`, which its readers look up by name, follows them.
pub(super) fn head(name: &str, active: usize, out: &mut dyn Write) -> io::Result<()> {
    let exporter = concat!("scalpel-ebpf ", env!("CARGO_PKG_VERSION"));
    let name = json!(name);
    write!(
        out,
        "{{\"$schema\":\"{SCHEMA}\",\"exporter\":\"{exporter}\",\"name\":{name},\"activeProfileIndex\":{active},\"profiles\":["
    )
}

/// One frame of the shared list.
pub(super) fn frame(
    name: &str,
    info: Option<&FunctionInfo>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut frame = json!({ "name": name });
    if let Some(info) = info
        && let (Some(file), Some(fields)) = (&info.file, frame.as_object_mut())
    {
        fields.insert("file".into(), json!(file));
        if let Some(line) = info.line {
            fields.insert("line".into(), json!(line));
        }
    }
    serde_json::to_writer(out, &frame)?;
    Ok(())
}

fn name(subject: &Subject<'_>) -> String {
    let caveats = subject.caveats();
    if caveats.is_empty() {
        subject.title()
    } else {
        format!("{}: {}", subject.title(), caveats.join("; "))
    }
}

fn profile(subject: &Subject<'_>, weight: Weight, out: &mut dyn Write) -> io::Result<()> {
    let unit = match weight.unit() {
        "nanoseconds" => "nanoseconds",
        _ => "none",
    };
    let sum = subject
        .own
        .iter()
        .fold(0u64, |sum, m| sum.saturating_add(weight.of(m)));
    write!(
        out,
        "{{\"type\":\"sampled\",\"name\":\"{}\",\"unit\":\"{unit}\",\"startValue\":0,\"endValue\":{sum},\"samples\":[",
        weight.title()
    )?;
    each(subject, weight, out, |out, path, _| {
        let numbers: Vec<u32> = path.iter().map(|id| number(subject, *id)).collect();
        serde_json::to_writer(out, &numbers)?;
        Ok(())
    })?;
    write!(out, "],\"weights\":[")?;
    each(subject, weight, out, |out, _, value| write!(out, "{value}"))?;
    write!(out, "]}}")
}

/// Writes an element a context that weighs something.
fn each(
    subject: &Subject<'_>,
    weight: Weight,
    out: &mut dyn Write,
    mut element: impl FnMut(&mut dyn Write, &[ContextId], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut first = true;
    subject.visit(|path, m| {
        let value = weight.of(m);
        if value == 0 {
            return Ok(());
        }
        if !std::mem::take(&mut first) {
            write!(out, ",")?;
        }
        element(out, path, value)
    })
}

/// Frame 0 stands for folded contexts; the others have the numbers of their functions.
fn number(subject: &Subject<'_>, id: ContextId) -> u32 {
    let context = subject.genome.tree.contexts.get(id.0 as usize);
    context
        .and_then(|context| context.func)
        .map_or(0, crate::event::FuncId::get)
}

fn frames(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    frame(subject.labels.get(None), None, out)?;
    for (id, info) in subject.genome.functions.iter() {
        write!(out, ",")?;
        frame(subject.labels.get(Some(id)), Some(info), out)?;
    }
    Ok(())
}
