//! What functions returned, where it was asked for: exact counts of the first distinct values of each, and how many other
//! values there were.

use rustc_hash::FxHashMap;

use crate::event::FuncId;
use crate::tree::{Cell, Context, Returned, Returns};

/// Distinct values of a function that are counted. None is ever given up for another one, so that each count is exact.
const DISTINCT: usize = 1024;

/// The same of all functions together: some 40 MB.
const DISTINCT_OF_ALL: usize = 1 << 20;

/// Those of them that are kept: the most frequent ones.
const KEPT: usize = 16;

/// The tables of all functions that were asked for.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    by_func: FxHashMap<u32, Table>,
    /// Distinct values that there is room for.
    room: usize,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            by_func: FxHashMap::default(),
            room: DISTINCT_OF_ALL,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Table {
    values: FxHashMap<i64, u64>,
    other: u64,
    range: Option<(i64, i64)>,
}

impl Tables {
    /// The values of a function are wanted.
    pub(super) fn ask(&mut self, func: FuncId) {
        self.by_func.entry(func.get()).or_default();
    }

    /// A call returned.
    pub(super) fn note(&mut self, func: u32, register: u64) {
        if let Some(table) = self.by_func.get_mut(&func) {
            table.note(register.cast_signed(), &mut self.room);
        }
    }

    /// Whether nothing was asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.by_func.is_empty()
    }

    /// What is kept, sorted by function.
    pub(super) fn finish(self, cells: &[Cell], contexts: &[Context]) -> Vec<(FuncId, Returns)> {
        let tables = self.by_func.into_iter();
        let mut all: Vec<(FuncId, Returns)> = tables
            .filter_map(|(func, table)| Some((FuncId::new(func)?, table.finish())))
            .collect();
        all.sort_unstable_by_key(|&(func, _)| func);
        for cell in cells {
            let context = contexts.get(cell.context.0 as usize);
            let Some(func) = context.and_then(|context| context.func) else {
                continue;
            };
            if let Ok(at) = all.binary_search_by_key(&func, |&(func, _)| func)
                && let Some((_, returns)) = all.get_mut(at)
            {
                returns.calls = returns.calls.saturating_add(cell.metrics.calls);
            }
        }
        all
    }
}

impl Table {
    fn note(&mut self, value: i64, room: &mut usize) {
        let (least, most) = self.range.unwrap_or((value, value));
        self.range = Some((least.min(value), most.max(value)));
        let fits = self.values.len() < DISTINCT && *room > 0;
        match self.values.get_mut(&value) {
            Some(calls) => *calls += 1,
            None if fits => {
                *room -= 1;
                self.values.insert(value, 1);
            }
            None => self.other += 1,
        }
    }

    fn finish(self) -> Returns {
        let mut values: Vec<(i64, u64)> = self.values.into_iter().collect();
        values.sort_unstable_by_key(|&(value, calls)| (std::cmp::Reverse(calls), value));
        let rest = values.split_off(KEPT.min(values.len()));
        let returned = |calls| Returned { calls, exact: true };
        Returns {
            calls: 0,
            values: values
                .into_iter()
                .map(|(value, calls)| (value, returned(calls)))
                .collect(),
            other: rest.iter().fold(self.other, |sum, &(_, calls)| sum + calls),
            range: self.range,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(values: impl IntoIterator<Item = u64>) -> Returns {
        let mut tables = Tables::default();
        tables.ask(FuncId::new(1).unwrap());
        for value in values {
            tables.note(1, value);
            tables.note(2, value);
        }
        let mut all = tables.finish(&[], &[]);
        assert_eq!(all.len(), 1, "nobody asked for the other");
        all.pop().unwrap().1
    }

    #[test]
    fn the_most_frequent_values_are_kept_and_all_calls_are_counted() {
        // Value `n` comes n times.
        let returns = finished((1..=30u64).flat_map(|n| std::iter::repeat_n(n, n as usize)));
        let kept: Vec<(i64, u64)> = returns
            .values
            .iter()
            .map(|(&value, returned)| (value, returned.calls))
            .collect();
        assert_eq!(kept, (15..=30).map(|n| (n, n as u64)).collect::<Vec<_>>());
        assert_eq!(returns.other, (1..=14).sum::<u64>());
        assert_eq!(returns.seen(), (1..=30).sum::<u64>());
        assert_eq!(returns.range, Some((1, 30)));
    }

    #[test]
    fn beyond_the_bound_a_value_is_another_one_and_what_is_counted_stays_exact() {
        let first = std::iter::repeat_n(7, 3);
        let returns = finished(
            first
                .chain(1000..4000)
                .chain(1000..1001)
                .chain([u64::MAX, 7]),
        );
        assert_eq!(returns.values.len(), KEPT);
        let calls = |value: i64| returns.values.get(&value).map(|returned| returned.calls);
        assert_eq!((calls(7), calls(1000), calls(-1)), (Some(4), Some(2), None));
        assert_eq!(returns.seen(), 3 + 3000 + 1 + 2);
        assert_eq!(returns.range, Some((-1, 3999)));
    }

    #[test]
    fn functions_share_one_room_and_what_finds_none_is_counted() {
        let mut tables = Tables {
            room: 3,
            ..Tables::default()
        };
        let funcs = [1, 2].map(|number| FuncId::new(number).unwrap());
        funcs.iter().for_each(|func| tables.ask(*func));
        for (func, value) in [(1, 5), (1, 6), (2, 5), (2, 6), (1, 7), (1, 5), (2, 5)] {
            tables.note(func, value);
        }
        let all = tables.finish(&[], &[]);
        let counts = |(_, returns): &(FuncId, Returns)| {
            let values = returns.values.iter();
            let values: Vec<(i64, u64)> = values.map(|(value, one)| (*value, one.calls)).collect();
            (values, returns.other)
        };
        assert_eq!(counts(&all[0]), (vec![(5, 2), (6, 1)], 1));
        assert_eq!(counts(&all[1]), (vec![(5, 2)], 1));
    }

    #[test]
    fn of_equally_frequent_values_the_least_are_kept_however_they_came() {
        let forward = finished(0..40);
        assert_eq!(finished((0..40).rev()), forward);
        assert!(forward.values.keys().copied().eq(0..16));
    }
}
