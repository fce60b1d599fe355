//! Messages with open files, over a socket of the kernel's.
//!
//! A message is its length (u64, little endian), the number of its files (u32), its bytes, and then one byte for each file,
//! which carries the descriptor: a single message of the kernel's carries 253 at most.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Most bytes of a message: more than the functions of the largest programs take.
const MOST_BYTES: u64 = 1 << 30;

/// Most files of a message: nothing maps so many libraries.
const MOST_FILES: u32 = 1 << 16;

/// What is told at once.
#[derive(Debug)]
pub struct Message {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its files, in order.
    pub files: Vec<OwnedFd>,
}

/// One end.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl Channel {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(UnixStream::from(socket))
    }

    /// Tells; waits until the other side has taken enough of it.
    pub fn send(&mut self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let count = u32::try_from(files.len()).map_err(io::Error::other)?;
        self.0.write_all(&(bytes.len() as u64).to_le_bytes())?;
        self.0.write_all(&count.to_le_bytes())?;
        self.0.write_all(bytes)?;
        files.iter().try_for_each(|file| self.send_file(*file))
    }

    /// Waits for the next message; `None` = the other side has ended.
    pub fn receive(&mut self) -> io::Result<Option<Message>> {
        let mut head = [0; 12];
        let (length, count) = head.split_at_mut(8);
        match self.0.read_exact(length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        self.0.read_exact(count)?;
        let (length, count) = numbers(head);
        if length > MOST_BYTES || count > MOST_FILES {
            return Err(io::Error::other("a message of absurd size"));
        }
        // As much memory as there are bytes, and not as were announced.
        let mut bytes = Vec::new();
        (&mut self.0).take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let files = (0..count).map(|_| self.receive_file());
        let files = files.collect::<io::Result<_>>()?;
        Ok(Some(Message { bytes, files }))
    }

    fn send_file(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let files = [file];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::Error::other("no room for a descriptor"));
        }
        let byte = [IoSlice::new(&[0])];
        sendmsg(self.0.as_fd(), &byte, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn receive_file(&self) -> io::Result<OwnedFd> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut into = [IoSliceMut::new(&mut byte)];
        recvmsg(
            self.0.as_fd(),
            &mut into,
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let files = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        files
            .flatten()
            .next()
            .ok_or_else(|| io::Error::other("a file was announced and did not come"))
    }
}

fn numbers(head: [u8; 12]) -> (u64, u32) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = head;
    (
        u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        u32::from_le_bytes([i, j, k, l]),
    )
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn pair() -> (Channel, UnixStream) {
        let (one, two) = UnixStream::pair().unwrap();
        (Channel(one), two)
    }

    #[test]
    fn bytes_and_files_come_as_they_were_sent() {
        let (mut ours, theirs) = pair();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let path = move |index: usize| root.join(index.to_string());
        // More than one message of the kernel's may carry.
        for index in 0..300 {
            std::fs::write(path(index), index.to_string()).unwrap();
        }
        let text = vec![7; 3 << 20];
        let expect = text.clone();
        let sender = std::thread::spawn(move || {
            let files: Vec<File> = (0..300).map(|i| File::open(path(i)).unwrap()).collect();
            let held: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            let mut theirs = Channel(theirs);
            theirs.send(&text, &held).unwrap();
            theirs.send(b"", &[]).unwrap();
        });
        let message = ours.receive().unwrap().unwrap();
        assert_eq!(message.bytes, expect);
        for (index, file) in message.files.into_iter().enumerate() {
            let mut text = String::new();
            File::from(file).read_to_string(&mut text).unwrap();
            assert_eq!(text, index.to_string());
        }
        assert_eq!(ours.receive().unwrap().unwrap().bytes, b"");
        sender.join().unwrap();
        assert!(ours.receive().unwrap().is_none());
    }

    #[test]
    fn what_is_absurd_or_cut_is_an_error() {
        let said = |bytes: &[u8]| {
            let (mut ours, mut theirs) = pair();
            theirs.write_all(bytes).unwrap();
            drop(theirs);
            ours.receive()
        };
        let head =
            |length: u64, count: u32| [&length.to_le_bytes()[..], &count.to_le_bytes()].concat();
        assert!(said(&head(MOST_BYTES + 1, 0)).is_err());
        assert!(said(&head(0, MOST_FILES + 1)).is_err());
        assert!(said(&head(10, 0)).is_err(), "no bytes follow");
        assert!(
            said(&[&head(0, 1)[..], &[0]].concat()).is_err(),
            "no file follows"
        );
        assert!(said(&[]).unwrap().is_none());
    }
}
