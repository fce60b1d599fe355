//! What the loss counters say together.
//!
//! The kernel counts one loss several times, per processor and per function: these are views of the same events,
//! never to be added up.

use rustc_hash::FxHashMap;
use scalpel_common::kernel::LossClass;

use crate::event::FuncId;
use crate::input::Loss;

/// Loss counters by class and by function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    by_class: FxHashMap<LossClass, Views>,
    by_function: FxHashMap<(FuncId, LossClass), u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Views {
    whole: u64,
    functions: u64,
}

impl Losses {
    /// Sums up counters that stand, one a (class, processor, function).
    pub fn of(losses: &[Loss]) -> Self {
        let mut sums = Self::default();
        for loss in losses {
            let views = sums.by_class.entry(loss.class).or_default();
            let view = if loss.func.is_some() {
                &mut views.functions
            } else {
                &mut views.whole
            };
            *view = view.saturating_add(loss.count);
            if let Some(func) = loss.func {
                let count = sums.by_function.entry((func, loss.class)).or_default();
                *count = count.saturating_add(loss.count);
            }
        }
        sums
    }

    /// Losses of one class.
    pub fn class(&self, class: LossClass) -> u64 {
        self.by_class
            .get(&class)
            .map_or(0, |views| views.whole.max(views.functions))
    }

    /// Lost events. A refused return probe is an unknown end, not a lost event; nor is a switch, which is no event of a function;
    /// and a call without a cell or histogram is counted all the same, as is the time of a wait without its stack.
    pub fn events(&self) -> u64 {
        self.by_class
            .keys()
            .filter(|class| {
                !matches!(
                    class,
                    LossClass::ReturnRefused
                        | LossClass::Switch
                        | LossClass::CountCell
                        | LossClass::CountHistogram
                        | LossClass::Wait
                )
            })
            .fold(0, |sum, &class| sum.saturating_add(self.class(class)))
    }

    /// Losses of one class and function.
    pub fn function(&self, func: FuncId, class: LossClass) -> u64 {
        self.by_function.get(&(func, class)).copied().unwrap_or(0)
    }

    /// Lost entries that no function can be charged with.
    pub fn homeless_entries(&self) -> u64 {
        let of_class = |class| self.by_class.get(&class).copied().unwrap_or_default();
        let entries = of_class(LossClass::Enter);
        entries
            .whole
            .saturating_sub(entries.functions)
            .saturating_add(of_class(LossClass::ThreadState).whole)
    }
}

const WORDS: [(LossClass, &str); 11] = [
    (LossClass::Enter, "enter"),
    (LossClass::Exit, "exit"),
    (LossClass::Sample, "sample"),
    (LossClass::Control, "control"),
    (LossClass::ThreadState, "thread-state"),
    (LossClass::ReturnRefused, "return-refused"),
    (LossClass::RecursionMiss, "recursion-miss"),
    (LossClass::Switch, "switch"),
    (LossClass::CountCell, "count-cell"),
    (LossClass::CountHistogram, "count-histogram"),
    (LossClass::Wait, "wait"),
];

/// Stable word of a loss class, in files and JSON.
pub fn word(class: LossClass) -> &'static str {
    WORDS
        .iter()
        .find(|(known, _)| *known == class)
        .map_or("other", |(_, word)| word)
}

/// Reverse of [`word`].
pub fn class_of(word: &str) -> Option<LossClass> {
    WORDS
        .iter()
        .find(|(_, known)| *known == word)
        .map(|(class, _)| *class)
}

#[cfg(test)]
mod tests {
    use super::Losses;
    use crate::event::FuncId;
    use crate::input::Loss;
    use scalpel_common::kernel::LossClass::{Enter, Exit, ReturnRefused};

    fn losses() -> Losses {
        let f = FuncId::new(3);
        Losses::of(&[
            Loss {
                class: Enter,
                cpu: Some(0),
                func: None,
                count: 4,
            },
            Loss {
                class: Enter,
                cpu: Some(1),
                func: None,
                count: 6,
            },
            Loss {
                class: Enter,
                cpu: None,
                func: f,
                count: 7,
            },
            Loss {
                class: Exit,
                cpu: None,
                func: f,
                count: 2,
            },
            Loss {
                class: ReturnRefused,
                cpu: None,
                func: f,
                count: 100,
            },
        ])
    }

    #[test]
    fn counters_per_processor_and_per_function_are_two_views_of_one_loss() {
        assert_eq!(losses().class(Enter), 10);
        assert_eq!(losses().events(), 12);
    }

    #[test]
    fn what_no_function_accounts_for_is_homeless() {
        assert_eq!(losses().homeless_entries(), 3);
    }

    #[test]
    fn a_function_knows_its_own_losses() {
        let f = FuncId::new(3).unwrap();
        assert_eq!(losses().function(f, Enter), 7);
        assert_eq!(losses().function(f, ReturnRefused), 100);
    }
}
