//! The one door for raw `bpf()` calls and the few other system calls that no library of ours makes; faked in tests.
//!
//! Must not know programs, functions or links: it takes descriptors and numbers and gives back descriptors and numbers.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use aya_obj::btf::{FuncSecInfo, LineSecInfo};
use aya_obj::generated::{
    bpf_attach_type, bpf_attr, bpf_cmd, bpf_insn, bpf_prog_info, bpf_prog_type, perf_event_attr,
};

use super::apart;

/// No attach type: for programs that are linked to perf events.
pub(super) const ATTACH_PERF: u32 = 0;
/// `BPF_TRACE_UPROBE_MULTI` (Linux 6.6).
pub(super) const ATTACH_UPROBE_MULTI: u32 = 48;
/// `BPF_TRACE_UPROBE_SESSION` (Linux 6.13): newer than the bindings of aya-obj 0.3.
pub(super) const ATTACH_UPROBE_SESSION: u32 = 57;
/// `BPF_F_UPROBE_MULTI_RETURN`.
pub(super) const UPROBE_MULTI_RETURN: u32 = 1;

/// `ENOTSUPP`, which the kernel answers for an instruction that it cannot probe; libc has no name for it.
pub(super) const ENOTSUPP: i32 = 524;

const VERIFIER_LOG_BYTES: usize = 1 << 20;

/// A program to load.
pub(super) struct ProgramLoad<'a> {
    /// Name; the kernel keeps 15 bytes of it.
    pub(super) name: &'a str,
    /// Relocated instructions.
    pub(super) instructions: &'a [bpf_insn],
    /// Licence.
    pub(super) license: &'a std::ffi::CStr,
    /// One of the `ATTACH_` numbers.
    pub(super) attach_type: u32,
    /// Types, with what they say about the instructions.
    pub(super) btf: Option<(BorrowedFd<'a>, &'a FuncSecInfo, &'a LineSecInfo)>,
}

/// Offsets of one file to attach a program to.
pub(super) struct MultiLink<'a> {
    /// Loaded program.
    pub(super) program: BorrowedFd<'a>,
    /// Attach type that the program was loaded with.
    pub(super) attach_type: u32,
    /// Path of the file.
    pub(super) path: &'a std::ffi::CStr,
    /// File offsets.
    pub(super) offsets: &'a [u64],
    /// One cookie per offset.
    pub(super) cookies: &'a [u64],
    /// Process to watch; 0 = all.
    pub(super) pid: u32,
    /// `UPROBE_MULTI_RETURN` or 0.
    pub(super) flags: u32,
}

/// Loads a program. A refusal comes with the verifier's log, empty if it said nothing.
pub(super) fn prog_load(load: &ProgramLoad<'_>) -> Result<OwnedFd, (io::Error, String)> {
    let refused = match prog_load_undisturbed(load, &mut []) {
        Ok(fd) => return Ok(fd),
        Err(refused) => refused,
    };
    let mut log = vec![0u8; VERIFIER_LOG_BYTES];
    match prog_load_undisturbed(load, &mut log) {
        Ok(fd) => Ok(fd),
        // A log that is longer than its buffer is an error by itself, whatever the verifier thinks of the program.
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => Err((refused, text_of(&log))),
        Err(error) => Err((error, text_of(&log))),
    }
}

/// The verifier gives up with EAGAIN when this thread is signalled meanwhile, also by a freezer, a debugger or a stop (`do_check`
/// in kernel/bpf/verifier.c): then it is asked again.
fn prog_load_undisturbed(load: &ProgramLoad<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    const ATTEMPTS: usize = 20;
    for _ in 1..ATTEMPTS {
        match prog_load_with_log(load, log) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            other => return other,
        }
    }
    prog_load_with_log(load, log)
}

