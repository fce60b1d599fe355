//! System calls without libc: nothing here sets errno, takes a lock or allocates, so that the handler may use it.
use std::arch::asm;

/// Numbers of the 64-bit table that the guard must know.
pub(super) mod nr {
    pub(crate) const MMAP: u64 = 9;
    pub(crate) const MPROTECT: u64 = 10;
    pub(crate) const MUNMAP: u64 = 11;
    pub(crate) const RT_SIGACTION: u64 = 13;
    pub(crate) const RT_SIGPROCMASK: u64 = 14;
    pub(crate) const RT_SIGRETURN: u64 = 15;
    pub(crate) const MREMAP: u64 = 25;
    pub(crate) const SHMAT: u64 = 30;
    pub(crate) const CLONE: u64 = 56;
    pub(crate) const FORK: u64 = 57;
    pub(crate) const VFORK: u64 = 58;
    pub(crate) const EXECVE: u64 = 59;
    pub(crate) const EXIT: u64 = 60;
    pub(crate) const SHMDT: u64 = 67;
    pub(crate) const SIGALTSTACK: u64 = 131;
    pub(crate) const PRCTL: u64 = 157;
    pub(crate) const REMAP_FILE_PAGES: u64 = 216;
    pub(crate) const SECCOMP: u64 = 317;
    pub(crate) const EXECVEAT: u64 = 322;
    pub(crate) const PKEY_MPROTECT: u64 = 329;
    pub(crate) const URETPROBE: u64 = 335;
    pub(crate) const CLONE3: u64 = 435;
}

/// One system call; a negative result is `-errno`.
///
/// # Safety
/// The call must be sound with these arguments.
pub(super) unsafe fn call(number: u64, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    let result: i64;
    // SAFETY: the kernel keeps all registers but rax, rcx and r11; what the call itself does is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c,
             in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
    }
    result
}

/// The calling thread's id.
pub(super) fn gettid() -> u32 {
    // SAFETY: no arguments, no effect.
    let tid = unsafe { call(186, [0; 6]) };
    u32::try_from(tid).unwrap_or(0)
}

/// The process's id.
pub(super) fn getpid() -> u32 {
    // SAFETY: no arguments, no effect.
    let pid = unsafe { call(39, [0; 6]) };
    u32::try_from(pid).unwrap_or(0)
}

/// The signals that wait for this thread or its process.
pub(super) fn pending() -> u64 {
    let mut set = 0_u64;
    // SAFETY: the kernel writes eight bytes into `set`.
    unsafe { call(127, [(&raw mut set) as u64, 8, 0, 0, 0, 0]) };
    set
}

/// `CLOCK_MONOTONIC` in ns.
pub(super) fn now_ns() -> u64 {
    clock_ns(1)
}

/// What this thread has run, in ns.
pub(super) fn thread_ns() -> u64 {
    clock_ns(3)
}

fn clock_ns(clock: u64) -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: the kernel writes 16 bytes into `time`.
    unsafe { call(228, [clock, time.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    let [seconds, nanos] = time;
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}

/// What the program's last failed call left.
pub(crate) fn errno() -> i32 {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Gives the program back what its last failed call left.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno };
}
