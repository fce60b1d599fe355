//! A stream of packets, decoded stretch by stretch from synchronisation point to synchronisation point, so that its
//! length does not matter. It gives blocks and events to the flows, and asks its guide whose code it is reading.
use std::rc::Rc;

use super::blocks::addresses;
use super::decoder::{Block, Clock, Decoder, Event, Item, Processor, PtError};
use super::flows::{Flows, Space};
use super::psb;
use crate::trace::Reasons;

/// Bytes that are decoded at once.
const STRETCH: usize = 8 << 20;
/// Bytes without a synchronisation point that are given up.
const HOPELESS: usize = 256 << 20;
/// Instructions that no straight line has.
const STALLED: u64 = 1 << 22;
/// Blocks at the end of a stretch that may have to be cut.
const HELD: usize = 1024;

/// Tells whose code runs.
pub trait Guide {
    /// Time has come to `tsc`, as far as the trace tells, and `event` is next: what happened beside the trace up to there
    /// holds now. Whether another stream comes before what follows.
    fn advance(&mut self, tsc: Option<u64>, event: &Event, flows: &mut Flows<'_>) -> bool;

    /// The address space that runs; `None` if it is not known, or not of interest.
    fn space(&mut self) -> Option<Space<'_>>;
}

/// One code for all.
pub struct Single<'n> {
    image: Rc<super::Image>,
    names: &'n mut dyn crate::symbol::Resolver,
}

impl std::fmt::Debug for Single<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Single")
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

impl<'n> Single<'n> {
    /// This code, with these names.
    pub fn new(image: super::Image, names: &'n mut dyn crate::symbol::Resolver) -> Self {
        let image = Rc::new(image);
        Self { image, names }
    }
}

impl Guide for Single<'_> {
    fn advance(&mut self, _tsc: Option<u64>, _event: &Event, _flows: &mut Flows<'_>) -> bool {
        false
    }

    fn space(&mut self) -> Option<Space<'_>> {
        Some(Space {
            id: 0,
            image: &self.image,
            names: self.names,
        })
    }
}

/// How far a stream was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It needs more bytes.
    Hungry,
    /// The guide wants to look elsewhere first.
    Paused,
}

/// Packets as they come.
#[derive(Debug)]
pub struct Stream {
    processor: Option<Processor>,
    clock: Clock,
    bytes: Vec<u8>,
    stretch: usize,
    /// Whether the bytes begin at a synchronisation point where the stretch before them was cut.
    joined: bool,
    running: Option<Run>,
}

impl Stream {
    /// A stream that this processor wrote.
    #[must_use]
    pub fn new(processor: Option<Processor>, clock: Clock) -> Self {
        Self {
            processor,
            clock,
            bytes: Vec::new(),
            stretch: STRETCH,
            joined: false,
            running: None,
        }
    }

    /// Decodes `stretch` bytes at once; the result is the same.
    #[must_use]
    pub fn in_stretches_of(self, stretch: usize) -> Self {
        Self { stretch, ..self }
    }

    /// The next bytes: a part of the stream, the best of at most [`Self::appetite`].
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// How many more bytes it takes to go on.
    #[must_use]
    pub fn appetite(&self) -> usize {
        self.stretch.saturating_sub(self.bytes.len()).max(1 << 16)
    }

    /// Decodes everything at once.
    ///
    /// # Errors
    /// libipt is not there, or has no memory.
    pub fn all(
        &mut self,
        bytes: &[u8],
        guide: &mut dyn Guide,
        flows: &mut Flows<'_>,
    ) -> Result<(), String> {
        for part in bytes.chunks(self.stretch.max(1)) {
            self.push(part);
            while self.run(false, guide, flows)? == State::Paused {}
        }
        while self.run(true, guide, flows)? == State::Paused {}
        Ok(())
    }