fn prog_load_with_log(load: &ProgramLoad<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    let func_info = load
        .btf
        .map(|(_, func, _)| func.func_info_bytes())
        .unwrap_or_default();
    let line_info = load
        .btf
        .map(|(_, _, line)| line.line_info_bytes())
        .unwrap_or_default();
    // SAFETY: every bit pattern is valid for this member, and the attr is zeroed.
    let u = unsafe { &mut attr.__bindgen_anon_3 };
    u.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
    u.expected_attach_type = load.attach_type;
    u.insns = load.instructions.as_ptr() as u64;
    u.insn_cnt = load.instructions.len() as u32;
    u.license = load.license.as_ptr() as u64;
    for (to, from) in u.prog_name.iter_mut().take(15).zip(load.name.bytes()) {
        *to = from as std::ffi::c_char;
    }
    if let Some((btf, func, line)) = load.btf {
        u.prog_btf_fd = btf.as_raw_fd() as u32;
        u.func_info = func_info.as_ptr() as u64;
        u.func_info_cnt = func.func_info.len() as u32;
        u.func_info_rec_size = size_of::<aya_obj::generated::bpf_func_info>() as u32;
        u.line_info = line_info.as_ptr() as u64;
        u.line_info_cnt = line.line_info.len() as u32;
        u.line_info_rec_size = size_of::<aya_obj::generated::bpf_line_info>() as u32;
    }
    if !log.is_empty() {
        u.log_level = 1;
        u.log_buf = log.as_mut_ptr() as u64;
        u.log_size = log.len() as u32;
    }
    descriptor(bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr)?)
}

/// Loads type information.
pub(super) fn btf_load(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: every bit pattern is valid for this member, and the attr is zeroed.
    let u = unsafe { &mut attr.__bindgen_anon_7 };
    u.btf = bytes.as_ptr() as u64;
    u.btf_size = bytes.len() as u32;
    descriptor(bpf(bpf_cmd::BPF_BTF_LOAD, &mut attr)?)
}

/// Attaches a program to many offsets of a file at once, apart. The probes live as long as the descriptor.
pub(super) fn uprobe_multi_link(link: &MultiLink<'_>) -> io::Result<OwnedFd> {
    debug_assert_eq!(link.offsets.len(), link.cookies.len());
    let mut attr = zeroed_attr();
    // SAFETY: every bit pattern is valid for this member, and the attr is zeroed.
    let create = unsafe { &mut attr.link_create };
    create.__bindgen_anon_1.prog_fd = link.program.as_raw_fd() as u32;
    create.attach_type = link.attach_type;
    // SAFETY: as above, for the union inside.
    let multi = unsafe { &mut create.__bindgen_anon_3.uprobe_multi };
    multi.path = link.path.as_ptr() as u64;
    multi.offsets = link.offsets.as_ptr() as u64;
    multi.cookies = link.cookies.as_ptr() as u64;
    multi.cnt = link.offsets.len() as u32;
    multi.flags = link.flags;
    multi.pid = link.pid;
    descriptor(bpf_apart(bpf_cmd::BPF_LINK_CREATE, &mut attr)?)
}

/// A probe of the uprobe PMU: one offset of one file.
pub(super) struct PerfProbe<'a> {
    /// Number of the PMU (`/sys/bus/event_source/devices/uprobe/type`).
    pub(super) pmu: u32,
    /// Bits of `config`: the return-probe bit, or 0.
    pub(super) config: u64,
    /// Path of the file.
    pub(super) path: &'a std::ffi::CStr,
    /// File offset.
    pub(super) offset: u64,
    /// Process to watch; `None` = all.
    pub(super) pid: Option<u32>,
}

/// Opens a perf event for a uprobe; it does nothing until a program is linked to it.
pub(super) fn perf_uprobe_open(probe: &PerfProbe<'_>) -> io::Result<OwnedFd> {
    // SAFETY: perf_event_attr is plain numbers, and the kernel demands zeroes in what the event does not use.
    let mut attr: perf_event_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    attr.type_ = probe.pmu;
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.config = probe.config;
    attr.__bindgen_anon_3.config1 = probe.path.as_ptr() as u64;
    attr.__bindgen_anon_4.config2 = probe.offset;
    // With a pid the event follows the process on all processors; without, one processor stands for all: the program
    // runs in the probe's handler, wherever it is hit.
    let (pid, cpu) = probe.pid.map_or((-1, 0), |pid| (pid as i32, -1));
    const FLAG_CLOEXEC: i64 = 8;
    let (place, pid) = (&raw const attr as i64, i64::from(pid));
    // SAFETY: `attr` and the path it points to outlive the call.
    let answer = unsafe {
        apart::call(
            libc::SYS_perf_event_open,
            [place, pid, cpu, -1, FLAG_CLOEXEC],
        )
    };
    descriptor(answer?)
}

