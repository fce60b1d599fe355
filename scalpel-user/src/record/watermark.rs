//! Up to when everything has come: the earliest of what each feed says. Pure.

use crate::event::MonoTime;
use crate::input::Feed;

/// The last word of each feed that is expected to speak.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watermark {
    kernel: Option<MonoTime>,
    probes: Option<MonoTime>,
    told: MonoTime,
}

impl Watermark {
    /// Of a recording that asks the kernel, or does not.
    pub(super) fn of(asks_kernel: bool) -> Self {
        let mut watermark = Self::default();
        if asks_kernel {
            watermark.expect(Feed::Kernel);
        }
        watermark
    }

    /// From now on this feed has to speak before anything is certain.
    pub(super) fn expect(&mut self, feed: Feed) {
        self.of_feed(feed).get_or_insert(MonoTime(0));
    }

    fn of_feed(&mut self, feed: Feed) -> &mut Option<MonoTime> {
        match feed {
            Feed::Kernel => &mut self.kernel,
            Feed::Probes => &mut self.probes,
        }
    }

    /// A feed has drained all of its own. Tells up to when all have, if that is later than before.
    pub(super) fn drained(&mut self, feed: Feed, until: MonoTime) -> Option<MonoTime> {
        let known = self.of_feed(feed);
        *known = Some(known.unwrap_or_default().max(until));
        let all = [self.kernel, self.probes].into_iter().flatten().min()?;
        if all <= self.told {
            return None;
        }
        self.told = all;
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(asks_kernel: bool, expect_probes: bool, steps: &[(Feed, u64, Option<u64>)]) {
        let mut watermark = Watermark::of(asks_kernel);
        if expect_probes {
            watermark.expect(Feed::Probes);
        }
        for &(feed, until, expect) in steps {
            assert_eq!(
                watermark.drained(feed, MonoTime(until)),
                expect.map(MonoTime)
            );
        }
    }

    #[test]
    fn nothing_is_certain_before_every_feed_has_spoken() {
        use Feed::{Kernel, Probes};
        check(
            true,
            true,
            &[
                (Kernel, 10, None),
                (Kernel, 20, None),
                (Probes, 15, Some(15)),
                (Probes, 30, Some(20)),
                (Probes, 40, None),
                (Kernel, 35, Some(35)),
            ],
        );
        check(true, false, &[(Kernel, 10, Some(10)), (Kernel, 10, None)]);
        check(false, true, &[(Probes, 10, Some(10))]);
    }
}
