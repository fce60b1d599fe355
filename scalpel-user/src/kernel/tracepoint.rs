//! Loads and attaches one BTF tracepoint program of the object.

use aya::programs::{BtfTracePoint, ProgramError};
use aya::{Btf, BtfError};
use caps::Capability;

use super::error::{Hint, KernelError};
use super::load::Kernel;

/// The kernel's types, as aya wants them to find a tracepoint. Reading them takes some 20 ms: once is enough.
pub(super) fn kernel_types() -> Result<Btf, KernelError> {
    Btf::from_sys_fs().map_err(|error: BtfError| KernelError::Object {
        reason: "its tracepoints need the kernel's BTF".into(),
        source: Some(Box::new(error)),
    })
}

/// Attaches `program` to the tracepoint `hook`. It stays until `kernel` is dropped.
pub(super) fn attach(
    kernel: &mut Kernel,
    types: &Btf,
    program: &'static str,
    hook: &str,
) -> Result<(), KernelError> {
    let missing = || KernelError::Missing {
        what: "program",
        name: program.into(),
    };
    let found = kernel.ebpf.program_mut(program).ok_or_else(missing)?;
    let found: &mut BtfTracePoint = found.try_into().map_err(|_other_kind| missing())?;
    found
        .load(hook, types)
        .map_err(|error| refused("load", program, error))?;
    found
        .attach()
        .map_err(|error| refused("attach", program, error))?;
    Ok(())
}

/// What the kernel's refusal of a program means.
pub(super) fn refused(
    action: &'static str,
    program: &'static str,
    error: ProgramError,
) -> KernelError {
    let needed = [Capability::CAP_BPF, Capability::CAP_PERFMON];
    KernelError::Aya {
        action,
        program: program.into(),
        hint: Hint::for_error(&error, &needed),
        source: Box::new(error),
    }
}
