//! Intel Processor Trace: packets and code become the instructions that ran. libipt follows the packets; this room gives
//! it the code, puts its blocks together to flows, and names what is missing. It knows nothing of files or of perf.
#![expect(
    unsafe_code,
    reason = "libipt is a C library, loaded when it is needed"
)]
mod blocks;
mod decoder;
pub mod encode;
mod ffi;
mod flows;
mod image;
pub mod live;
pub(crate) mod psb;
mod stream;

pub use decoder::{
    Block, Clock, Decoder, Event, Item, Processor, PtError, available, packets, rewritten, sentence,
};
pub use flows::{Flows, Space, Summary};
pub use image::{CodeBytes, Image};
pub use stream::{Guide, Single, State, Stream};
