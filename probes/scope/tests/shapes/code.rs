//! Small routines in executable memory, and traces of them as offsets.
use scalpel_scope::{Budget, Code, Emit, HwBackend, HwTrace, Options, Trace};

pub(crate) const PAGES: usize = 0x10000;

/// A routine that is called at its first byte.
#[derive(Clone, Copy)]
pub(crate) struct Routine {
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// Whether this process's scopes may run code from copies, where a shape does not say how.
fn copies() -> bool {
    std::env::var("SCALPEL_TEST_GATE").is_ok_and(|gate| gate == "copies")
}

/// Options of a scope that steps each instruction, whatever the gate.
pub(crate) fn stepped() -> Options {
    Options {
        backend: HwBackend::SingleStep,
        ..quiet()
    }
}

pub(crate) fn quiet() -> Options {
    Options {
        backend: if copies() {
            HwBackend::Auto
        } else {
            HwBackend::SingleStep
        },
        // Other tests run beside this one.
        budget: Budget {
            time: std::time::Duration::from_secs(30),
            ..Budget::default()
        },
        emit: Emit::Off,
    }
}

/// Memory that can be written and run.
pub(crate) fn memory() -> usize {
    let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGES, access, kind, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at as usize
}

impl Routine {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let routine = Self::at(memory(), bytes);
        if copies() { routine.seal() } else { routine }
    }

    pub(crate) fn at(at: usize, bytes: &[u8]) -> Self {
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
        Self {
            at,
            len: bytes.len(),
        }
    }

    pub(crate) fn code(self) -> Code {
        Code::range(self.at, self.len)
    }

    /// From here on its code can be run, and not be written: so it may run from copies.
    pub(crate) fn seal(self) -> Self {
        let page = self.at & !4095;
        let access = libc::PROT_READ | libc::PROT_EXEC;
        let len = self.at + self.len - page;
        let result = unsafe { libc::mprotect(page as *mut libc::c_void, len, access) };
        assert_eq!(result, 0);
        self
    }

    /// Runs it natively.
    pub(crate) fn run(self, args: [u64; 6]) -> u64 {
        let function: extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64 =
            unsafe { std::mem::transmute(self.at) };
        let [a, b, c, d, e, f] = args;
        function(a, b, c, d, e, f)
    }

    /// Runs it in the call form, from copies where that can be.
    pub(crate) fn trace_copied(self, args: [u64; 6]) -> (u64, Trace) {
        unsafe {
            HwTrace::call(
                self.at,
                args,
                Options {
                    backend: HwBackend::Auto,
                    ..quiet()
                },
            )
        }
    }

    /// Runs it in the call form.
    pub(crate) fn trace(self, args: [u64; 6]) -> (u64, Trace) {
        unsafe { HwTrace::call(self.at, args, quiet()) }
    }

    pub(crate) fn offsets(self, trace: &Trace) -> Vec<u64> {
        trace
            .addresses()
            .map(|addr| addr.wrapping_sub(self.at as u64))
            .collect()
    }

    /// The trace must be complete, and these offsets.
    pub(crate) fn expect(self, args: [u64; 6], result: Option<u64>, offsets: &[u64]) -> Trace {
        let (got, trace) = self.trace(args);
        assert_eq!(trace.skip_reason, None);
        assert_eq!(self.offsets(&trace), offsets, "{}", trace.reasons);
        assert!(trace.is_complete(), "{}", trace.reasons);
        if let Some(result) = result {
            assert_eq!(got, result);
        }
        trace
    }
}
