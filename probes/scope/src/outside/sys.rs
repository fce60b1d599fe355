//! The system calls of the guardian: ptrace, wait, perf events, memory of another process. Each wrapper turns what the
//! kernel says into a value; none knows what it is for.
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

/// A thread's number.
pub(super) type Tid = i32;
/// General registers of a stopped thread.
pub(super) type Registers = libc::user_regs_struct;

/// What a stopped or ended thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is about to receive a signal.
    Signal(i32),
    /// It stands at the begin or the end of a system call.
    SystemCall,
    /// A ptrace event, with the signal it came with.
    Event(i32, i32),
    /// It is gone.
    Gone,
}

impl Stop {
    fn of(status: i32) -> Self {
        if !libc::WIFSTOPPED(status) {
            return Self::Gone;
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 if signal == libc::SIGTRAP | 0x80 => Self::SystemCall,
            0 => Self::Signal(signal),
            event => Self::Event(event, signal),
        }
    }

    /// Whether the whole process was stopped by a signal.
    pub(super) fn is_group_stop(self) -> bool {
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        matches!(self, Self::Event(libc::PTRACE_EVENT_STOP, signal) if stops.contains(&signal))
    }
}

/// What the kernel tells of a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SignalInfo {
    /// `si_code`.
    pub(super) code: i32,
    /// `si_perf_data`, for signals of perf events.
    pub(super) perf_data: u64,
    /// `si_perf_flags`: 1 if the signal came late, because it was blocked.
    pub(super) perf_flags: u32,
}

