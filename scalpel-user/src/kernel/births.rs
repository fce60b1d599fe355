//! Births, programs and ends of processes as the kernel's process connector tells them: to root, and since Linux 6.6 to
//! everybody, in the first pid and user namespaces. It costs whoever is born, executes or ends a message, and needs no
//! program in the kernel: what a recording without kernel tracing knows of children.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use crate::event::{Control, MonoTime, Pid, Tid};

/// `CN_IDX_PROC` and `CN_VAL_PROC`, which name the connector; the first is its multicast group too.
const PROCESSES: u32 = 1;

/// `PROC_CN_MCAST_LISTEN` and `PROC_CN_MCAST_IGNORE`.
const LISTEN: u32 = 1;
const IGNORE: u32 = 2;

/// The first pid and user namespaces (`PROC_PID_INIT_INO`, `PROC_USER_INIT_INO`): in others the kernel does not answer, and
/// what it tells somebody else has numbers that are not ours.
const FIRST: [(&str, &str); 2] = [("pid", "pid:[4026531836]"), ("user", "user:[4026531837]")];

/// Bytes of `struct nlmsghdr` and of `struct cn_msg` before what they carry.
const HEADER: usize = 16;
const MESSAGE: usize = 20;

/// `enum proc_cn_event`: the answer to a request, and what is of interest.
const NONE: u32 = 0;
const FORK: u32 = 1;
const EXEC: u32 = 2;
const EXIT: u32 = 1 << 31;

/// Some 10,000 events may wait.
const ROOM: usize = 8 << 20;

/// The answer is the first that is told, but for what happened in the same moment.
const MOST_BEFORE_ANSWER: u32 = 10_000;

/// How long the answer may take; it is there when the request returns.
const ANSWERED_WITHIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// What was told since the last time.
#[derive(Debug, Default)]
pub struct Told {
    /// Of all processes of the host, in the order in which it happened.
    pub changes: Vec<Control>,
    /// More was told than there was room for.
    pub lost: bool,
}

/// A connection.
#[derive(Debug)]
pub struct Births {
    socket: OwnedFd,
}

impl Births {
    /// Begins to listen.
    pub fn listen() -> io::Result<Self> {
        let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
        for (kind, name) in FIRST {
            let ours = std::fs::read_link(format!("/proc/self/ns/{kind}"))?;
            if ours.as_os_str() != name {
                return Err(unsupported());
            }
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            flags,
            Some(CONNECTOR),
        )?;
        // As much as is allowed: without room a storm of births is only told to have been one.
        let _more = set_socket_recv_buffer_size_force(&socket, ROOM)
            .or_else(|_not_root| set_socket_recv_buffer_size(&socket, ROOM));
        bind(&socket, &SocketAddrNetlink::new(0, PROCESSES))?;
        send(&socket, &request(LISTEN), SendFlags::empty())?;
        let births = Self { socket };
        match births.is_answered()? {
            true => Ok(births),
            false => Err(unsupported()),
        }
    }

