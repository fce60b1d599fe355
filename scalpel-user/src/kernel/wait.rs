//! Off-CPU time by stacks: where threads are while they have no processor is told in the sample ring.

use std::io::Read;

use aya::programs::Iter;
use scalpel_common::kernel::{programs, settings_flags};

use super::error::KernelError;
use super::load::Kernel;
use super::tracepoint::{self, refused};

impl Kernel {
    /// Tells waits of watched threads from now on: those that take `min_ns` or longer with their stacks.
    pub fn tell_waits(&mut self, min_ns: u64) -> Result<(), KernelError> {
        let types = tracepoint::kernel_types()?;
        self.open_waits()?
            .load("task", &types)
            .map_err(|error| refused("load", programs::OPEN_WAITS, error))?;
        self.settings.change(|settings| {
            settings.wait_min_ns = min_ns;
            settings.flags |= settings_flags::WAITS;
        })
    }

    /// Tells the waits that have not ended, as if they did now, and none after them.
    pub fn end_waits(&mut self) -> Result<(), KernelError> {
        // Programs that run at this moment end within microseconds: before the iterator has begun.
        self.settings
            .change(|settings| settings.flags &= !settings_flags::WAITS)?;
        let program = self.open_waits()?;
        let refuse = |error| refused("attach", programs::OPEN_WAITS, error);
        let link = program.attach().map_err(refuse)?;
        let link = program.take_link(link).map_err(refuse)?;
        let failed = |source| KernelError::Perf {
            what: "the list of waiting threads",
            source,
        };
        let mut file = link
            .into_file()
            .map_err(|error| failed(std::io::Error::other(error)))?;
        // It writes nothing: reading it runs the program once a thread.
        file.read_to_end(&mut Vec::new()).map_err(failed)?;
        Ok(())
    }

    fn open_waits(&mut self) -> Result<&mut Iter, KernelError> {
        let missing = || KernelError::Missing {
            what: "program",
            name: programs::OPEN_WAITS.into(),
        };
        let program = self
            .ebpf
            .program_mut(programs::OPEN_WAITS)
            .ok_or_else(missing)?;
        program.try_into().map_err(|_other_kind| missing())
    }
}
