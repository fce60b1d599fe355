//! Text of files is read once: what is changed there all the same is shown as it ran, or is a reason.
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use scalpel_scope::{HwTrace, Reasons};

use crate::code::{Routine, stepped};

const PAGE: usize = 4096;

/// A routine in a private mapping of a file.
fn mapped(bytes: &[u8]) -> Routine {
    let mut file = tempfile::tempfile().unwrap();
    let mut page = [0x90; PAGE];
    page[..bytes.len()].copy_from_slice(bytes);
    file.write_all(&page).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let access = libc::PROT_READ | libc::PROT_EXEC;
    let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, libc::MAP_PRIVATE, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    Routine {
        at: at as usize,
        len: bytes.len(),
    }
}

/// Puts a byte in the place of another, as a program that patches itself does.
fn patch(routine: Routine, offset: usize, byte: u8) {
    let at = routine.at as *mut libc::c_void;
    let (read, write, run) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
    unsafe {
        assert_eq!(libc::mprotect(at, PAGE, read | write | run), 0);
        (routine.at as *mut u8).add(offset).write_volatile(byte);
        assert_eq!(libc::mprotect(at, PAGE, read | run), 0);
    }
}

fn immediates(routine: Routine, trace: &scalpel_scope::Trace) -> Vec<u8> {
    let first = |code: &&scalpel_scope::trace::Code| code.addr == routine.at as u64;
    trace
        .code
        .iter()
        .filter(first)
        .map(|code| code.bytes[1])
        .collect()
}

pub(crate) fn text_that_the_thread_patches_is_shown_as_it_ran() {
    // mov eax, 1; ret
    let routine = mapped(&[0xb8, 1, 0, 0, 0, 0xc3]);
    let mut scope = HwTrace::window(stepped());
    let one = routine.run([0; 6]);
    patch(routine, 1, 2);
    let two = routine.run([0; 6]);
    let trace = scope.close().unwrap();
    assert_eq!((one, two), (1, 2));
    assert_eq!(immediates(routine, &trace), [1, 2]);
    assert!(trace.is_complete(), "{}", trace.reasons);
}

pub(crate) fn text_that_the_thread_unmaps_is_no_change() {
    let routine = mapped(&[0xb8, 1, 0, 0, 0, 0xc3]);
    let mut scope = HwTrace::window(stepped());
    routine.run([0; 6]);
    let gone = unsafe { libc::munmap(routine.at as *mut libc::c_void, PAGE) };
    let trace = scope.close().unwrap();
    assert_eq!(gone, 0);
    assert_eq!(immediates(routine, &trace), [1]);
    assert!(trace.is_complete(), "{}", trace.reasons);
}

pub(crate) fn text_that_another_thread_patches_is_a_reason() {
    // 0: mov eax, 1; 5: inc dword [rdi + 4]; 8: cmp dword [rdi], 0; 11: je 0; 13: ret
    let routine = mapped(&[
        0xb8, 1, 0, 0, 0, 0xff, 0x47, 4, 0x83, 0x3f, 0, 0x74, 0xf3, 0xc3,
    ]);
    let words = [const { AtomicU32::new(0) }; 2];
    let [go, turns] = &words;
    let at = words.as_ptr() as u64;
    let (result, trace) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let more = |turn| {
                while turns.load(Ordering::Acquire) < turn {
                    std::thread::yield_now();
                }
            };
            more(3);
            patch(routine, 1, 2);
            more(turns.load(Ordering::Acquire) + 3);
            go.store(1, Ordering::Release);
        });
        unsafe { HwTrace::call(routine.at, [at, 0, 0, 0, 0, 0], stepped()) }
    });
    assert_eq!(result, 2);
    assert!(
        trace.reasons.contains(Reasons::CODE_CHANGED),
        "{}",
        trace.reasons
    );
    // And only once: the next scope finds it as it is.
    routine.expect([at, 0, 0, 0, 0, 0], Some(2), &[0, 5, 8, 11, 13]);
}
