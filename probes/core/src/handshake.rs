//! How a probe joins a recording: HELLO, WELCOME with the segment's descriptor, and everything closed again.

use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect as connect_socket, recvmsg, send, socket_with,
};
use scalpel_common::event::{EVENT_VERSION, Source};
use scalpel_common::segment::{Header, MAGIC, SEGMENT_VERSION};
use scalpel_common::wire::{MAX_PAYLOAD, SOCKET_VARIABLE, WIRE_VERSION, frame, transport};

use crate::segment::Segment;
use crate::{clock, fork};

/// How long a start-up may be held by a collector that does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Size of the head of a frame.
const HEAD: usize = 8;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// The probe.
    pub source: Source,
    /// The runtime with its version, as `CPython 3.12.1`.
    pub runtime: &'a str,
}

/// Why this process takes part in no recording. The program runs on without.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `$SCALPEL_SOCKET` is not set.
    #[error(
        "no recording: {SOCKET_VARIABLE} is not set; start the program with `scalpel-ebpf record -- CMD`"
    )]
    NoSocket,
    /// The socket could not be reached.
    #[error("the collector cannot be reached at {0}: {1}")]
    Unreachable(String, String),
    /// Nobody answered in time.
    #[error("the collector did not answer in {} s", PATIENCE.as_secs())]
    Silent,
    /// The collector said no.
    #[error("the collector refused: {0}")]
    Refused(String),
    /// What came is no WELCOME of this version.
    #[error("the collector and this probe do not understand each other: {0}")]
    Foreign(&'static str),
    /// The segment could not be mapped.
    #[error("the segment cannot be mapped: {0}")]
    Mapping(String),
    /// `prctl(PR_SET_TSC)` forbids what every clock needs.
    #[error("this process may not read the time-stamp counter (PR_SET_TSC), and so no clock")]
    NoClock,
}

/// The segment, where there is one; what the hot path looks at.
static ATTACHED: AtomicPtr<Segment> = AtomicPtr::new(std::ptr::null_mut());

/// What became of the one handshake of this process.
static JOINED: OnceLock<Result<&'static Segment, Refusal>> = OnceLock::new();

/// The recording this process takes part in.
#[inline]
pub fn attached() -> Option<&'static Segment> {
    // SAFETY: null, or a leaked segment.
    unsafe { ATTACHED.load(Ordering::Acquire).as_ref() }
}

/// Joins the recording that `$SCALPEL_SOCKET` names. Once a process: a later call, of another runtime too, gets the first
/// answer. Blocks for two seconds at most; whatever the answer, no descriptor stays.
pub fn connect(hello: &Hello<'_>) -> Result<&'static Segment, Refusal> {
    JOINED
        .get_or_init(|| {
            let path = std::env::var_os(SOCKET_VARIABLE)
                .filter(|path| !path.is_empty())
                .ok_or(Refusal::NoSocket)?;
            let segment: &'static Segment = Box::leak(Box::new(join(&path, hello)?));
            ATTACHED.store(std::ptr::from_ref(segment).cast_mut(), Ordering::Release);
            Ok(segment)
        })
        .clone()
}

fn join(path: &OsStr, hello: &Hello<'_>) -> Result<Segment, Refusal> {
    // First: where `rdtsc` is a SIGSEGV, the vDSO's `clock_gettime` is one too.
    if !clock::readable() {
        return Err(Refusal::NoClock);
    }
    let until = Instant::now() + PATIENCE;
    let socket = reach(path)?;
    send(&socket, &hello_frame(hello), SendFlags::NOSIGNAL).map_err(|error| lost(path, error))?;
    let (kind, payload, descriptor) = receive(&socket, path, until)?;
    match kind {
        frame::WELCOME => {
            let options = Payload(&payload).welcome()?;
            let descriptor = descriptor.ok_or(Refusal::Foreign("the answer carries no segment"))?;
            map(&descriptor, options)
        }
        frame::REFUSED => Err(Refusal::Refused(
            Payload(&payload).text().unwrap_or_default(),
        )),
        _ => Err(Refusal::Foreign(
            "the answer is neither WELCOME nor REFUSED",
        )),
    }
}

fn lost(path: &OsStr, error: Errno) -> Refusal {
    Refusal::Unreachable(path.to_string_lossy().into_owned(), error.to_string())
}

fn reach(path: &OsStr) -> Result<OwnedFd, Refusal> {
    let unreachable = |error| lost(path, error);
    // Non-blocking: a stopped collector with a full queue must not hold the program's start.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(unreachable)?;
    let address = SocketAddrUnix::new(path).map_err(unreachable)?;
    connect_socket(&socket, &address).map_err(unreachable)?;
    Ok(socket)
}

fn hello_frame(hello: &Hello<'_>) -> Vec<u8> {
    let runtime = hello.runtime;
    let runtime = runtime
        .get(..runtime.floor_char_boundary(200))
        .unwrap_or("");
    let mut payload = Vec::with_capacity(256);
    payload.extend(EVENT_VERSION.to_le_bytes());
    payload.extend([hello.source as u8, transport::SEGMENT]);
    payload.extend(
        rustix::process::getpid()
            .as_raw_nonzero()
            .get()
            .to_le_bytes(),
    );
    payload.extend(
        rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .to_le_bytes(),
    );
    payload.extend(u16::try_from(runtime.len()).unwrap_or(0).to_le_bytes());
    payload.extend(runtime.as_bytes());
    let mut whole = Vec::with_capacity(HEAD + payload.len());
    whole.extend(u32::try_from(payload.len()).unwrap_or(0).to_le_bytes());
    whole.extend([frame::HELLO, WIRE_VERSION, 0, 0]);
    whole.extend(payload);
    whole
}

/// One frame, and the descriptor that came with it.
fn receive(
    socket: &OwnedFd,
    path: &OsStr,
    until: Instant,
) -> Result<(u8, Vec<u8>, Option<OwnedFd>), Refusal> {
    let mut bytes = Vec::new();
    let mut descriptor = None;
    let mut want = HEAD;
    while bytes.len() < want {
        wait(socket, until)?;
        let read = read_some(socket, &mut bytes, want, &mut descriptor)
            .map_err(|error| lost(path, error))?;
        if read == Some(0) {
            return Err(Refusal::Unreachable(
                path.to_string_lossy().into_owned(),
                "it closed the connection".into(),
            ));
        }
        if bytes.len() == HEAD {
            want = HEAD + payload_length(&bytes)?;
        }
    }
    let kind = bytes.get(4).copied().unwrap_or(0);
    Ok((kind, bytes.split_off(HEAD), descriptor))
}

fn payload_length(head: &[u8]) -> Result<usize, Refusal> {
    let mut head = Payload(head);
    let len = head.u32()?;
    let [_kind, version, ..] = head.take::<4>()?;
    if version != WIRE_VERSION {
        return Err(Refusal::Foreign("the answer has another wire version"));
    }
    if len > MAX_PAYLOAD {
        return Err(Refusal::Foreign("the answer is too long"));
    }
    usize::try_from(len)
        .ok()
        .ok_or(Refusal::Foreign("the answer is too long"))
}

fn wait(socket: &OwnedFd, until: Instant) -> Result<(), Refusal> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok().ok_or(Refusal::Silent)?;
        let mut watched = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut watched, Some(&timeout)) {
            Ok(0) => return Err(Refusal::Silent),
            Err(Errno::INTR) => {}
            // What an error is shows in the read that follows.
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}

