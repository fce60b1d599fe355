//! Doubts about a recording of kept calls alone.

use super::{Doubt, Facts, doubt, many};
use crate::input::Trigger;

pub(super) fn alone(facts: &Facts<'_>) -> Option<Doubt> {
    let (first, rest) = facts.triggers.split_first()?;
    let told = |trigger: &Trigger| {
        format!(
            "{} of {} of {}",
            trigger.kept,
            many(trigger.calls, "call"),
            trigger.text
        )
    };
    let all = rest.iter().fold(told(first), |text, trigger| {
        format!("{text}, {}", told(trigger))
    });
    Some(doubt(
        format!("only kept calls are in this recording: {all}"),
        "counts and times of all functions are those inside the kept calls: no totals of what ran",
        "`scalpel-ebpf replay` shows the kept calls one by one; record without --trigger for totals",
    ))
}

pub(super) fn left_out(facts: &Facts<'_>) -> Option<Doubt> {
    let over: u64 = facts.triggers.iter().map(|trigger| trigger.over).sum();
    let kept: u64 = facts.triggers.iter().map(|trigger| trigger.kept).sum();
    (over > kept || facts.left_out > 0).then(|| {
        let mut what = Vec::new();
        if over > kept {
            what.push(format!("{} not kept", many(over - kept, "slow call")));
        }
        if facts.left_out > 0 {
            what.push(format!(
                "{} left out of kept calls",
                many(facts.left_out, "event")
            ));
        }
        doubt(
            format!("{} for want of memory", what.join(", ")),
            "of calls that did very much, the shortest calls inside are left out first",
            "watch fewer functions inside them (-f, -N)",
        )
    })
}

pub(super) fn unjudged(facts: &Facts<'_>) -> Option<Doubt> {
    let sum = |of: fn(&Trigger) -> u64| facts.triggers.iter().map(of).sum::<u64>();
    let parts = [
        (sum(|t| t.endless), "whose end was not watched"),
        (sum(|t| t.suspended), "that was suspended"),
        (sum(|t| t.headless), "that nobody saw begin"),
    ];
    let told: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, which)| format!("{count} {which}"))
        .collect();
    (!told.is_empty()).then(|| {
        doubt(
            format!("calls of triggers were not judged: {}", told.join(", ")),
            "they may have been slow",
            "`scalpel-ebpf list sites` shows why an end is not watched; calls that ran when the recording began, and tasks that \
             wait for others, are not judged",
        )
    })
}
