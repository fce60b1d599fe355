//! The frames between a probe and the collector on the Unix socket.
//!
//! A frame is a [`FrameHead`] and `len` bytes of payload. A *text* is its length in bytes (u16), then UTF-8. Numbers are
//! little-endian, nothing is padded. A probe that can map memory sends HELLO, reads WELCOME with the segment's descriptor
//! (`SCM_RIGHTS`), and closes the socket. One that cannot keeps the socket (*socket mode*) and sends the rest.

/// Version of everything in this file.
pub const WIRE_VERSION: u8 = 1;

/// Longest payload of a frame in bytes; a longer one ends the connection.
pub const MAX_PAYLOAD: u32 = 1 << 20;

/// Seconds that either side of socket mode waits for a frame to go on before it gives the connection up.
pub const TIMEOUT_SECONDS: u64 = 300;

/// Environment variable with the path of the collector's socket.
pub const SOCKET_VARIABLE: &str = "SCALPEL_SOCKET";

/// Head of every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FrameHead {
    /// Bytes of payload.
    pub len: u32,
    /// A [`frame`] number.
    pub kind: u8,
    /// [`WIRE_VERSION`].
    pub version: u8,
    /// 0.
    pub reserved: u16,
}

const _: () = assert!(size_of::<FrameHead>() == 8);

/// What a frame is. Numbers are appended and never reused.
pub mod frame {
    /// Probe: u16 event version, u8 source, u8 [`transport`](super::transport), u32 pid and u32 tid in its own
    /// namespace, text runtime (`CPython 3.12.1`).
    pub const HELLO: u8 = 1;
    /// Collector: u16 event version, u8 clock, u8 modes, 16 bytes recording, u64 size of the segment (0 in socket mode),
    /// u16 n, then n options, each text name, text value.
    pub const WELCOME: u8 = 2;
    /// Collector, in place of WELCOME: text why. The probe does nothing more.
    pub const REFUSED: u8 = 3;
    /// Probe: u32 n, then n name records as in the name area, unpadded.
    pub const INTERN: u8 = 4;
    /// Collector: u32 n, then n times u32 process-local id, u32 global id (never 0; 0 = refused).
    pub const INTERN_ACK: u8 = 5;
    /// Probe: u32 lane, then events to the end of the payload; `func` is the process-local id, `time` in `CLOCK_MONOTONIC`.
    pub const EVENTS: u8 = 6;
    /// Probe: u16 n, then n texts.
    pub const BLIND_SPOTS: u8 = 7;
    /// Probe: u32 n, then n times u32 process-local id, u64 calls so far, u64 lost calls so far.
    pub const COUNTS: u8 = 8;
    /// Probe: u64 start, u64 end, u64 events lost, text why.
    pub const GAP: u8 = 9;
    /// Probe: text why. The last frame.
    pub const BYE: u8 = 10;
    /// Probe: u8 kind of [`note_kind`](crate::segment::note_kind), u64 value, text.
    pub const NOTE: u8 = 11;
    /// Collector: u32 n, then n u32 process-local ids: of these functions nothing more is to be sent.
    pub const OFF: u8 = 12;
}

/// What a probe wants to be answered with.
pub mod transport {
    /// A segment.
    pub const SEGMENT: u8 = 1;
    /// Frames on this socket.
    pub const SOCKET: u8 = 2;
}
