//! CPU time at the source: `sched_switch` keeps each watched thread's time off the processor.

use aya::Btf;
use scalpel_common::kernel::programs;

use super::error::KernelError;
use super::load::Kernel;
use super::tracepoint;

/// Attaches the program. To be done before the first probe: a thread's time counts from its first event on, and a
/// switch that was not seen would count as CPU time.
pub(super) fn attach(kernel: &mut Kernel, types: &Btf) -> Result<(), KernelError> {
    tracepoint::attach(kernel, types, programs::SCHED_SWITCH, "sched_switch")
}
