//! The handshake: a process says HELLO, and gets the descriptor of its segment. Then nothing of it stays open.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use scalpel_common::segment::{clock, note_kind};
use scalpel_common::wire::transport;

use super::drain::probe_source;
use super::frames::Newcomer;
use super::lease::LeaseClock;
use super::memory::Memory;
use super::peer::{Family, Watched, maps_file};
use super::reader::Reader;
use super::segment::{Budget, Charge, Owner, Segment, Settings};
use super::socket::{Arrival, Socket, answer, opener, receive};
use super::wire::{self, Frame, Hello, Welcome};
use crate::event::{MonoTime, Pid};
use crate::input::{Feed, Input, ProbeWord};
use crate::target::Process;

/// A peer that has not said HELLO by then is not waited for.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// Connections that may be open at a time.
const MOST_CONNECTIONS: usize = 256;

/// How often the thread looks whether it should end.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Memory that a connection which stays may take: a frame that is not whole yet, and what is unsent.
const CONVERSATION: u64 = 3 << 20;

/// A process that is listened to from now on.
pub(super) enum Peer {
    /// In its segment.
    Segment(Box<Reader>),
    /// On its socket.
    Frames(Newcomer),
}

/// Segments whose lease is renewed.
pub(super) type Leased = Arc<Mutex<Vec<Weak<Memory>>>>;

/// A connection that has not said all of its HELLO.
struct Connection {
    stream: UnixStream,
    bytes: Vec<u8>,
    since: Instant,
    sender: Option<Pid>,
}

/// A process that has a segment.
struct Member {
    start_time: u64,
    exec_epoch: u32,
    inode: u64,
    memory: Weak<Memory>,
}

/// The thread's body.
pub(super) struct Server {
    pub(super) socket: Socket,
    pub(super) watched: Watched,
    pub(super) settings: Settings,
    pub(super) options: Vec<(String, String)>,
    pub(super) budget: Arc<Budget>,
    pub(super) lease: LeaseClock,
    pub(super) leased: Leased,
    pub(super) peers: Sender<Peer>,
    pub(super) session: SyncSender<(Feed, Input)>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) state: State,
}

/// What the thread keeps.
#[derive(Default)]
pub(super) struct State {
    connections: Vec<Connection>,
    members: FxHashMap<Pid, Member>,
    /// Made ahead: a program's start does not wait for memory.
    spare: Option<Segment>,
}

impl Server {
    /// Answers until it is told to stop.
    pub(super) fn run(mut self) {
        self.prepare();
        while !self.stop.load(Ordering::Acquire) {
            self.wait();
            while let Some(stream) = self.socket.accept() {
                if self.state.connections.len() < MOST_CONNECTIONS {
                    self.state.connections.push(Connection {
                        stream,
                        bytes: Vec::new(),
                        since: Instant::now(),
                        sender: None,
                    });
                }
            }
            for connection in std::mem::take(&mut self.state.connections) {
                self.serve(connection);
            }
            self.prepare();
        }
    }

    /// Makes the next segment, if there is memory for one.
    pub(super) fn prepare(&mut self) {
        if self.state.spare.is_none() {
            self.state.spare = Segment::create(self.settings, &self.budget).ok();
        }
    }

    fn wait(&self) {
        let listener = self.socket.descriptor();
        let streams = self
            .state
            .connections
            .iter()
            .map(|connection| connection.stream.as_fd());
        let mut ready: Vec<PollFd<'_>> = std::iter::once(listener)
            .chain(streams)
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        // A signal only makes the look come earlier.
        let _ready = poll(&mut ready, Some(&LOOK_EVERY));
    }

    fn serve(&mut self, mut connection: Connection) {
        let mut buffer = [0; 4096];
        match receive(&connection.stream, &mut buffer) {
            Arrival::Bytes(count, sender) => {
                connection.sender = sender;
                connection.bytes.extend(buffer.iter().take(count));
            }
            Arrival::Nothing => {}
            Arrival::End => return,
        }
        match wire::next(&mut connection.bytes) {
            Ok(None) if connection.since.elapsed() < HELLO_WITHIN => {
                self.state.connections.push(connection)
            }
            Ok(None) => {}
            Ok(Some(Frame::Hello(hello))) => self.hello(connection, &hello),
            Ok(Some(_)) => refuse(&connection, "the first frame has to be HELLO"),
            Err(error) => refuse(&connection, &error.to_string()),
        }
    }

    fn hello(&mut self, connection: Connection, hello: &Hello) {
        match self.admit(&connection, hello) {
            Ok(process) if hello.wants_segment => self.welcome(&connection, hello, &process),
            Ok(process) => self.converse(connection, hello, process),
            Err(why) => refuse(&connection, &why),
        }
    }

    /// The peer keeps its connection; whoever reads it sends the WELCOME first.
    fn converse(&self, connection: Connection, hello: &Hello, process: Process) {
        let Some(charge) = Charge::of(&self.budget, CONVERSATION) else {
            let why = "the memory for probes is used up (--probe-memory)";
            self.say(process.pid(), hello.source, note_kind::REFUSAL, why);
            return refuse(&connection, why);
        };
        let welcome = Welcome {
            clock: clock::MONOTONIC,
            modes: self.settings.modes,
            recording: self.settings.recording,
            segment: 0,
            options: &self.options,
        };
        let now = MonoTime(super::drain::monotonic_ns());
        self.say_runtime(&process, hello, now);
        // The recording is over: the connection closes.
        let _over = self.peers.send(Peer::Frames(Newcomer {
            stream: connection.stream,
            process,
            source: hello.source,
            inbox: connection.bytes,
            answer: welcome.to_bytes(),
            charge,
        }));
    }