    /// Decodes what is there; `last`: no more bytes come, or some are missing behind them.
    ///
    /// # Errors
    /// libipt is not there, or has no memory.
    pub fn run(
        &mut self,
        last: bool,
        guide: &mut dyn Guide,
        flows: &mut Flows<'_>,
    ) -> Result<State, String> {
        loop {
            let mut run = match self.running.take() {
                Some(run) => run,
                None => match self.stretch(last, flows)? {
                    Some(run) => run,
                    None => return Ok(State::Hungry),
                },
            };
            if run.go(guide, flows) == State::Paused {
                self.running = Some(run);
                return Ok(State::Paused);
            }
        }
    }

    /// The next stretch, if there is one.
    fn stretch(&mut self, last: bool, flows: &mut Flows<'_>) -> Result<Option<Run>, String> {
        let joined = self.joined;
        let (bytes, next) = if last {
            self.joined = false;
            (std::mem::take(&mut self.bytes), Next::Nothing)
        } else if self.bytes.len() < self.stretch {
            return Ok(None);
        } else {
            match psb::last(&self.bytes) {
                Some((place, ip)) => {
                    let rest = self.bytes.split_off(place);
                    self.joined = true;
                    (std::mem::replace(&mut self.bytes, rest), Next::Psb(ip))
                }
                None if self.bytes.len() < HOPELESS => return Ok(None),
                None => {
                    self.joined = false;
                    (std::mem::take(&mut self.bytes), Next::Loss)
                }
            }
        };
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if !psb::begins(&bytes) {
            flows.doubt(Reasons::NO_SYNC);
        }
        let mut decoder = Decoder::new(bytes, self.processor, self.clock)?;
        if let Next::Psb(Some(_)) = next {
            decoder.follow_beyond(HELD);
        }
        if !decoder.synchronise() {
            flows.gap(Reasons::NO_SYNC);
        }
        Ok(Some(Run {
            decoder,
            next,
            held: Vec::new(),
            joined,
            deferred: None,
            unpacked: 0,
            offset: None,
        }))
    }
}

/// What stands behind a stretch.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// The end of the stream.
    Nothing,
    /// A synchronisation point, with the address of its next instruction if tracing is on there.
    Psb(Option<u64>),
    /// Bytes that cannot be decoded.
    Loss,
}

/// One stretch's blocks and events on their way to the flows.
#[derive(Debug)]
struct Run {
    decoder: Decoder,
    next: Next,
    /// Blocks since the last event: those at the end are foretold, not told by packets.
    held: Vec<Block>,
    /// The stretch goes on where the one before it was cut.
    joined: bool,
    /// The event before which the guide looked elsewhere.
    deferred: Option<Event>,
    /// Instructions since the offset was looked at, and the offset.
    unpacked: u64,
    offset: Option<u64>,
}

impl Run {
    fn go(&mut self, guide: &mut dyn Guide, flows: &mut Flows<'_>) -> State {
        if let Some(event) = self.deferred.take() {
            flows.event(event);
        }
        self.look(guide);
        loop {
            let ran = self.blocks(guide, flows);
            let item = self.decoder.item();
            if self.stalls(ran, &item) {
                self.error(PtError::Broken(0), guide, flows);
                if !self.decoder.synchronise() {
                    break;
                }
                continue;
            }
            match item {
                Item::Block(block) => {
                    self.joined = false;
                    self.held.push(block);
                }
                Item::Event(event, tsc) => {
                    if self.event(event, tsc, guide, flows) {
                        return State::Paused;
                    }
                    self.look(guide);
                }
                Item::Error(error) => {
                    self.error(error, guide, flows);
                    if !self.decoder.synchronise() {
                        break;
                    }
                }
                Item::End => break,
            }
        }
        match self.next {
            Next::Psb(Some(ip)) => self.cut_at(ip, guide, flows),
            Next::Psb(None) | Next::Nothing => self.release(guide, flows),
            Next::Loss => {
                self.release(guide, flows);
                flows.gap(Reasons::NO_SYNC);
            }
        }
        State::Hungry
    }

    /// Takes the code of who runs: only an event changes who that is.
    fn look(&mut self, guide: &mut dyn Guide) {
        if let Some(space) = guide.space() {
            self.decoder.set_image(space.image);
        }
    }