    /// Whether the request was granted. What was told to others in between is of no interest.
    fn is_answered(&self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        for _ in 0..MOST_BEFORE_ANSWER {
            match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((count, _)) => {
                    if let Some(error) = buffer.get(..count).and_then(answer) {
                        return Ok(error == 0);
                    }
                }
                Err(Errno::AGAIN) => {
                    let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
                    if poll(&mut ready, Some(&ANSWERED_WITHIN))? == 0 {
                        return Ok(false);
                    }
                }
                Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// Becomes readable when something was told.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// All that was told.
    pub fn drain(&self) -> Told {
        let mut told = Told::default();
        let mut buffer = [0; 4096];
        loop {
            match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((count, _)) => told.changes.extend(buffer.get(..count).and_then(change)),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => told.lost = true,
                Err(Errno::AGAIN) => return told,
                Err(_) => {
                    told.lost = true;
                    return told;
                }
            }
        }
    }
}

impl Drop for Births {
    fn drop(&mut self) {
        // Older kernels do not see by themselves that a listener is gone.
        let _gone = send(&self.socket, &request(IGNORE), SendFlags::empty());
    }
}

/// Asks to be told, or no longer to be.
fn request(what: u32) -> Vec<u8> {
    let length = u32::try_from(HEADER + MESSAGE + 4).unwrap_or(0);
    // The type is NLMSG_DONE; then the connector, and the length of what it is told.
    let mut bytes = Vec::new();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(3u16.to_ne_bytes());
    bytes.extend([0; HEADER - 6]);
    bytes.extend(PROCESSES.to_ne_bytes());
    bytes.extend(PROCESSES.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(4u16.to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend(what.to_ne_bytes());
    bytes
}

/// Four bytes of an event.
fn number(event: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*event.get(at..)?.first_chunk()?))
}

/// The error number in the answer to a request.
fn answer(message: &[u8]) -> Option<u32> {
    let event = message.get(HEADER + MESSAGE..)?;
    (number(event, 0)? == NONE)
        .then(|| number(event, 16))
        .flatten()
}

/// What a message tells; threads are none of it, but that they end.
fn change(message: &[u8]) -> Option<Control> {
    let event = message.get(HEADER + MESSAGE..)?;
    let number = |at| number(event, at);
    let time = MonoTime(u64::from_ne_bytes(*event.get(8..)?.first_chunk()?));
    match number(0)? {
        FORK => {
            let (parent, tid, child) = (Pid(number(20)?), Tid(number(24)?), Pid(number(28)?));
            // A thread's parent is that of its process.
            (tid.0 == child.0).then_some(Control::Fork {
                time,
                parent,
                child,
                tid,
                name: String::new(),
            })
        }
        EXEC => Some(Control::Exec {
            time,
            pid: Pid(number(20)?),
            path: String::new(),
        }),
        EXIT => Some(Control::Exit {
            time,
            pid: Pid(number(20)?),
            tid: Tid(number(16)?),
            process_ended: None,
        }),
        NONE.. => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn message(what: u32, time: u64, numbers: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER + MESSAGE];
        bytes.extend(what.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(time.to_ne_bytes());
        numbers
            .iter()
            .for_each(|number| bytes.extend(number.to_ne_bytes()));
        bytes
    }

    #[test]
    fn births_programs_and_ends_are_read_and_the_rest_is_not() {
        let child = change(&message(FORK, 7, &[10, 10, 11, 11])).unwrap();
        assert!(matches!(
            child,
            Control::Fork {
                time: MonoTime(7),
                parent: Pid(10),
                child: Pid(11),
                ..
            }
        ));
        assert_eq!(
            change(&message(FORK, 7, &[10, 10, 12, 11])),
            None,
            "a thread"
        );
        let exec = change(&message(EXEC, 8, &[12, 11])).unwrap();
        assert!(matches!(exec, Control::Exec { pid: Pid(11), .. }));
        let exit = change(&message(EXIT, 9, &[12, 11, 0, 17])).unwrap();
        assert!(matches!(
            exit,
            Control::Exit {
                pid: Pid(11),
                tid: Tid(12),
                ..
            }
        ));
        assert_eq!(change(&message(NONE, 9, &[0; 6])), None);
        assert_eq!(answer(&message(NONE, 9, &[1])), Some(1));
        assert_eq!(answer(&message(EXEC, 9, &[1])), None);
        assert_eq!(change(&message(0x200, 9, &[0; 6])), None);
        let whole = message(FORK, 7, &[10, 10, 11, 11]);
        for length in 0..whole.len() {
            assert_eq!(change(&whole[..length]), None, "{length}");
        }
    }

    /// Only root is told of them on every kernel, and nobody in a container.
    #[test]
    fn a_child_of_ours_is_told_of_where_the_kernel_tells_at_all() {
        let Ok(births) = Births::listen() else {
            return;
        };
        let child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid(child.id());
        child.wait_with_output().unwrap();
        let mut changes = Vec::new();
        let has_ended = |changes: &[Control]| {
            changes
                .iter()
                .any(|one| matches!(one, Control::Exit { pid: ended, .. } if *ended == pid))
        };
        let started = Instant::now();
        while !has_ended(&changes) {
            assert!(started.elapsed() < Duration::from_secs(60), "{changes:?}");
            let told = births.drain();
            if told.lost {
                // Others on this host give birth faster than is read here: then nothing is known, and that is told.
                return;
            }
            changes.extend(told.changes);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(
            changes
                .iter()
                .any(|one| matches!(one, Control::Exec { pid: by, .. } if *by == pid))
        );
    }
}
