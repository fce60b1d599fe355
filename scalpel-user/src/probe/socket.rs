//! The recording's own Unix socket: where it is, who may open it, and who is at the other end of a connection.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};

use crate::event::Pid;

/// Folder of sockets where root records.
const ROOT_FOLDER: &str = "/run/scalpel";

/// Where the socket of a recording will be. Its file goes when this does.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// A folder made for it alone.
    folder: Option<PathBuf>,
}

impl Place {
    /// Chooses the place, and makes its folder.
    pub fn choose(uuid: &str) -> io::Result<Self> {
        let (folder, own) = folder(uuid)?;
        Ok(Self {
            path: folder.join(format!("{uuid}.sock")),
            folder: own.then_some(folder),
        })
    }

    /// Path of the socket, as `$SCALPEL_SOCKET` tells it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Best effort: the file, if there is one, is of no use to anybody now.
        let _gone = fs::remove_file(&self.path);
        if let Some(folder) = &self.folder {
            let _gone = fs::remove_dir(folder);
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    place: Place,
}

impl Socket {
    /// Opens the socket of a recording, for its target's user alone.
    pub(super) fn open(place: Place, owner: (u32, u32)) -> io::Result<Self> {
        let listener = UnixListener::bind(&place.path)?;
        let socket = Self { listener, place };
        fs::set_permissions(socket.path(), Permissions::from_mode(0o600))?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(socket.path(), Some(owner.0), Some(owner.1))?;
        }
        // From now on, and for connections that wait: messages carry who wrote them.
        sockopt::set_socket_passcred(&socket.listener, true)?;
        socket.listener.set_nonblocking(true)?;
        Ok(socket)
    }

    pub(super) fn path(&self) -> &Path {
        &self.place.path
    }

    /// The next connection that waits.
    pub(super) fn accept(&self) -> Option<UnixStream> {
        let (stream, _address) = self.listener.accept().ok()?;
        sockopt::set_socket_passcred(&stream, true).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// A folder for sockets, and whether it was made for this one alone.
fn folder(uuid: &str) -> io::Result<(PathBuf, bool)> {
    let build = |path: PathBuf, mode: u32| match DirBuilder::new().mode(mode).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(path),
    };
    if rustix::process::geteuid().is_root() {
        // Other users' targets must get through to their own socket; the names are not for them to list.
        let folder = build(PathBuf::from(ROOT_FOLDER), 0o711)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o711))?;
        return Ok((folder, false));
    }
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_dir())
    {
        return Ok((build(runtime.join("scalpel"), 0o700)?, false));
    }
    // A folder that was there already could be a stranger's.
    let own = std::env::temp_dir().join(format!("scalpel-{uuid}"));
    DirBuilder::new().mode(0o700).create(&own)?;
    Ok((own, true))
}

/// What arrived.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Bytes, and the process that sent them.
    Bytes(usize, Option<Pid>),
    /// Nothing yet.
    Nothing,
    /// The other end is closed or broken.
    End,
}

/// Reads what has come.
pub(super) fn receive(stream: &UnixStream, buffer: &mut [u8]) -> Arrival {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // Descriptors that a stranger sends are closed at once by the kernel: there is no room for them.
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    match recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
        Ok(message) if message.bytes == 0 => Arrival::End,
        Ok(message) => Arrival::Bytes(message.bytes, sender(&mut control)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Arrival::Nothing,
        Err(_broken) => Arrival::End,
    }
}

fn sender(control: &mut RecvAncillaryBuffer<'_>) -> Option<Pid> {
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(who) => Some(pid(who.pid)),
        _ => None,
    })
}

fn pid(pid: rustix::process::Pid) -> Pid {
    Pid(pid.as_raw_nonzero().get().unsigned_abs())
}

/// The process that opened the connection.
pub(super) fn opener(stream: &UnixStream) -> Option<Pid> {
    sockopt::socket_peercred(stream)
        .ok()
        .map(|who| pid(who.pid))
}

/// Sends as much as there is room for; `None` = nothing.
pub(super) fn send_some(stream: &UnixStream, bytes: &[u8]) -> Option<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::send(stream, bytes, flags).ok()
}

/// Sends an answer with a descriptor. It is short: a peer that has no room for it is not worth waiting for.
pub(super) fn answer(
    stream: &UnixStream,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, flags)?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WouldBlock.into())
    }
}
