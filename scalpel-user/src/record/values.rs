//! What functions return: it may be a secret, and goes no further than here unless somebody asked for it by name.

use anyhow::Result;
use rustc_hash::FxHashSet;

use super::ends::Ends;
use super::probes::Probes;
use crate::event::{Event, FuncId, Kind, Source};
use crate::function::{ExitStrategy, FunctionInfo, FunctionTable};
use crate::image::Pattern;
use crate::input::Input;
use crate::plan::RecordPlan;

/// Whose values are kept.
#[derive(Default)]
pub(super) struct Values {
    patterns: Vec<Pattern>,
    asked: FxHashSet<u32>,
}

impl Values {
    /// Those that a plan names.
    pub(super) fn of(plan: &RecordPlan) -> Result<Self> {
        Ok(Self {
            patterns: compiled(plan).collect::<Result<_>>()?,
            asked: FxHashSet::default(),
        })
    }

    /// Whether an input defines a function whose values are kept.
    pub(super) fn asks(&mut self, input: &Input) -> Option<FuncId> {
        let Input::Function(func, info) = input else {
            return None;
        };
        let meant = is_probed(info)
            && self
                .patterns
                .iter()
                .any(|pattern| pattern.matches_recorded(info));
        meant.then(|| {
            self.asked.insert(func.get());
            *func
        })
    }

    /// Takes return values out of events, before anything is written.
    pub(super) fn forget(&self, events: &mut [Event]) {
        let is_asked = |event: &Event| {
            event.source == Source::Uprobe as u8 && self.asked.contains(&event.func)
        };
        let exits = events.iter_mut().filter(|event| event.kind == EXIT);
        exits
            .filter(|event| !is_asked(event))
            .for_each(|event| event.value = 0);
    }
}

/// Nobody sees what a function returns that only runs in samples, or in a language's runtime.
const fn is_probed(info: &FunctionInfo) -> bool {
    !matches!(info.exit, ExitStrategy::None | ExitStrategy::Probe)
}

fn compiled(plan: &RecordPlan) -> impl Iterator<Item = Result<Pattern>> {
    let texts = plan.returns.iter().map(ToString::to_string);
    texts.map(|text| Ok(Pattern::parse(&text)?))
}

/// Refuses a pattern if nothing that it names can be seen to return; says of which functions it cannot.
pub(super) fn check(
    plan: &RecordPlan,
    probes: &Probes,
    functions: &FunctionTable,
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for (text, pattern) in plan.returns.iter().zip(compiled(plan)) {
        let ends = Ends {
            option: format!("--return-values {text}"),
            pattern: pattern?,
            unseen: "what a call returns",
            leaves_out: "keeps nothing of",
            exits: plan.measurement.exits,
            may_come: false,
        };
        notes.extend(ends.check(probes, functions)?);
    }
    Ok(notes)
}

const EXIT: u8 = Kind::Exit as u8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::genome::tests::function;

    const SECRET: u64 = 0x5ec2e7;

    /// One of each kind, of a kernel probe and of a language's.
    fn events(func: FuncId) -> Vec<Event> {
        let of = |source: Source| {
            Kind::ALL.iter().map(move |&kind| Event {
                kind: kind as u8,
                source: source as u8,
                func: func.get(),
                value: SECRET,
                ..Event::default()
            })
        };
        let sources = [Source::Uprobe, Source::Python];
        sources.into_iter().flat_map(of).collect()
    }

    fn define(values: &mut Values, number: u32, name: &str, exit: ExitStrategy) -> FuncId {
        let func = FuncId::new(number).unwrap();
        let asked = values.asks(&Input::Function(func, function(name, exit).into()));
        assert!(asked.is_none_or(|asked| asked == func));
        func
    }

    #[test]
    fn no_return_value_stays_that_nobody_asked_for_and_nothing_else_is_touched() {
        let mut values = Values {
            patterns: vec![Pattern::parse("open_*").unwrap()],
            ..Values::default()
        };
        let asked = define(&mut values, 1, "open_door", ExitStrategy::Return);
        let other = define(&mut values, 2, "close_door", ExitStrategy::Return);
        let sampled = define(&mut values, 3, "open_window", ExitStrategy::None);
        let told = define(&mut values, 4, "open_gate", ExitStrategy::Probe);
        for func in [asked, other, sampled, told] {
            let mut events = events(func);
            values.forget(&mut events);
            for event in events {
                let keeps = func == asked && event.source == Source::Uprobe as u8;
                let expect = if event.kind == EXIT && !keeps {
                    0
                } else {
                    SECRET
                };
                assert_eq!(event.value, expect, "{event:?}");
            }
        }
    }
}
