//! libipt's block decoder, made safe: blocks, events and errors of one stretch of packets.
use std::ffi::{CStr, c_int, c_void};
use std::rc::Rc;

use super::ffi::{Config, Functions, RawBlock, RawEvent, RawPacket, RawProcessor, functions};
use super::image::Image;

/// The processor that recorded a trace, by which libipt knows its errata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// As CPUID tells it.
    pub family: u16,
    /// As CPUID tells it.
    pub model: u8,
    /// As CPUID tells it.
    pub stepping: u8,
}

/// What the time stamps of a trace mean: needed for what lies between its TSC packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// CPUID.15H: EAX and EBX.
    pub crystal: [u32; 2],
    /// `MTCFreq` of the trace's control register.
    pub mtc_freq: u8,
    /// The nominal frequency in units of 100 MHz.
    pub nominal: u8,
}

/// Instructions that ran one after the other. Direct branches may stand between them, so that they need not be
/// neighbours in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The first one.
    pub ip: u64,
    /// The last one.
    pub end_ip: u64,
    /// How many, at least 1.
    pub instructions: u16,
    /// Run in a transaction that may have been undone.
    pub speculative: bool,
}

/// What happened between two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Tracing begins at this address.
    Enabled {
        /// The next instruction.
        ip: u64,
        /// Only a status at a synchronisation point: it had begun before.
        status: bool,
    },
    /// Tracing ended behind the last instruction, which went to `to` if that is told.
    Disabled {
        /// Where it went.
        to: Option<u64>,
    },
    /// Tracing was ended by an interrupt before the instruction at `at` ran.
    Interrupted {
        /// The next instruction, had there been no interrupt.
        at: u64,
    },
    /// An interrupt before `from` ran led to `to`.
    Branched {
        /// The next instruction, had there been no interrupt.
        from: u64,
        /// Where it went.
        to: Option<u64>,
    },
    /// Packets were dropped.
    Overflow,
    /// A transaction was undone.
    Aborted,
    /// Something that does not touch the flow.
    Other,
}

/// What the decoder found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// Instructions.
    Block(Block),
    /// An event, with its time stamp if it has one.
    Event(Event, Option<u64>),
    /// It cannot go on here.
    Error(PtError),
    /// The packets are used up.
    End,
}

/// Why the decoder cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtError {
    /// There is no code at the address that ran.
    NoCode,
    /// Packets and code do not fit, or packets are none.
    Broken(i32),
}

const EVENT_PENDING: c_int = 1;
const EOS: c_int = 4;
const ERROR_EOS: c_int = -7;
const ERROR_NOMAP: c_int = -13;

/// libipt's sentence for an error.
pub(super) fn told(library: &Functions, code: c_int) -> String {
    // SAFETY: the function takes any number and gives a static string, or null.
    let text = unsafe { (library.pt_errstr)(-code) };
    if text.is_null() {
        return format!("libipt: error {code}");
    }
    // SAFETY: it is a static string that ends.
    let text = unsafe { CStr::from_ptr(text) };
    format!("libipt: {}", text.to_string_lossy())
}

/// libipt's sentence for an error's number.
#[must_use]
pub fn sentence(code: i32) -> String {
    functions().map_or_else(|why| why, |library| told(library, code))
}

/// Whether libipt can be used.
///
/// # Errors
/// How to get it.
pub fn available() -> Result<(), String> {
    functions().map(|_| ())
}

/// Decodes one stretch of packets.
pub struct Decoder {
    library: &'static Functions,
    raw: *mut c_void,
    image: Option<Rc<Image>>,
    status: c_int,
    synchronised: bool,
    /// Where libipt writes a block, all of it each time.
    next: RawBlock,
    /// The error behind the block that was told last.
    failed: Option<c_int>,
    /// Blocks that are still wanted behind the last packet.
    beyond: usize,
    /// What libipt reads: it is not touched before the decoder is gone.
    _trace: Vec<u8>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder before the first synchronisation point of `trace`.
    ///
    /// # Errors
    /// libipt is not there, or has no memory.
    pub fn new(trace: Vec<u8>, processor: Option<Processor>, clock: Clock) -> Result<Self, String> {
        let library = functions()?;
        let config = config(library, &trace, processor, clock);
        // SAFETY: the configuration is whole; the packets are the decoder's own, do not move, and are only read.
        let raw = unsafe { (library.pt_blk_alloc_decoder)(&raw const config) };
        if raw.is_null() {
            return Err("libipt has no memory".to_owned());
        }
        Ok(Self {
            library,
            raw,
            image: None,
            status: 0,
            synchronised: false,
            next: RawBlock::default(),
            failed: None,
            beyond: 0,
            _trace: trace,
        })
    }

