//! One connection: bytes in and out, a part at a time, and when to give it up. What a frame means is `speech`'s.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use scalpel_common::segment::{note_kind, unseen};
use scalpel_common::wire::TIMEOUT_SECONDS;

use super::speech::{Reply, Speech};
use super::{Known, Newcomer};
use crate::event::Pid;
use crate::probe::peer::Family;
use crate::probe::segment::Charge;
use crate::probe::shared::{Give, Gone, Shared, Tally};
use crate::probe::socket::{Arrival, receive, send_some};
use crate::probe::wire;
use crate::target::Process;

/// Bytes that are read at a time; no more, so that little has to be moved when a frame is taken off their front.
const AT_ONCE: usize = 64 << 10;

/// How often a pass reads from one peer: others wait meanwhile.
const ROUNDS: usize = 8;

/// A peer that does not take answers is not listened to before it does.
const MOST_UNSENT: usize = 1 << 20;

/// How long a peer may leave a frame half sent, or an answer unread, in ns.
const PATIENCE: u64 = TIMEOUT_SECONDS * 1_000_000_000;

/// A connection.
pub(super) struct Conversation {
    stream: UnixStream,
    process: Process,
    speech: Speech,
    inbox: Vec<u8>,
    unsent: Vec<u8>,
    /// When a byte last came or went while one was awaited, in ns.
    moved: u64,
    is_over: bool,
    _charge: Charge,
}

/// What a round of reading came to.
enum Round {
    More,
    Nothing,
    End,
}

impl Conversation {
    pub(super) fn new(newcomer: Newcomer, now: u64) -> Self {
        let family = Family::new(newcomer.process.clone(), 0);
        Self {
            stream: newcomer.stream,
            process: newcomer.process,
            speech: Speech::new(family, newcomer.source),
            inbox: newcomer.inbox,
            unsent: newcomer.answer,
            moved: now,
            is_over: false,
            _charge: newcomer.charge,
        }
    }

    pub(super) fn key(&self) -> (Pid, u64) {
        (self.process.pid(), self.process.start_time())
    }

    pub(super) const fn process(&self) -> &Process {
        &self.process
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) const fn tally(&self) -> &Tally {
        &self.speech.tally
    }

    /// Sends and reads what can be. True = there is more to read.
    pub(super) fn pass(
        &mut self,
        known: &mut Known,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<bool, Gone> {
        let off = self.speech.newly_off(shared);
        if !off.is_empty() {
            self.unsent.extend(wire::switch_off(&off));
        }
        for _ in 0..ROUNDS {
            self.send(shared.now);
            self.understand(known, shared, give)?;
            if self.is_over || self.unsent.len() > MOST_UNSENT {
                break;
            }
            match self.read(shared.now) {
                Ok(Round::More) => continue,
                Ok(Round::Nothing) => {}
                Ok(Round::End) => {
                    self.cut("its connection ended without a BYE", known, shared, give)?;
                }
                Err(why) => self.refuse(&why, known, shared, give)?,
            }
            self.look_at_the_clock(known, shared, give)?;
            return Ok(false);
        }
        self.look_at_the_clock(known, shared, give)?;
        Ok(!self.is_over && self.unsent.len() <= MOST_UNSENT)
    }

    fn send(&mut self, now: u64) {
        while !self.unsent.is_empty() {
            match send_some(&self.stream, &self.unsent) {
                Some(sent) if sent > 0 => {
                    self.unsent.drain(..sent);
                    self.moved = now;
                }
                // A broken connection shows when it is read.
                _ => break,
            }
        }
    }

    fn read(&mut self, now: u64) -> Result<Round, String> {
        let mut buffer = vec![0; AT_ONCE];
        match receive(&self.stream, &mut buffer) {
            Arrival::Bytes(_, sender) if sender != Some(self.process.pid()) => Err(match sender {
                Some(other) => format!("process {other} wrote on the connection of this one"),
                None => "the kernel does not tell who writes".into(),
            }),
            Arrival::Bytes(count, _) => {
                self.inbox.extend(buffer.iter().take(count));
                self.moved = now;
                Ok(Round::More)
            }
            Arrival::Nothing => Ok(Round::Nothing),
            Arrival::End => Ok(Round::End),
        }
    }

    /// Takes every whole frame off the inbox.
    fn understand(
        &mut self,
        known: &mut Known,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        while !self.is_over {
            let frame = match wire::next(&mut self.inbox) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => return self.refuse(&error.to_string(), known, shared, give),
            };
            match self.speech.hear(frame, known, shared, give)? {
                Reply::Nothing => {}
                Reply::Acknowledge(pairs) => self.unsent.extend(wire::acknowledged(&pairs)),
                Reply::Bye => self.is_over = true,
                Reply::Wrong(why) => return self.refuse(why, known, shared, give),
            }
        }
        Ok(())
    }

    fn look_at_the_clock(
        &mut self,
        known: &mut Known,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        let waits = !self.inbox.is_empty() || !self.unsent.is_empty();
        if !self.is_over && waits && shared.now.saturating_sub(self.moved) > PATIENCE {
            let why = format!("nothing moved for {TIMEOUT_SECONDS} s in the middle of a frame");
            return self.refuse(&why, known, shared, give);
        }
        Ok(())
    }

    /// Ends a conversation that makes no sense: the peer is told why, and so is the reader of the result.
    fn refuse(
        &mut self,
        why: &str,
        known: &mut Known,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        self.speech.tally.faults += 1;
        // Behind half an answer it would be nonsense; a peer that has gone need not be told.
        if self.unsent.is_empty() {
            let _gone = send_some(&self.stream, &wire::refused(why));
        }
        self.speech
            .say(note_kind::REFUSAL, 0, why, known, shared, give)?;
        self.cut("its connection was given up", known, shared, give)
    }

    /// The connection is over before the peer had said all it had.
    pub(super) fn cut(
        &mut self,
        why: &str,
        known: &mut Known,
        shared: &mut Shared,
        give: &mut Give<'_>,
    ) -> Result<(), Gone> {
        self.is_over = true;
        let text = format!("{why}: what it had not sent is missing");
        self.speech
            .say(note_kind::NOTE, 0, &text, known, shared, give)?;
        self.speech.say(
            note_kind::UNSEEN,
            unseen::UNWATCHED,
            "",
            known,
            shared,
            give,
        )?;
        self.speech.leave_out(shared);
        Ok(())
    }

    /// We say no more: the peer sends what it has, and BYE.
    pub(super) fn ask_for_the_rest(&mut self) {
        self.unsent.clear();
        // It may be closed already.
        let _closed = self.stream.shutdown(Shutdown::Write);
    }
}
