//! A thread's log -> the trace of one scope: filtered by its form, each distinct instruction once, checked by the oracle.
use rustc_hash::FxHashMap;

use super::displaced;
use super::thread::{Entry, Frame, LISTED, LONGEST, Thread, mark};
use crate::trace::{CallOuts, Child, Code, Fact, Form, Link, Reasons, Step, Tier, Trace};
use crate::{oracle, probes};

/// The trace of the scope that `frame` stands for.
pub(super) fn trace(thread: &Thread, frame: &Frame, reasons: Reasons) -> Trace {
    let entries = displaced::flat(thread, frame.from);
    let (steps, code, mut facts) = steps(&entries, frame.form);
    let region = matches!(frame.form, Form::Region { .. });
    let address = |step: &Step| code.get(usize::try_from(step.code).ok()?).map(|c| c.addr);
    let (begin, end) = if region {
        let first = steps.first().and_then(address);
        (first, steps.last().map(|step| step.next))
    } else {
        (frame.begin, frame.begin.map(|_| thread.end))
    };
    if thread.flag_visible {
        facts.assumed.push(Fact::TrapFlagVisible);
    }
    let call_outs = if region {
        thread.callout.told()
    } else {
        CallOuts::default()
    };
    if call_outs.ioctls > 0 {
        facts.assumed.push(Fact::EnteredAtEntries);
    }
    let started = thread.started - frame.started;
    if started > 0 || call_outs.ioctls > 0 || reasons.contains(Reasons::FORK) {
        facts.assumed.push(Fact::ChildrenNotFollowed);
    }
    if thread.signals > frame.signals {
        facts.assumed.push(Fact::SignalPending);
    }
    if logged(&entries, frame.form) != frame.seal {
        facts.reasons = facts.reasons.with(Reasons::COUNT);
    }
    let mut trace = Trace {
        call_outs,
        form: frame.form,
        tier: Tier::SingleStep,
        skip_reason: None,
        begin,
        end,
        steps,
        code,
        counted: if region {
            frame.shown
        } else {
            thread.counted - frame.counted
        },
        seal: None,
        traps: thread.traps - frame.traps,
        started,
        not_followed: children(thread, frame),
        reasons: reasons.with(facts.reasons),
        verified: Vec::new(),
        assumed: facts.assumed,
    };
    trace.seal = Some(oracle::sealed(&trace));
    trace.reasons = trace.reasons.with(judge(&trace));
    if !facts.unforetold && !trace.reasons.contains(Reasons::UNEXPLAINED) {
        trace.verified.push(Fact::SuccessorsForetold);
    }
    let doubted = [Reasons::CALL_OUT, Reasons::LEFT]
        .iter()
        .any(|doubt| trace.reasons.contains(*doubt));
    if call_outs.calls > 0 && !doubted {
        let returned = thread.callout.all_returned();
        trace.verified.push(if returned {
            Fact::CallOutsReturned
        } else {
            Fact::Unwound
        });
    }
    trace
}

/// The sum over what the log holds of a form.
fn logged(entries: &[Entry], form: Form) -> u64 {
    let shown = entries.iter().filter(|entry| form.shows(entry.addr));
    shown.fold(0, |sum, entry| oracle::seal(sum, entry.addr, seen(entry)))
}

/// Those that are listed, of those that were started since the open.
fn children(thread: &Thread, frame: &Frame) -> Vec<Child> {
    let until = usize::try_from(thread.started).map_or(LISTED, |all| all.min(LISTED));
    let from = usize::try_from(frame.started).map_or(until, |from| from.min(until));
    thread
        .children
        .get(from..until)
        .unwrap_or_default()
        .to_vec()
}

/// What the oracle says; the end of a trace that was cut short on purpose is no news.
fn judge(trace: &Trace) -> Reasons {
    let found = oracle::check(trace);
    if trace.reasons.is_empty() {
        found
    } else {
        trace.reasons
    }
}

struct Facts {
    assumed: Vec<Fact>,
    reasons: Reasons,
    unforetold: bool,
}

fn steps(entries: &[Entry], form: Form) -> (Vec<Step>, Vec<Code>, Facts) {
    let mut known: FxHashMap<(u64, [u8; LONGEST]), u32> = FxHashMap::default();
    let (mut steps, mut code): (Vec<Step>, Vec<Code>) = (Vec::new(), Vec::new());
    let mut facts = Facts {
        assumed: vec![Fact::SignalHandlersExcluded, Fact::CodeNotRacing],
        reasons: Reasons::NONE,
        unforetold: false,
    };
    let (mut inserted, mut uprobe, mut away, mut copied) = (false, false, false, false);
    let mut moved = false;
    for entry in entries {
        facts.unforetold |= entry.marks & mark::UNFORETOLD != 0;
        copied |= entry.marks & mark::COPIED != 0;
        inserted |= entry.marks & mark::INSERTED != 0;
        away |= entry.marks & mark::AWAY != 0;
        moved |= entry.marks & mark::MOVED != 0;
        if !form.shows(entry.addr) {
            away = true;
            continue;
        }
        let bytes = bytes(entry, &mut uprobe);
        let mut key = [0; LONGEST];
        for (to, from) in key.iter_mut().zip(&bytes) {
            *to = *from;
        }
        let index = *known.entry((entry.addr, key)).or_insert_with(|| {
            code.push(Code {
                addr: entry.addr,
                bytes,
            });
            u32::try_from(code.len() - 1).unwrap_or(u32::MAX)
        });
        let link = match () {
            () if steps.is_empty() => Link::Flow,
            () if moved => Link::Interrupt,
            () if std::mem::take(&mut away) => Link::Back,
            () if entry.marks & mark::OWN != 0 => Link::Own,
            () => Link::Flow,
        };
        (away, moved) = (false, false);
        steps.push(Step {
            code: index,
            count: entry.count,
            next: entry.next,
            link,
        });
    }
    if copied {
        facts.assumed.push(Fact::RanFromCopies);
    }
    if inserted {
        facts.assumed.push(Fact::StepsInserted);
    }
    if uprobe {
        facts.assumed.push(Fact::UprobeSeen);
        if facts.unforetold {
            facts.reasons = facts.reasons.with(Reasons::UPROBE);
        }
    }
    (steps, code, facts)
}

/// The bytes of an instruction, as they were in memory.
fn seen(entry: &Entry) -> &[u8] {
    entry
        .bytes
        .get(..usize::from(entry.len))
        .unwrap_or_default()
}

/// The bytes of an instruction; those of the file where a uprobe's breakpoint stood in their place.
fn bytes(entry: &Entry, uprobe: &mut bool) -> Vec<u8> {
    let seen = seen(entry);
    if seen == [0xcc]
        && entry.marks & mark::HIT == 0
        && let Some(bytes) = probes::instruction_in_file(entry.addr)
    {
        *uprobe = true;
        return bytes;
    }
    seen.to_vec()
}