    /// Reads code from `image` from now on.
    pub fn set_image(&mut self, image: &Rc<Image>) {
        if self
            .image
            .as_ref()
            .is_some_and(|old| Rc::ptr_eq(old, image))
        {
            return;
        }
        // SAFETY: decoder and image are alive, and the image is held until another one is set.
        unsafe { (self.library.pt_blk_set_image)(self.raw, image.raw()) };
        self.image = Some(Rc::clone(image));
    }

    /// Goes to the next synchronisation point; `false` if there is none.
    pub fn synchronise(&mut self) -> bool {
        self.failed = None;
        let mut tried = None;
        loop {
            // SAFETY: the decoder is alive.
            self.status = unsafe { (self.library.pt_blk_sync_forward)(self.raw) };
            self.synchronised = self.status >= 0;
            let offset = self.offset();
            // A damaged point: the search goes on behind it, as long as it gets on.
            if self.synchronised || self.status == ERROR_EOS || offset <= tried {
                return self.synchronised;
            }
            tried = offset;
        }
    }

    /// Follows straight lines behind the last packet too, for up to so many blocks.
    pub fn follow_beyond(&mut self, blocks: usize) {
        self.beyond = blocks;
    }

    /// How many bytes of the packets are used up.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        let mut offset = 0;
        // SAFETY: decoder and number are alive.
        let status = unsafe { (self.library.pt_blk_get_offset)(self.raw, &raw mut offset) };
        (status >= 0).then_some(offset)
    }

    /// The next block or event. Behind an error, [`Self::synchronise`] goes on.
    pub fn item(&mut self) -> Item {
        if !self.synchronised {
            return Item::End;
        }
        match self.failed.take() {
            Some(ERROR_EOS) => return Item::End,
            Some(error) => return self.error(error),
            None => {}
        }
        if self.status & EVENT_PENDING != 0 {
            return self.event();
        }
        if self.status & EOS != 0 {
            match self.beyond.checked_sub(1) {
                Some(left) => self.beyond = left,
                None => return Item::End,
            }
        }
        match self.block() {
            Some(block) => Item::Block(block),
            None => match self.failed.take() {
                Some(ERROR_EOS) => Item::End,
                Some(error) => self.error(error),
                // No instruction and nothing to wait for: the next call tells more.
                None if self.status & (EVENT_PENDING | EOS) == 0 => Item::Event(Event::Other, None),
                None => self.item(),
            },
        }
    }

    /// Takes blocks as long as nothing else is next, at most `most`, and few behind a million instructions: how many
    /// instructions they are.
    pub fn blocks(&mut self, most: usize, to: &mut Vec<Block>) -> u64 {
        let mut instructions = 0;
        for _ in 0..most {
            let plain = self.synchronised && self.failed.is_none();
            if !plain || self.status & (EVENT_PENDING | EOS) != 0 || instructions > 1 << 20 {
                break;
            }
            let Some(block) = self.block() else {
                break;
            };
            instructions += u64::from(block.instructions);
            to.push(block);
        }
        instructions
    }

    /// The next block; `None` of no instruction. An error behind it is kept for the next item.
    #[inline]
    fn block(&mut self) -> Option<Block> {
        let Self {
            library, raw, next, ..
        } = self;
        // SAFETY: decoder and block are alive, and the size is the block's.
        let status = unsafe { (library.pt_blk_next)(*raw, &raw mut *next, size_of::<RawBlock>()) };
        let block = *next;
        self.failed = (status < 0).then_some(status);
        self.status = status.max(0);
        (block.instructions > 0).then_some(Block {
            ip: block.ip,
            end_ip: block.end_ip,
            instructions: block.instructions,
            speculative: block.flags & 1 != 0,
        })
    }

    fn error(&mut self, error: c_int) -> Item {
        self.synchronised = false;
        Item::Error(match error {
            ERROR_NOMAP => PtError::NoCode,
            other => PtError::Broken(other),
        })
    }

    fn event(&mut self) -> Item {
        let mut event = RawEvent::default();
        // SAFETY: decoder and event are alive, and the size is the event's.
        let status =
            unsafe { (self.library.pt_blk_event)(self.raw, &raw mut event, size_of::<RawEvent>()) };
        if status < 0 {
            return self.error(status);
        }
        self.status = status;
        let tsc = (event.flags & 4 != 0).then_some(event.tsc);
        Item::Event(meaning(&event), tsc)
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: it was allocated and is freed once.
        unsafe { (self.library.pt_blk_free_decoder)(self.raw) };
    }
}

