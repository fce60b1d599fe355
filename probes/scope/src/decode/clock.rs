//! Perf's clock and the processor's: one is computed from the other by the numbers that the kernel gives.

/// How time stamps become perf's nanoseconds: `zero + (tsc * multiplier >> shift)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conversion {
    pub(super) shift: u64,
    pub(super) multiplier: u64,
    pub(super) zero: u64,
}

impl Conversion {
    /// The time stamp of a time in nanoseconds.
    pub(super) fn tsc(self, time: u64) -> u64 {
        let shift = u32::try_from(self.shift.min(63)).unwrap_or(63);
        if self.multiplier == 0 {
            return 0;
        }
        let time = u128::from(time.wrapping_sub(self.zero));
        u64::try_from((time << shift) / u128::from(self.multiplier)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_becomes_its_time_stamp_again() {
        let conversion = Conversion {
            shift: 31,
            multiplier: 1_076_264_588,
            zero: 18_433_473_881_008_870_804,
        };
        let tsc = 40_450_075_537_830_888_u64;
        let time = conversion.zero.wrapping_add(
            ((u128::from(tsc) * u128::from(conversion.multiplier)) >> conversion.shift) as u64,
        );
        assert!(conversion.tsc(time).abs_diff(tsc) <= 4);
    }

    #[test]
    fn absurd_numbers_are_no_trouble() {
        for shift in [0, 64, u64::MAX] {
            let conversion = Conversion {
                shift,
                multiplier: 0,
                zero: 0,
            };
            assert_eq!(conversion.tsc(7), 0);
            let conversion = Conversion {
                shift,
                multiplier: 1,
                zero: u64::MAX,
            };
            conversion.tsc(0);
        }
    }
}
