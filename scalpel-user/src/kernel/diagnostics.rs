//! What the programs say about themselves, for `-vv`: aya-log's records, handed on as lines.

use std::fmt;

use aya_log::EbpfLogger;
use log::{Level, Log, Metadata, Record};

use super::error::KernelError;
use super::load::Kernel;

/// The global by which aya-log's macros know their level.
pub(super) const LEVEL: &str = "AYA_LOG_LEVEL";

/// Its value: a constant for the verifier, which drops what is not to be said.
pub(super) const fn level(speak: bool) -> u8 {
    if speak { Level::Debug as u8 } else { 0 }
}

/// Takes one line.
type Sink = Box<dyn Fn(&str) + Send + Sync>;

/// The lines that were not read yet.
pub struct Diagnostics(EbpfLogger<Lines>);

struct Lines(Sink);

impl Kernel {
    /// The programs' own lines, for a kernel that was loaded with `diagnostics`.
    pub fn diagnostics(
        &mut self,
        sink: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Diagnostics, KernelError> {
        let logger = EbpfLogger::init_with_logger(&mut self.ebpf, Lines(Box::new(sink)));
        let logger = logger.map_err(|error| KernelError::Map {
            name: "AYA_LOGS",
            source: Box::new(error),
        })?;
        Ok(Diagnostics(logger))
    }
}

impl Diagnostics {
    /// Hands on what was said since the last call.
    pub fn flush(&mut self) {
        self.0.flush();
    }
}

impl fmt::Debug for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Diagnostics")
    }
}

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        self.0(&record.args().to_string());
    }

    fn flush(&self) {}
}
