//! `scope`: the instructions of a trace.

use std::io::{BufWriter, Write};

use scalpel_scope::decode::{self, Decoded, Request};
use scalpel_scope::pt::Processor;
use scalpel_scope::render::{Head, JsonWriter, Lines, Syntax, TREE_LINES, Tree, listing};
use scalpel_scope::sink::Sink;

use crate::cli::SyntaxArg;
use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::{DecodePlan, ScopePlan, TraceView};

/// Missing files that are told one by one.
const COMPLAINTS: usize = 10;

pub(super) fn run(plan: &ScopePlan, output: &Output) -> anyhow::Result<Outcome> {
    match plan {
        ScopePlan::Live(plan) => crate::scope::run(plan, output),
        ScopePlan::Decode(plan) => decode(plan, output),
    }
}

fn decode(plan: &DecodePlan, output: &Output) -> anyhow::Result<Outcome> {
    let request = request(plan);
    let syntax = match plan.syntax {
        SyntaxArg::Intel => Syntax::Intel,
        SyntaxArg::Att => Syntax::Att,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let decoded = match plan.view {
        TraceView::Json => {
            let mut writer = JsonWriter::new(&mut out, syntax);
            let decoded = with_progress(&request, &mut writer, output)?;
            writer.finish(&head(&decoded))?;
            writeln!(out)?;
            decoded
        }
        TraceView::Full => {
            let mut lines = Lines::new(syntax);
            let decoded = with_progress(&request, &mut lines, output)?;
            write!(out, "{}{}", head(&decoded).text(), listing(&lines.finish()))?;
            decoded
        }
        TraceView::Tree => {
            let mut tree = Tree::default();
            let decoded = with_progress(&request, &mut tree, output)?;
            write!(
                out,
                "{}{}",
                head(&decoded).text(),
                tree.text(TREE_LINES - 1)
            )?;
            decoded
        }
    };
    out.flush()?;
    doubts(&decoded, output);
    Ok(if decoded.summary.reasons.is_empty() {
        Outcome::Done
    } else {
        Outcome::Partial
    })
}

fn request(plan: &DecodePlan) -> Request {
    let processor = plan.processor.map(|[family, model, stepping]| Processor {
        family,
        model: u8::try_from(model).unwrap_or(0),
        stepping: u8::try_from(stepping).unwrap_or(0),
    });
    Request {
        trace: plan.trace.clone(),
        images: plan.images.clone(),
        folders: plan.symfs.clone(),
        thread: plan.tid,
        processor,
    }
}

fn with_progress(
    request: &Request,
    sink: &mut dyn Sink,
    output: &Output,
) -> anyhow::Result<Decoded> {
    let bar = output.progress("decoding", 0);
    let decoded = decode::decode(request, sink, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    Ok(decoded?)
}

fn head(decoded: &Decoded) -> Head<'_> {
    Head {
        tier: decoded.tier,
        skip_reason: None,
        instructions: decoded.summary.instructions,
        reasons: decoded.summary.reasons,
        verified: &decoded.summary.verified,
        assumed: &decoded.summary.assumed,
        started: 0,
        not_followed: &[],
    }
}

/// Why the trace is no more than it is, on stderr.
fn doubts(decoded: &Decoded, output: &Output) {
    for sentence in decoded.summary.reasons.sentences() {
        output.warn(sentence);
    }
    if let Some(addr) = decoded.summary.no_code {
        output.warn(&format!("the first address without code is {addr:#x}"));
    }
    for complaint in decoded.complaints.iter().take(COMPLAINTS) {
        output.warn(complaint);
    }
    let more = decoded.complaints.len().saturating_sub(COMPLAINTS);
    if more > 0 {
        output.warn(&format!("and {more} more files are missing"));
    }
}
