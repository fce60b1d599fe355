//! A stand-in for the collector, for the tests of probes: makes a segment, answers handshakes, reads lanes.
//!
//! It trusts the probe, as the collector never does.

use std::collections::{BTreeMap, HashMap};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use scalpel_common::event::{EVENT_VERSION, Event, Kind};
use scalpel_common::wire::{WIRE_VERSION, frame};

mod made;

pub use made::{LaneEvents, Made, Named, Shape, Told};

/// A socket that hands a segment to each process that says HELLO.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    shape: Shape,
    segments: Mutex<HashMap<u32, std::sync::Arc<Made>>>,
}

impl Server {
    /// Listens at `path`.
    pub fn new(path: &Path, shape: Shape) -> std::io::Result<Self> {
        Ok(Self {
            listener: UnixListener::bind(path)?,
            path: path.to_owned(),
            shape,
            segments: Mutex::default(),
        })
    }

    /// For `$SCALPEL_SOCKET`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many segments it has made: one a process that said HELLO.
    pub fn made(&self) -> usize {
        self.segments.lock().map_or(0, |segments| segments.len())
    }

    /// Answers one HELLO: the pid that said it, its runtime, and the segment it got. Fails when none comes within 20 s.
    pub fn accept(&self) -> std::io::Result<(u32, String, std::sync::Arc<Made>)> {
        let mut watched = [PollFd::new(&self.listener, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        if poll(&mut watched, Some(&timeout))? == 0 {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        let (mut stream, _) = self.listener.accept()?;
        let (pid, runtime) = hello(&mut stream)?;
        let made = self.segment_of(pid)?;
        welcome(&stream, &made)?;
        Ok((pid, runtime, made))
    }

    fn segment_of(&self, pid: u32) -> std::io::Result<std::sync::Arc<Made>> {
        let mut segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = segments.get(&pid) {
            return Ok(std::sync::Arc::clone(made));
        }
        let made = std::sync::Arc::new(Made::new(self.shape.clone())?);
        segments.insert(pid, std::sync::Arc::clone(&made));
        Ok(made)
    }
}

fn hello(stream: &mut UnixStream) -> std::io::Result<(u32, String)> {
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let [a, b, c, d, kind, ..] = head;
    let mut payload = vec![0; u32::from_le_bytes([a, b, c, d]) as usize];
    stream.read_exact(&mut payload)?;
    let pid = payload.get(4..8).and_then(|field| field.first_chunk());
    let (frame::HELLO, Some(pid)) = (kind, pid) else {
        return Err(std::io::Error::other("no HELLO"));
    };
    let runtime = String::from_utf8_lossy(payload.get(14..).unwrap_or_default()).into_owned();
    Ok((u32::from_le_bytes(*pid), runtime))
}

fn welcome(stream: &UnixStream, made: &Made) -> std::io::Result<()> {
    let header = made.header();
    let mut payload = Vec::new();
    payload.extend(EVENT_VERSION.to_le_bytes());
    payload.extend([header.clock, header.modes]);
    payload.extend(header.recording);
    payload.extend(header.size.to_le_bytes());
    let options = &made.shape.options;
    payload.extend(u16::try_from(options.len()).unwrap_or(0).to_le_bytes());
    for text in options.iter().flat_map(|(name, value)| [name, value]) {
        payload.extend(u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
        payload.extend(text.as_bytes());
    }
    let mut whole = Vec::new();
    whole.extend(u32::try_from(payload.len()).unwrap_or(0).to_le_bytes());
    whole.extend([frame::WELCOME, WIRE_VERSION, 0, 0]);
    whole.extend(payload);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [made.descriptor.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(
        stream,
        &[IoSlice::new(&whole)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// An event as one line of JSON, with the function's name.
pub fn to_json(read: &LaneEvents, event: &Event, names: &BTreeMap<u32, Option<Named>>) -> String {
    let name = names.get(&event.func).and_then(Option::as_ref);
    serde_json::json!({
        "lane": read.lane, "pid": read.pid, "tid": read.tid, "seq": event.seq, "time": event.time,
        "kind": Kind::from_u8(event.kind).map(|kind| format!("{kind:?}")),
        "func": event.func, "name": name.map(|name| &name.name), "file": name.map(|name| &name.file),
        "line": name.map(|name| name.head.line), "frame": event.frame.to_string(),
        "site": event.site, "value": event.value, "flags": event.flags,
    })
    .to_string()
}
