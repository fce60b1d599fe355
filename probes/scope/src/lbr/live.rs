//! Branch records of one thread, sampled: a survey of what it runs, never its exact trace.
use std::rc::Rc;

use super::{Branch, Runs};
use crate::perf::{self, Channel, Door, Wish};
use crate::pt::{Image, Space, live};
use crate::sink::Kept;
use crate::trace::{Form, Reasons, Tier, Trace};

/// Samples are of one in so many cycles.
const PERIOD: u64 = 10_007;
/// A hardware event, the cycles.
const HARDWARE: u32 = 0;
const CYCLES: u64 = 0;
/// Who, and the stack of branches.
const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 11;
/// User code, any branch.
const BRANCHES: u64 = 1 | 1 << 3;
const SAMPLE: u32 = 9;
const LOST: u32 = 2;

/// What a processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// AMD's `LbrExtV2`: 16 branches, frozen when the sample is taken; from Zen 4 on.
    AmdV2,
    /// Intel's last branch records.
    Intel,
}

impl Flavour {
    /// What `/proc/cpuinfo` tells of it.
    ///
    /// # Errors
    /// The gate that is closed.
    pub fn of(cpuinfo: &str) -> Result<Self, String> {
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim())
        };
        let flags = field("flags").unwrap_or_default();
        let has = |name| flags.split_whitespace().any(|flag| flag == name);
        if has("amd_lbr_v2") {
            Ok(Self::AmdV2)
        } else if has("brs") {
            Err(
                "amd-lbr: Zen 3 branch sampling leaves gaps, so that no scope of it is exact"
                    .to_owned(),
            )
        } else if field("vendor_id") == Some("GenuineIntel") && has("arch_lbr") {
            Ok(Self::Intel)
        } else {
            Err("amd-lbr: no `amd_lbr_v2` in this processor's flags".to_owned())
        }
    }
}

/// A survey that goes on.
#[derive(Debug)]
pub struct Survey(Box<dyn Channel>);

impl Survey {
    /// The event that is asked for.
    #[must_use]
    pub fn wish() -> Wish {
        Wish {
            kind: HARDWARE,
            config: CYCLES,
            period: PERIOD,
            sample_type: SAMPLE_TYPE,
            branch_sample_type: BRANCHES,
            ..Wish::default()
        }
    }

    /// Opens the event of this thread and begins.
    ///
    /// # Errors
    /// The gate that is closed.
    pub fn start(door: &dyn Door) -> Result<Self, String> {
        let told = |refusal: perf::Refusal| refusal.sentence("amd-lbr");
        let mut channel = door.open(&Self::wish()).map_err(told)?;
        channel.enable().map_err(told)?;
        Ok(Self(channel))
    }

    /// The same of another thread.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(crate) fn start_on(door: &dyn Door, thread: u32) -> Result<Self, perf::Refusal> {
        let mut channel = door.open(&Wish {
            thread,
            ..Self::wish()
        })?;
        channel.enable()?;
        Ok(Self(channel))
    }

    /// Ends it: the runs of its samples.
    pub fn stop(&mut self, form: Form) -> Trace {
        let records = self.take();
        match live::own_code() {
            Ok(image) => runs(&records, image, form),
            Err(_) => Trace::skipped(
                form,
                "amd-lbr: the process's code cannot be read".to_owned(),
            ),
        }
    }

    /// Ends it: the records as they are.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.0.disable();
        self.0.take().records
    }
}

/// The runs of the samples among records, in this code.
pub(crate) fn runs(records: &[u8], image: Image, form: Form) -> Trace {
    let image = Rc::new(image);
    let mut names = live::NoNames;
    let mut kept = Kept::default();
    let mut runs = Runs::new(&mut kept);
    for (kind, body) in perf::records(records) {
        match kind {
            SAMPLE => {
                let mut space = Space {
                    id: 0,
                    image: &image,
                    names: &mut names,
                };
                runs.sample(0, &mut space, &stack(body));
            }
            LOST => runs.doubt(Reasons::BUFFER_FULL),
            _ => {}
        }
    }
    let summary = runs.finish();
    let mut trace = Trace::skipped(form, "");
    trace.skip_reason = None;
    trace.tier = Tier::Lbr;
    trace.counted = summary.instructions;
    trace.reasons = summary.reasons;
    trace.verified = summary.verified;
    trace.assumed = summary.assumed;
    (trace.steps, trace.code) = (kept.steps, kept.code);
    ended(trace)
}

pub(crate) fn ended(mut trace: Trace) -> Trace {
    trace.begin = trace
        .steps
        .first()
        .and_then(|step| trace.code_of(step))
        .map(|code| code.addr);
    trace.end = trace.steps.last().map(|step| step.next);
    trace
}

/// The branches of a sample: who, how many, and they.
fn stack(body: &[u8]) -> Vec<Branch> {
    let count = perf::word(body, 1).unwrap_or(0);
    let branch = |at: usize| {
        Some(Branch {
            from: perf::word(body, 2 + 3 * at)?,
            to: perf::word(body, 3 + 3 * at)?,
            flags: perf::word(body, 4 + 3 * at)?,
        })
    };
    (0..usize::try_from(count).unwrap_or(usize::MAX))
        .map_while(branch)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_processor_has_is_told_by_its_flags() {
        assert_eq!(Flavour::of("flags\t: fpu amd_lbr_v2\n"), Ok(Flavour::AmdV2));
        assert!(
            Flavour::of("flags\t: fpu brs\n")
                .unwrap_err()
                .contains("gaps")
        );
        assert!(
            Flavour::of("flags\t: fpu\n")
                .unwrap_err()
                .contains("no `amd_lbr_v2`")
        );
        let intel = "vendor_id\t: GenuineIntel\nflags\t: fpu arch_lbr\n";
        assert_eq!(Flavour::of(intel), Ok(Flavour::Intel));
    }

    #[test]
    fn a_cut_sample_gives_what_it_has() {
        let mut body = vec![0; 8];
        body.extend(3_u64.to_le_bytes());
        body.extend([7; 30]);
        assert_eq!(stack(&body).len(), 1);
        assert!(stack(&body[..8]).is_empty());
    }
}
