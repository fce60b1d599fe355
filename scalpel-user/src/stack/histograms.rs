//! Inclusive durations per function, growing only over the buckets in use.

use rustc_hash::FxHashMap;

use crate::event::FuncId;
use crate::tree::Histogram;

/// Ids from here on are looked up in a table: one absurd id must not cost memory for all those below it.
const FAR: u32 = 1 << 18;

#[derive(Clone, Debug, Default)]
pub(super) struct Histograms {
    near: Vec<Counts>,
    far: FxHashMap<u32, Counts>,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    first: u16,
    counts: Vec<u64>,
}

impl Histograms {
    pub(super) fn add(&mut self, func: u32, duration_ns: u64) {
        let bucket = Histogram::bucket_of(duration_ns);
        if let Some(counts) = self.near.get_mut(func as usize)
            && let Some(count) = counts
                .counts
                .get_mut(usize::from(bucket.wrapping_sub(counts.first)))
        {
            *count += 1;
            return;
        }
        self.grow(func, bucket, 1);
    }

    /// So many durations of one bucket.
    pub(super) fn add_many(&mut self, func: u32, bucket: u16, count: u64) {
        if usize::from(bucket) < scalpel_common::count::BUCKETS {
            self.grow(func, bucket, count);
        }
    }

    #[cold]
    fn grow(&mut self, func: u32, bucket: u16, count: u64) {
        if func >= FAR {
            return self.far.entry(func).or_default().count(bucket, count);
        }
        if self.near.len() <= func as usize {
            self.near.resize(func as usize + 1, Counts::default());
        }
        if let Some(counts) = self.near.get_mut(func as usize) {
            counts.count(bucket, count);
        }
    }

    pub(super) fn finish(self) -> Vec<(FuncId, Histogram)> {
        let mut far: Vec<_> = self.far.into_iter().collect();
        far.sort_unstable_by_key(|&(func, _)| func);
        let functions = (0u32..).zip(self.near).chain(far);
        functions
            .filter_map(|(func, counts)| Some((FuncId::new(func)?, counts.finish()?)))
            .collect()
    }
}

impl Counts {
    fn count(&mut self, bucket: u16, more: u64) {
        self.reach(bucket);
        if let Some(count) = self.counts.get_mut(usize::from(bucket - self.first)) {
            *count = count.saturating_add(more);
        }
    }

    fn reach(&mut self, bucket: u16) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let more = usize::from(self.first - bucket);
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = bucket;
        }
        let needed = usize::from(bucket - self.first) + 1;
        if self.counts.len() < needed {
            self.counts.resize(needed, 0);
        }
    }

    fn finish(self) -> Option<Histogram> {
        let buckets: Vec<(u16, u64)> = (self.first..)
            .zip(self.counts)
            .filter(|&(_, count)| count > 0)
            .collect();
        (!buckets.is_empty()).then_some(Histogram { buckets })
    }
}