/// Links a program to a perf event. The link keeps the event.
pub(super) fn perf_link(
    program: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: every bit pattern is valid for this member, and the attr is zeroed.
    let create = unsafe { &mut attr.link_create };
    create.__bindgen_anon_1.prog_fd = program.as_raw_fd() as u32;
    create.__bindgen_anon_2.target_fd = event.as_raw_fd() as u32;
    create.attach_type = bpf_attach_type::BPF_PERF_EVENT as u32;
    create.__bindgen_anon_3.perf_event.bpf_cookie = cookie;
    descriptor(bpf_apart(bpf_cmd::BPF_LINK_CREATE, &mut attr)?)
}

/// What the kernel tells about a loaded program.
pub(super) fn prog_info(program: BorrowedFd<'_>) -> io::Result<bpf_prog_info> {
    // SAFETY: bpf_prog_info is plain numbers; zeroed pointers and counts ask for no arrays.
    let mut info: bpf_prog_info = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut attr = zeroed_attr();
    // SAFETY: every bit pattern is valid for this member, and the attr is zeroed.
    let u = unsafe { &mut attr.info };
    u.bpf_fd = program.as_raw_fd() as u32;
    u.info_len = size_of::<bpf_prog_info>() as u32;
    u.info = std::ptr::from_mut(&mut info) as u64;
    bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(info)
}

/// CPU time that a process has used so far, all threads together, in ns.
pub fn process_cpu_ns(pid: u32) -> io::Result<u64> {
    // The clock id of a process is `~pid << 3 | CPUCLOCK_SCHED` (linux/posix-timers.h), which is what
    // clock_getcpuclockid() computes; only libc's binding of it is missing on some targets.
    let clock = (!(pid as i32) << 3) | 2;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writes for the whole call; an unknown clock id is answered with EINVAL.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// `path` as the kernel takes it.
pub(super) fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

fn zeroed_attr() -> bpf_attr {
    // SAFETY: bpf_attr is a union of plain numbers, for which zero is valid; the kernel demands zeroes in what the
    // command does not use.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn descriptor(number: i64) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(number).map_err(io::Error::other)?;
    // SAFETY: the commands that come here return a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn text_of(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(log.get(..end).unwrap_or_default()).into_owned()
}

type Bpf = fn(bpf_cmd, &mut bpf_attr) -> io::Result<i64>;

/// As [`bpf`], by a process that is not killed with us.
fn bpf_apart(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i64> {
    answered(command, attr, real_bpf_apart)
}

fn real_bpf_apart(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i64> {
    let place = std::ptr::from_mut(attr) as i64;
    let size = size_of::<bpf_attr>() as i64;
    // SAFETY: `attr` is a whole bpf_attr whose pointers refer to buffers that its callers above keep alive.
    unsafe { apart::call(libc::SYS_bpf, [command as i64, place, size, 0, 0]) }
}

fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i64> {
    answered(command, attr, real_bpf)
}

/// By the kernel, or by a test.
#[cfg(not(test))]
fn answered(command: bpf_cmd, attr: &mut bpf_attr, real: Bpf) -> io::Result<i64> {
    real(command, attr)
}

#[cfg(test)]
fn answered(command: bpf_cmd, attr: &mut bpf_attr, real: Bpf) -> io::Result<i64> {
    fake::answer(command, attr).unwrap_or_else(|| real(command, attr))
}

fn real_bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i64> {
    // SAFETY: `attr` is a whole bpf_attr whose pointers refer to buffers that its callers above keep alive.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as u32,
            std::ptr::from_mut(attr),
            size_of::<bpf_attr>(),
        )
    };
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer)
    }
}

/// Lets a test answer the calls of its thread.
#[cfg(test)]
pub(super) mod fake {
    use std::cell::RefCell;
    use std::io;

    use aya_obj::generated::{bpf_attr, bpf_cmd};

    type Answer = Box<dyn FnMut(bpf_cmd, &mut bpf_attr) -> io::Result<i64>>;

    thread_local! {
        static ANSWER: RefCell<Option<Answer>> = const { RefCell::new(None) };
    }

    /// Sends all `bpf()` calls of this thread to `answer`.
    pub(in crate::kernel) fn install(
        answer: impl FnMut(bpf_cmd, &mut bpf_attr) -> io::Result<i64> + 'static,
    ) {
        ANSWER.set(Some(Box::new(answer)));
    }

