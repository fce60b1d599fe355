//! The BPF object that is built into the collector.

/// The object: `$SCALPEL_BPF_OBJECT` of the build, else the committed one.
pub const OBJECT: &[u8] = aya::include_bytes_aligned!(env!("SCALPEL_BPF_OBJECT_FILE"));