    /// The process at the other end, if the kernel says who it is and it belongs to the recording.
    fn admit(&self, connection: &Connection, hello: &Hello) -> Result<Process, String> {
        if probe_source(hello.source).is_none() {
            return Err(format!("source {} is none of a probe", hello.source));
        }
        let opened = opener(&connection.stream).ok_or("the kernel does not tell who connects")?;
        let sent = connection
            .sender
            .ok_or("the kernel does not tell who writes")?;
        // A connection that was handed on, or numbers that root made up.
        if opened != sent {
            return Err(format!(
                "connected by process {opened}, written by process {sent}"
            ));
        }
        let process = Process::open(sent).map_err(|error| error.to_string())?;
        if !self.watched.admits(&process) {
            return Err(format!("process {sent} is not part of this recording"));
        }
        Ok(process)
    }

    fn welcome(&mut self, connection: &Connection, hello: &Hello, process: &Process) {
        let memory = match self.segment_of(process, hello) {
            Ok(memory) => memory,
            Err(why) => {
                self.say(process.pid(), hello.source, note_kind::REFUSAL, &why);
                return refuse(connection, &why);
            }
        };
        let welcome = Welcome {
            clock: self.settings.clock,
            modes: self.settings.modes,
            recording: self.settings.recording,
            segment: memory.len(),
            options: &self.options,
        };
        let since = MonoTime(super::drain::monotonic_ns());
        let answered = answer(
            &connection.stream,
            &welcome.to_bytes(),
            Some(memory.descriptor()),
        );
        if let Err(error) = answered {
            self.say(
                process.pid(),
                hello.source,
                note_kind::REFUSAL,
                &format!("the answer to HELLO did not arrive: {error}"),
            );
            return;
        }
        self.say_runtime(process, hello, since);
    }

    /// The segment of a process: the one it has mapped already, or a new one.
    fn segment_of(&mut self, process: &Process, hello: &Hello) -> Result<Arc<Memory>, String> {
        let (pid, start_time) = (process.pid(), process.start_time());
        let known = self
            .state
            .members
            .get(&pid)
            .filter(|member| member.start_time == start_time);
        let mut exec_epoch = 0;
        if let Some(member) = known {
            // Mapped no more: it has executed another program since.
            let mapped = maps_file(pid, member.inode) != Some(false);
            if let Some(memory) = member.memory.upgrade().filter(|_| mapped) {
                return Ok(memory);
            }
            exec_epoch = member.exec_epoch + 1;
        }
        let failed = |error: std::io::Error| format!("no segment could be made: {error}");
        let segment = match self.state.spare.take() {
            Some(spare) => spare,
            None => Segment::create(self.settings, &self.budget).map_err(failed)?,
        };
        let owner = Owner {
            pid: pid.0,
            exec_epoch,
            start_time,
        };
        let memory = Arc::clone(&segment.memory);
        let inode = memory.inode().map_err(failed)?;
        segment.belong_to(owner);
        let reader = Reader::new(segment, Family::new(process.clone(), inode), hello.source);
        self.enlist(owner, inode, reader)?;
        Ok(memory)
    }

    /// From now on the segment of a process is read, and its lease renewed. Both before anybody writes: no event may find
    /// nobody who reads it, and no lease may be 0 at the first call.
    pub(super) fn enlist(
        &mut self,
        owner: Owner,
        inode: u64,
        reader: Reader,
    ) -> Result<(), String> {
        let memory = Arc::downgrade(&reader.segment.memory);
        let member = Member {
            start_time: owner.start_time,
            exec_epoch: owner.exec_epoch,
            inode,
            memory: Weak::clone(&memory),
        };
        self.state.members.insert(Pid(owner.pid), member);
        self.lease.renew(&reader.segment.memory);
        self.leased
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(memory);
        self.peers
            .send(Peer::Segment(Box::new(reader)))
            .map_err(|_gone| "the recording is over".to_owned())
    }

    /// A runtime takes part; the value is how it speaks. `since`: before it was answered, for then it goes on, and may be
    /// another program by now.
    fn say_runtime(&self, process: &Process, hello: &Hello, since: MonoTime) {
        let how = if hello.wants_segment {
            transport::SEGMENT
        } else {
            transport::SOCKET
        };
        self.send(ProbeWord {
            pid: process.pid(),
            source: hello.source,
            kind: note_kind::RUNTIME,
            time: since,
            value: how.into(),
            text: hello.runtime.clone(),
        });
    }

    fn say(&self, pid: Pid, source: u8, kind: u8, text: &str) {
        self.send(ProbeWord {
            pid,
            source,
            kind,
            time: MonoTime(super::drain::monotonic_ns()),
            value: 0,
            text: text.to_owned(),
        });
    }

    fn send(&self, word: ProbeWord) {
        // The session is gone: nobody wants to know.
        let _gone = self.session.send((Feed::Probes, Input::Probe(word)));
    }
}

fn refuse(connection: &Connection, why: &str) {
    // One that has gone meanwhile need not be told.
    let _gone = answer(&connection.stream, &wire::refused(why), None);
}