    pub(super) fn answer(command: bpf_cmd, attr: &mut bpf_attr) -> Option<io::Result<i64>> {
        ANSWER.with_borrow_mut(|answer| answer.as_mut().map(|answer| answer(command, attr)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A descriptor to hand out: the fake must not give away one that somebody owns.
    fn some_fd() -> i64 {
        use std::os::fd::IntoRawFd;
        i64::from(std::fs::File::open("/dev/null").unwrap().into_raw_fd())
    }

    #[test]
    fn a_multi_link_carries_path_offsets_cookies_and_pid() {
        fake::install(|command, attr| {
            assert_eq!(command as u32, bpf_cmd::BPF_LINK_CREATE as u32);
            // SAFETY: the caller filled the uprobe_multi member.
            let (link, multi) = unsafe {
                (
                    attr.link_create,
                    attr.link_create.__bindgen_anon_3.uprobe_multi,
                )
            };
            assert_eq!(
                (link.attach_type, multi.cnt, multi.pid, multi.flags),
                (48, 2, 7, 1)
            );
            // SAFETY: `offsets` and `cookies` point to `cnt` numbers that outlive the call.
            let offsets = unsafe { std::slice::from_raw_parts(multi.offsets as *const u64, 2) };
            // SAFETY: as above.
            let cookies = unsafe { std::slice::from_raw_parts(multi.cookies as *const u64, 2) };
            assert_eq!((offsets, cookies), (&[16u64, 32][..], &[1u64, 2][..]));
            Ok(some_fd())
        });
        let null = std::fs::File::open("/dev/null").unwrap();
        let link = MultiLink {
            program: null.as_fd(),
            attach_type: ATTACH_UPROBE_MULTI,
            path: c"/bin/true",
            offsets: &[16, 32],
            cookies: &[1, 2],
            pid: 7,
            flags: UPROBE_MULTI_RETURN,
        };
        uprobe_multi_link(&link).unwrap();
    }

    #[test]
    fn a_refused_program_is_loaded_again_for_its_log() {
        fake::install(|_, attr| {
            // SAFETY: the caller filled this member.
            let load = unsafe { attr.__bindgen_anon_3 };
            if load.log_size > 0 {
                // SAFETY: the log buffer has log_size bytes.
                unsafe {
                    std::ptr::copy_nonoverlapping(c"bad insn".as_ptr(), load.log_buf as *mut _, 9)
                };
            }
            Err(io::Error::from_raw_os_error(libc::EACCES))
        });
        let load = ProgramLoad {
            name: "x",
            instructions: &[],
            license: c"GPL",
            attach_type: ATTACH_UPROBE_MULTI,
            btf: None,
        };
        let (error, log) = prog_load(&load).unwrap_err();
        assert_eq!(
            (error.raw_os_error(), log.as_str()),
            (Some(libc::EACCES), "bad insn")
        );
    }

    #[test]
    fn a_load_that_a_signal_disturbed_is_made_again() {
        let load = ProgramLoad {
            name: "x",
            instructions: &[],
            license: c"GPL",
            attach_type: ATTACH_UPROBE_MULTI,
            btf: None,
        };
        let mut disturbed = 3;
        fake::install(move |_, _| {
            disturbed -= 1;
            if disturbed < 0 {
                Ok(some_fd())
            } else {
                Err(io::Error::from_raw_os_error(libc::EAGAIN))
            }
        });
        prog_load(&load).unwrap();
        fake::install(|_, _| Err(io::Error::from_raw_os_error(libc::EAGAIN)));
        let (error, _) = prog_load(&load).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    }

    #[test]
    fn a_log_that_is_too_long_does_not_hide_why_a_program_was_refused() {
        fake::install(|_, attr| {
            // SAFETY: the caller filled this member.
            let load = unsafe { attr.__bindgen_anon_3 };
            let errno = if load.log_size > 0 {
                libc::ENOSPC
            } else {
                libc::EPERM
            };
            Err(io::Error::from_raw_os_error(errno))
        });
        let load = ProgramLoad {
            name: "x",
            instructions: &[],
            license: c"GPL",
            attach_type: ATTACH_UPROBE_MULTI,
            btf: None,
        };
        let (error, _) = prog_load(&load).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn the_cpu_clock_of_a_process_runs_and_an_unknown_one_is_an_error() {
        assert!(process_cpu_ns(std::process::id()).unwrap() > 0);
        assert!(process_cpu_ns(0x3fff_fff0).is_err());
    }
}
