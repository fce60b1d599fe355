//! Why a file cannot be used as an image.

/// A file that cannot be probed at all. Damage to a part of a file is not an error: what cannot be read is absent,
/// and what depends on it is refused with a reason.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No ELF header.
    #[error(
        "not an ELF file; native functions can only be probed in ELF executables and libraries"
    )]
    NotElf {
        /// What the reader said.
        #[source]
        source: object::Error,
    },
    /// An ELF file of another machine.
    #[error("an ELF file for machine number {machine}; only x86-64 (62) code can be probed here")]
    Unsupported {
        /// `e_machine`.
        machine: u16,
    },
    /// The program headers point outside of the file.
    #[error(
        "the program headers are damaged: the file is cut or is not what the process has mapped"
    )]
    Headers {
        /// What the reader said.
        #[source]
        source: object::Error,
    },
    /// There is nothing to probe.
    #[error("no executable segment: a separate debug file or data, not the program itself")]
    NoCode,
}