fn config(library: &Functions, trace: &[u8], processor: Option<Processor>, clock: Clock) -> Config {
    let mut config = Config::of(trace.as_ptr().cast_mut(), trace.len());
    if let Some(processor) = processor {
        config.processor = RawProcessor {
            vendor: 1,
            family: processor.family,
            model: processor.model,
            stepping: processor.stepping,
        };
        // SAFETY: both are alive; an unknown processor leaves no errata.
        unsafe { (library.pt_cpu_errata)(&raw mut config.errata, &raw const config.processor) };
    }
    config.crystal = clock.crystal;
    config.mtc_freq = clock.mtc_freq;
    config.nom_freq = clock.nominal;
    config
}

fn meaning(event: &RawEvent) -> Event {
    let [first, second, _] = event.words;
    let told = |addr| (event.flags & 1 == 0).then_some(addr);
    match event.kind {
        0 => Event::Enabled {
            ip: first,
            status: event.flags & 2 != 0,
        },
        1 => Event::Disabled { to: told(first) },
        2 => Event::Interrupted { at: first },
        3 => Event::Branched {
            from: first,
            to: told(second),
        },
        6 => Event::Overflow,
        8 if second & 2 != 0 => Event::Aborted,
        _ => Event::Other,
    }
}

/// How many packets of each of libipt's kinds a trace holds, and how many bytes at its end are none.
///
/// # Errors
/// libipt is not there, or has no memory.
pub fn packets(trace: &[u8]) -> Result<([u64; 32], usize), String> {
    let mut counts = [0; 32];
    let used = each_packet(trace, |packet| {
        let count = usize::try_from(packet.kind).ok();
        if let Some(count) = count.and_then(|at| counts.get_mut(at)) {
            *count += 1;
        }
    })?;
    Ok((counts, trace.len().saturating_sub(used)))
}

/// The packets of a trace as libipt's own encoder writes them again.
///
/// # Errors
/// libipt is not there, has no memory, or cannot write a packet.
pub fn rewritten(trace: &[u8]) -> Result<Vec<u8>, String> {
    let library = functions()?;
    let mut written = vec![0; 2 * trace.len() + 64];
    let config = Config::of(written.as_mut_ptr(), written.len());
    // SAFETY: the configuration is whole; the buffer outlives the encoder.
    let encoder = unsafe { (library.pt_alloc_encoder)(&raw const config) };
    if encoder.is_null() {
        return Err("libipt has no memory".to_owned());
    }
    let mut status = 0;
    let read = each_packet(trace, |packet| {
        if status >= 0 {
            // SAFETY: encoder and packet are alive.
            status = unsafe { (library.pt_enc_next)(encoder, packet) };
        }
    });
    let mut len = 0;
    // SAFETY: encoder and number are alive; the encoder is freed once.
    unsafe {
        (library.pt_enc_get_offset)(encoder, &raw mut len);
        (library.pt_free_encoder)(encoder);
    }
    read?;
    if status < 0 {
        return Err(told(library, status));
    }
    written.truncate(usize::try_from(len).unwrap_or(0));
    Ok(written)
}

/// Shows each packet from the first synchronisation point on; how many bytes were used.
fn each_packet(trace: &[u8], mut see: impl FnMut(&RawPacket)) -> Result<usize, String> {
    let library = functions()?;
    let config = config(library, trace, None, Clock::default());
    // SAFETY: the configuration is whole; the packets outlive the decoder and are only read.
    let raw = unsafe { (library.pt_pkt_alloc_decoder)(&raw const config) };
    if raw.is_null() {
        return Err("libipt has no memory".to_owned());
    }
    let mut used = 0;
    // SAFETY: the decoder is alive.
    let mut status = unsafe { (library.pt_pkt_sync_forward)(raw) };
    while status >= 0 {
        let mut packet = RawPacket::default();
        // SAFETY: decoder and packet are alive, and the size is the packet's.
        status = unsafe { (library.pt_pkt_next)(raw, &raw mut packet, size_of::<RawPacket>()) };
        if status >= 0 {
            see(&packet);
            // SAFETY: decoder and number are alive.
            unsafe { (library.pt_pkt_get_offset)(raw, &raw mut used) };
        }
    }
    // SAFETY: it was allocated and is freed once.
    unsafe { (library.pt_pkt_free_decoder)(raw) };
    Ok(usize::try_from(used).unwrap_or(usize::MAX))
}
