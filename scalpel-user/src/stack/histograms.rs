//! Inclusive durations per function, growing only over the buckets in use.

use crate::event::FuncId;
use crate::tree::Histogram;

#[derive(Debug, Default)]
pub(super) struct Histograms(Vec<Counts>);

#[derive(Clone, Debug, Default)]
struct Counts {
    first: u16,
    counts: Vec<u64>,
}

impl Histograms {
    pub(super) fn add(&mut self, func: u32, duration_ns: u64) {
        let bucket = Histogram::bucket_of(duration_ns);
        if let Some(counts) = self.0.get_mut(func as usize)
            && let Some(count) = counts
                .counts
                .get_mut(usize::from(bucket.wrapping_sub(counts.first)))
        {
            *count += 1;
            return;
        }
        self.grow(func, bucket);
    }

    #[cold]
    fn grow(&mut self, func: u32, bucket: u16) {
        if self.0.len() <= func as usize {
            self.0.resize(func as usize + 1, Counts::default());
        }
        if let Some(counts) = self.0.get_mut(func as usize) {
            counts.reach(bucket);
            if let Some(count) = counts.counts.get_mut(usize::from(bucket - counts.first)) {
                *count += 1;
            }
        }
    }

    pub(super) fn finish(self) -> Vec<(FuncId, Histogram)> {
        let functions = self.0.into_iter().zip(0u32..);
        functions
            .filter_map(|(counts, func)| Some((FuncId::new(func)?, counts.finish()?)))
            .collect()
    }
}

impl Counts {
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