fn ptrace(request: libc::c_uint, tid: Tid, addr: u64, data: u64) -> io::Result<i64> {
    // SAFETY: requests that write into this process's memory are made by the wrappers below, with room for what they
    // write; all others touch the traced thread alone.
    let result = unsafe { libc::ptrace(request, tid, addr, data) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Traces a thread, without stopping it.
pub(super) fn seize(tid: Tid, options: i32) -> io::Result<()> {
    ptrace(
        libc::PTRACE_SEIZE,
        tid,
        0,
        u64::from(options.unsigned_abs()),
    )
    .map(drop)
}

/// Sets how a stopped thread is traced.
pub(super) fn set_options(tid: Tid, options: i32) -> io::Result<()> {
    let options = u64::from(options.unsigned_abs());
    ptrace(libc::PTRACE_SETOPTIONS, tid, 0, options).map(drop)
}

/// Lets a stopped thread run.
pub(super) fn resume(tid: Tid, signal: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_CONT, tid, 0, u64::from(signal.unsigned_abs())).map(drop)
}

/// Lets a stopped thread run one instruction.
pub(super) fn step(tid: Tid, signal: i32) -> io::Result<()> {
    ptrace(
        libc::PTRACE_SINGLESTEP,
        tid,
        0,
        u64::from(signal.unsigned_abs()),
    )
    .map(drop)
}

/// Lets a stopped thread run to the next begin or end of a system call.
pub(super) fn to_system_call(tid: Tid, signal: i32) -> io::Result<()> {
    ptrace(
        libc::PTRACE_SYSCALL,
        tid,
        0,
        u64::from(signal.unsigned_abs()),
    )
    .map(drop)
}

/// Traces a stopped thread no more, and lets it run.
pub(super) fn detach(tid: Tid, signal: i32) -> io::Result<()> {
    ptrace(
        libc::PTRACE_DETACH,
        tid,
        0,
        u64::from(signal.unsigned_abs()),
    )
    .map(drop)
}

/// Asks a thread to stop.
pub(super) fn interrupt(tid: Tid) -> io::Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Leaves a thread in its group stop, and hears when it ends.
pub(super) fn listen(tid: Tid) -> io::Result<()> {
    ptrace(libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

/// Sends a thread a signal.
pub(super) fn send(pid: Tid, tid: Tid, signal: i32) {
    // SAFETY: numbers only. A thread that is gone needs no signal.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) };
}

/// The registers of a stopped thread.
pub(super) fn registers(tid: Tid) -> io::Result<Registers> {
    let mut registers = MaybeUninit::<Registers>::uninit();
    ptrace(libc::PTRACE_GETREGS, tid, 0, registers.as_mut_ptr() as u64)?;
    // SAFETY: the request succeeded, so the kernel has filled all of it.
    Ok(unsafe { registers.assume_init() })
}

/// Replaces the registers of a stopped thread, all at once.
pub(super) fn set_registers(tid: Tid, registers: &Registers) -> io::Result<()> {
    let at = std::ptr::from_ref(registers) as u64;
    ptrace(libc::PTRACE_SETREGS, tid, 0, at).map(drop)
}

/// What came with the signal that a thread is about to receive.
pub(super) fn signal_info(tid: Tid) -> io::Result<SignalInfo> {
    let mut info = [0_u64; 16];
    ptrace(libc::PTRACE_GETSIGINFO, tid, 0, info.as_mut_ptr() as u64)?;
    let [_, code, _, data, flags, ..] = info;
    let low = |word: u64| u32::try_from(word & 0xffff_ffff).unwrap_or(0);
    Ok(SignalInfo {
        code: low(code).cast_signed(),
        perf_data: data,
        perf_flags: low(flags >> 32),
    })
}

/// The signals that a stopped thread has blocked.
pub(super) fn mask(tid: Tid) -> io::Result<u64> {
    let mut mask = 0_u64;
    ptrace(libc::PTRACE_GETSIGMASK, tid, 8, (&raw mut mask) as u64)?;
    Ok(mask)
}

/// Blocks these signals, and no others, in a stopped thread.
pub(super) fn set_mask(tid: Tid, mask: u64) -> io::Result<()> {
    ptrace(libc::PTRACE_SETSIGMASK, tid, 8, (&raw const mask) as u64).map(drop)
}

/// Writes words into a stopped thread's memory, read-only pages too: those become its own.
pub(super) fn poke(tid: Tid, addr: u64, bytes: &[u8]) -> io::Result<()> {
    let (words, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (at, word) in (addr..).step_by(8).zip(words) {
        ptrace(libc::PTRACE_POKEDATA, tid, at, u64::from_le_bytes(*word))?;
    }
    Ok(())
}

/// The next thread that stopped or ended; `None` if none has, and `wait` is off.
pub(super) fn wait(tid: Tid, wait: bool) -> io::Result<Option<(Tid, Stop)>> {
    let flags = if wait {
        libc::__WALL
    } else {
        libc::__WALL | libc::WNOHANG
    };
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes one number into `status`.
        let got = unsafe { libc::waitpid(tid, &raw mut status, flags) };
        match got {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            tid => return Ok(Some((tid, Stop::of(status)))),
        }
    }
}

/// Fills `buffer` from another process, as far as memory is there; returns how many bytes.
pub(super) fn read_memory(pid: Tid, addr: u64, buffer: &mut [u8]) -> usize {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: addr as *mut libc::c_void,
        iov_len: buffer.len(),
    };
    // SAFETY: the local vector is `buffer`, which lives through the call; a bad remote address is the kernel's error.
    let got = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match usize::try_from(got) {
        Ok(got) if got > 0 => got,
        _ => read_as_debugger(pid, addr, buffer),
    }
}

/// By `/proc/PID/mem`, which reads execute-only pages too, and up to the last byte before a hole.
fn read_as_debugger(pid: Tid, addr: u64, buffer: &mut [u8]) -> usize {
    use std::os::unix::fs::FileExt;
    let mut read = || fs::File::open(format!("/proc/{pid}/mem"))?.read_at(buffer, addr);
    read().unwrap_or(0)
}

/// A word of another process.
pub(super) fn read_word(pid: Tid, addr: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    (read_memory(pid, addr, &mut bytes) == bytes.len()).then(|| u64::from_le_bytes(bytes))
}

/// Writes into writable memory of another process.
pub(super) fn write_memory(pid: Tid, addr: u64, bytes: &[u8]) -> io::Result<()> {
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: addr as *mut libc::c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: the local vector is only read; a bad remote address is the kernel's error.
    let put = unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    if usize::try_from(put) == Ok(bytes.len()) {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Opens a perf event on a thread, on whatever processor it runs.
pub(super) fn perf_event(attr: &[u64], tid: Tid) -> io::Result<OwnedFd> {
    let (any, none, cloexec) = (-1, -1, 8_u64);
    // SAFETY: the attribute says its own length, which is that of the slice; a new descriptor or an error.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attr.as_ptr(),
            tid,
            any,
            none,
            cloexec,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: a descriptor that nobody else has.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An `ioctl` of a perf event whose argument is a number, or an attribute that is only read.
pub(super) fn perf_control(event: &OwnedFd, request: u64, argument: u64) -> io::Result<()> {
    // SAFETY: perf's requests that are made here read at most the attribute that `argument` points at.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request, argument) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes each overflow of an event send `signal` to the thread itself.
pub(super) fn signal_thread(event: &OwnedFd, tid: Tid, signal: i32) -> io::Result<()> {
    const OWNER_THREAD: i32 = 0;
    const SET_OWNER: i32 = 15;
    const SET_SIGNAL: i32 = 10;
    let owner = [OWNER_THREAD, tid];
    let fd = event.as_raw_fd();
    let done = |result: i32| {
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the kernel reads two numbers.
    done(unsafe { libc::fcntl(fd, SET_OWNER, owner.as_ptr()) })?;
    // SAFETY: numbers only.
    done(unsafe { libc::fcntl(fd, SET_SIGNAL, signal) })?;
    // SAFETY: numbers only.
    done(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) })
}

/// Keeps this process on one processor, or lets it run on all.
pub(super) fn pin(processor: Option<usize>) {
    // SAFETY: a set of bits, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let all = 0..usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    for number in all.filter(|number| processor.is_none_or(|only| only == *number)) {
        // SAFETY: `number` is below the size of the set.
        unsafe { libc::CPU_SET(number, &mut set) };
    }
    // SAFETY: the kernel reads the set. Where it may not be so, steps only cost more.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

fn child_signal() -> libc::sigset_t {
    // SAFETY: a set of bits, for which zero is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid, and so is the signal.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGCHLD) };
    set
}

/// Keeps the signal of a stopped child for [`child_events`], in this thread and those that it starts.
pub(super) fn hold_child_signal() {
    let set = child_signal();
    // SAFETY: the kernel reads the set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, null_mut()) };
}

/// A descriptor that is readable when a traced thread stopped.
pub(super) fn child_events() -> io::Result<OwnedFd> {
    let set = child_signal();
    // SAFETY: a new descriptor or an error.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until one of two descriptors is readable; tells which. Neither after `ms` milliseconds.
pub(super) fn readable(one: i32, other: i32, ms: i32) -> (bool, bool) {
    let entry = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut both = [entry(one), entry(other)];
    // SAFETY: two entries, as it says.
    unsafe { libc::poll(both.as_mut_ptr(), 2, ms) };
    let [one, other] = both;
    (one.revents != 0, other.revents != 0)
}

/// Takes what a signal descriptor holds.
pub(super) fn drain(fd: &OwnedFd) {
    let mut buffer = [0_u8; 1024];
    // SAFETY: the kernel writes at most the length of the buffer.
    while unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) } > 0 {}
}

/// Signals that end the tool do not end the guardian: it ends when nobody listens any more.
pub(super) fn outlive_the_terminal() {
    for signal in [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGPIPE,
        libc::SIGQUIT,
    ] {
        // SAFETY: to ignore a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// The monotonic clock, in ns.
pub(super) fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