/// Bytes read, 0 = the end, `None` = nothing was there.
fn read_some(
    socket: &OwnedFd,
    bytes: &mut Vec<u8>,
    want: usize,
    descriptor: &mut Option<OwnedFd>,
) -> Result<Option<usize>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut chunk = vec![0; want - bytes.len()];
    let received = recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(&mut chunk)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    let read = match received {
        Ok(received) => received.bytes,
        Err(Errno::INTR | Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error),
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            *descriptor = descriptors.last();
        }
    }
    bytes.extend(chunk.get(..read).unwrap_or_default());
    Ok(Some(read))
}

fn map(descriptor: &OwnedFd, options: Vec<(String, String)>) -> Result<Segment, Refusal> {
    let refuse = |error: Errno| Refusal::Mapping(error.to_string());
    let header = map_header(descriptor).map_err(refuse)?;
    if header.magic != MAGIC {
        return Err(Refusal::Foreign("what it sent is no segment"));
    }
    if header.segment_version != SEGMENT_VERSION || header.event_version != EVENT_VERSION {
        return Err(Refusal::Foreign("its segment has another version"));
    }
    if !clock::known(header.clock) {
        return Err(Refusal::Foreign("its segment has an unknown clock"));
    }
    let size = usize::try_from(header.size)
        .ok()
        .ok_or(Refusal::Foreign("its segment is too large"))?;
    fork::prepare().map_err(|error| Refusal::Mapping(error.to_string()))?;
    let base = map_shared(descriptor, size).map_err(refuse)?;
    // SAFETY: the whole segment, whose version was checked, mapped for good.
    Ok(unsafe { Segment::new(base, options) })
}

fn map_header(descriptor: &OwnedFd) -> Result<Header, Errno> {
    let size = size_of::<Header>();
    let base = map_shared(descriptor, size)?;
    // SAFETY: mapped, page-aligned, and a header is valid for every bit pattern.
    let header = unsafe { base.cast::<Header>().read() };
    // SAFETY: the mapping of two lines above, which nothing points into any more.
    unsafe { munmap(base.as_ptr().cast(), size) }?;
    Ok(header)
}

fn map_shared(descriptor: &OwnedFd, size: usize) -> Result<NonNull<u8>, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing. The collector sealed the size, so that
    // no access can be past the end of the file.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            size,
            protection,
            MapFlags::SHARED,
            descriptor,
            0,
        )
    }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

/// The unread rest of a payload.
struct Payload<'a>(&'a [u8]);

impl Payload<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let (field, rest) = self
            .0
            .split_first_chunk()
            .ok_or(Refusal::Foreign("the answer is cut"))?;
        self.0 = rest;
        Ok(*field)
    }

    fn u16(&mut self) -> Result<u16, Refusal> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Refusal> {
        self.take().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Result<String, Refusal> {
        let len = usize::from(self.u16()?);
        let (text, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(Refusal::Foreign("the answer is cut"))?;
        self.0 = rest;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// The options; what else a WELCOME says stands in the segment's header too.
    fn welcome(mut self) -> Result<Vec<(String, String)>, Refusal> {
        self.take::<{ 2 + 1 + 1 + 16 + 8 }>()?;
        let count = self.u16()?;
        (0..count)
            .map(|_| Ok((self.text()?, self.text()?)))
            .collect()
    }
}
