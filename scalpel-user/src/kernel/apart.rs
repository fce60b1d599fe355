//! System calls that a process apart makes for us: it shares our memory and our descriptors, and not our death.
//!
//! To place or remove a breakpoint the kernel writes to the memory of those who run the file, and it refuses to for a task
//! that has just been killed (`fatal_signal_pending` in `__get_user_pages`, mm/gup.c): `uprobe_unregister` then gives up, and
//! the breakpoint stays for good ("failed to unregister, leaking uprobe" in the kernel's log). So whoever is killed in the
//! middle of an attach or a close leaves breakpoints behind. Here that cannot be the collector: while it dies, the process
//! apart makes its call to the end, and what the collector held open is closed by whichever of the two ends last.
//!
//! Must not know what the calls are for.

use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Of its stack the child needs some hundred bytes; the dynamic linker may bind a function there, which saves all registers.
const STACK_BYTES: usize = 64 << 10;

/// CPU time of all that ended, which the kernel does not count as ours.
static CPU_NS: AtomicU64 = AtomicU64::new(0);

/// CPU time in ns of the calls made so far.
pub fn cpu_ns() -> u64 {
    CPU_NS.load(Ordering::Relaxed)
}

/// A link. Dropping it closes it apart.
#[derive(Debug)]
pub(super) struct Link(ManuallyDrop<OwnedFd>);

impl From<OwnedFd> for Link {
    fn from(descriptor: OwnedFd) -> Self {
        Self(ManuallyDrop::new(descriptor))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let number = c_long::from(self.0.as_raw_fd());
        // SAFETY: the descriptor is ours alone, and is not dropped. A close takes it away, whatever it answers.
        let _closed = unsafe { call(libc::SYS_close, [number, 0, 0, 0, 0]) };
    }
}

/// Makes a system call apart. Where no process can be made, the call is made here.
///
/// # Safety
///
/// As for the call itself: pointers among the arguments lead to memory of ours that is valid until it returns, and a
/// descriptor that it closes has no other owner.
pub(super) unsafe fn call(number: c_long, arguments: [c_long; 5]) -> io::Result<i64> {
    let mut call = Call {
        number,
        arguments,
        answer: None,
    };
    match call.made_apart() {
        Ok(()) => {}
        // No more processes are allowed, or none that share memory.
        Err(_) => call.make(),
    }
    match call.answer {
        Some(Ok(value)) => Ok(value),
        Some(Err(errno)) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other(
            "the process that made the call was killed",
        )),
    }
}

struct Call {
    number: c_long,
    arguments: [c_long; 5],
    answer: Option<Result<i64, i32>>,
}

impl Call {
    fn make(&mut self) {
        let [a, b, c, d, e] = self.arguments;
        // SAFETY: the caller of `call` vouches for the number and its arguments, which outlive it.
        let answer = unsafe { libc::syscall(self.number, a, b, c, d, e) };
        self.answer = Some(if answer < 0 {
            Err(io::Error::last_os_error().raw_os_error().unwrap_or(0))
        } else {
            Ok(answer)
        });
    }

    /// Fails where no process could be made; else the call was made, or the process that had to make it was killed.
    fn made_apart(&mut self) -> io::Result<()> {
        // Aligned as the machine's calling convention wants it.
        let mut stack: Vec<u128> = vec![0; STACK_BYTES / size_of::<u128>()];
        let top = stack.as_mut_ptr_range().end;
        // No handler of ours may run in the child: it would run on this thread's own state.
        let mask = block_all_signals()?;
        // SAFETY: the child runs `child` on a stack of its own, which is freed after its end. This thread does not run until
        // then (CLONE_VFORK), so that what is per thread (errno) and `self` have one user at a time.
        let pid = unsafe {
            libc::clone(
                child,
                top.cast(),
                libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_VFORK,
                std::ptr::from_mut(self).cast(),
            )
        };
        let made = if pid < 0 {
            Err(io::Error::last_os_error())
        } else {
            reap(pid);
            Ok(())
        };
        restore(&mask);
        made
    }
}

/// What the child does: the call, in a session of its own, so that a signal for our process group is none for it.
extern "C" fn child(call: *mut c_void) -> c_int {
    // SAFETY: setsid takes nothing; where it is refused, the child stays where it is.
    unsafe { libc::setsid() };
    // SAFETY: the pointer is the `Call` of the thread that waits for us.
    unsafe { &mut *call.cast::<Call>() }.make();
    0
}

/// Waits for the child's end. It sends no signal then, and so no other wait of ours is for it.
fn reap(pid: c_int) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: the kernel writes a whole rusage, and no status is asked for.
        let waited =
            unsafe { libc::wait4(pid, std::ptr::null_mut(), libc::__WALL, usage.as_mut_ptr()) };
        if waited == pid {
            break;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
    // SAFETY: rusage is plain numbers, zeroed before the kernel wrote them.
    let usage = unsafe { usage.assume_init() };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    CPU_NS.fetch_add(ns(usage.ru_utime) + ns(usage.ru_stime), Ordering::Relaxed);
}

fn block_all_signals() -> io::Result<libc::sigset_t> {
    let (mut all, mut before) = (
        MaybeUninit::<libc::sigset_t>::zeroed(),
        MaybeUninit::<libc::sigset_t>::zeroed(),
    );
    // SAFETY: writes a whole set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: both sets are whole and ours.
    let failed =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    // SAFETY: pthread_sigmask wrote it.
    Ok(unsafe { before.assume_init() })
}

fn restore(mask: &libc::sigset_t) {
    // SAFETY: the mask is one that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(number: c_long, arguments: [c_long; 5]) -> io::Result<i64> {
        // SAFETY: the tests below give memory and descriptors of their own.
        unsafe { call(number, arguments) }
    }

    #[test]
    fn another_process_makes_the_call_and_sees_our_memory() {
        let mine = i64::from(std::process::id());
        let other = made(libc::SYS_getpid, [0; 5]).unwrap();
        assert!(other > 0 && other != mine, "{other}");
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let place = std::ptr::from_mut(&mut time) as c_long;
        let clock = c_long::from(libc::CLOCK_MONOTONIC);
        made(libc::SYS_clock_gettime, [clock, place, 0, 0, 0]).unwrap();
        assert!(time.tv_sec > 0);
        let error = made(libc::SYS_close, [-1, 0, 0, 0, 0]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn descriptors_are_ours_and_a_link_closes_apart() {
        let null = c"/dev/null";
        let at = c_long::from(libc::AT_FDCWD);
        let opened = made(libc::SYS_openat, [at, null.as_ptr() as c_long, 0, 0, 0]).unwrap();
        let path = format!("/proc/self/fd/{opened}");
        assert_eq!(
            std::fs::read_link(&path).unwrap().to_str(),
            Some("/dev/null")
        );
        drop(Link::from(
            std::fs::File::open(&path).map(OwnedFd::from).unwrap(),
        ));
        made(libc::SYS_close, [opened, 0, 0, 0, 0]).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let (link, number) = (
            Link::from(OwnedFd::from(file.try_clone().unwrap())),
            file.as_raw_fd(),
        );
        drop(link);
        assert!(std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok());
    }

    #[test]
    fn many_threads_make_calls_at_once_and_no_child_stays() {
        let others: Vec<i64> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| made(libc::SYS_getpid, [0; 5]).unwrap()))
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        for other in others {
            assert!(!std::path::Path::new(&format!("/proc/{other}")).exists());
        }
    }
}
