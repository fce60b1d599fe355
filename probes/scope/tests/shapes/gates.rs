//! Processes with less: as nobody, and behind a seccomp filter.

const DENIED: [u32; 3] = [298, 321, 101]; // perf_event_open, bpf, ptrace

/// Gives up what the gate says, for good.
pub(crate) fn close(gate: Option<&str>) {
    match gate {
        // Code runs from copies: the options see to it.
        None | Some("copies") => {}
        Some("nobody") => become_nobody(),
        Some("seccomp") => deny(),
        Some(other) => panic!("no gate {other}"),
    }
}

fn become_nobody() {
    if unsafe { libc::getuid() } != 0 {
        return;
    }
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setresgid(65534, 65534, 65534), 0);
        assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
        // As a program that nobody has started.
        assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
    }
}

fn deny() {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = vec![step(0x20, 0, 0, 0)];
    for (left, number) in DENIED
        .iter()
        .enumerate()
        .map(|(at, number)| (DENIED.len() - at, number))
    {
        filter.push(step(0x15, u8::try_from(left).unwrap(), 0, *number));
    }
    filter.push(step(0x06, 0, 0, 0x7fff_0000));
    filter.push(step(0x06, 0, 0, 0x0005_0001)); // EPERM
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap(),
        filter: filter.as_mut_ptr(),
    };
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program), 0);
        assert_eq!(
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0),
            -1,
            "the filter holds"
        );
    }
}