    /// Whether very much has run without a packet: an endless loop of direct jumps, which only a packet could leave.
    fn stalls(&mut self, ran: u64, item: &Item) -> bool {
        self.unpacked += match item {
            Item::Block(block) => ran + u64::from(block.instructions),
            _ => ran + 1,
        };
        if self.unpacked < STALLED {
            return false;
        }
        self.unpacked = 0;
        let before = std::mem::replace(&mut self.offset, self.decoder.offset());
        before == self.offset
    }

    /// Takes blocks; how many instructions they are. Those are kept that may have to be cut.
    fn blocks(&mut self, guide: &mut dyn Guide, flows: &mut Flows<'_>) -> u64 {
        if self.held.len() >= 2 * HELD {
            let rest = self.held.split_off(self.held.len() - HELD);
            self.release(guide, flows);
            self.held = rest;
        }
        let ran = self.decoder.blocks(HELD, &mut self.held);
        self.joined &= ran == 0;
        ran
    }

    /// Whether the guide wants to look elsewhere.
    fn event(
        &mut self,
        event: Event,
        tsc: Option<u64>,
        guide: &mut dyn Guide,
        flows: &mut Flows<'_>,
    ) -> bool {
        self.release(guide, flows);
        let pause = guide.advance(tsc, &event, flows);
        // The same flow goes on at the point where the stretches meet.
        let meeting = self.joined && matches!(event, Event::Enabled { status: true, .. });
        match (meeting, pause) {
            (true, _) => {}
            (false, true) => self.deferred = Some(event),
            (false, false) => flows.event(event),
        }
        pause
    }

    fn error(&mut self, error: PtError, guide: &mut dyn Guide, flows: &mut Flows<'_>) {
        self.release(guide, flows);
        self.joined = false;
        match error {
            PtError::NoCode => flows.no_code(),
            PtError::Broken(_) => flows.gap(Reasons::DECODE.with(Reasons::NO_SYNC)),
        }
    }

    fn release(&mut self, guide: &mut dyn Guide, flows: &mut Flows<'_>) {
        if let Some(mut space) = guide.space() {
            for block in &self.held {
                flows.block(&mut space, block);
            }
        }
        self.held.clear();
    }

    /// The decoder followed straight lines beyond the last packet; the next stretch begins at `ip`, which stands on that
    /// line: the blocks are cut there.
    fn cut_at(&mut self, ip: u64, guide: &mut dyn Guide, flows: &mut Flows<'_>) {
        if let Some(image) = guide.space().map(|space| Rc::clone(space.image)) {
            cut(&mut self.held, &image, ip);
        }
        self.release(guide, flows);
    }
}

/// Takes the instruction at `ip`, and what follows it, off the straight line at the end of `blocks`.
fn cut(blocks: &mut Vec<Block>, image: &super::Image, ip: u64) {
    for place in (0..blocks.len()).rev() {
        let Some(block) = blocks.get(place).copied() else {
            return;
        };
        let all = addresses(image, &block);
        // The very last instruction may wait for a packet; any other that needs one ends the line.
        let waits = usize::from(place + 1 == blocks.len());
        let told = all.iter().rev().skip(waits).position(|(_, needs)| *needs);
        let line = told.map_or(0, |behind| all.len() - waits - behind);
        let found = all.iter().skip(line).position(|(addr, _)| *addr == ip);
        if let Some(at) = found {
            blocks.truncate(place);
            blocks.extend(shortened(&block, line + at, &all));
            return;
        }
        if told.is_some() {
            return;
        }
    }
}

/// The first `count` instructions of a block; `None` of none.
fn shortened(block: &Block, count: usize, all: &[(u64, bool)]) -> Option<Block> {
    let (end_ip, _) = all.get(count.checked_sub(1)?)?;
    Some(Block {
        end_ip: *end_ip,
        instructions: u16::try_from(count).ok()?,
        ..*block
    })
}
