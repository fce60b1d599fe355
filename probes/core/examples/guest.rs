//! A program with a probe, for `tests/guest.rs`: does what its first argument says, and prints one line that the test knows.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use scalpel::{Hello, Name, Segment, Source};

const SOURCE: Source = Source::C;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let number = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1000);
    let descriptors_before = descriptors();
    prepare(&what);
    let joined = scalpel::connect(&Hello {
        source: SOURCE,
        runtime: "guest 1",
    });
    match joined {
        Ok(segment) => {
            let func = segment.new_function();
            segment.name(
                func,
                &Name {
                    line: 7,
                    file: "guest.rs",
                    ..Name::new(SOURCE, "work")
                },
            );
            if what == "descriptors" {
                println!("{}", descriptors() - descriptors_before);
            }
            act(&what, segment, func, number);
        }
        Err(refusal) => println!("refused: {refusal}"),
    }
}

/// What has to be so before the handshake.
fn prepare(what: &str) {
    let limit = |resource, most| {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: a pointer to a limit.
        unsafe { libc::setrlimit(resource, &raw const limit) };
    };
    match what {
        "no-descriptors" => limit(libc::RLIMIT_NOFILE, 3),
        "no-file-size" => limit(libc::RLIMIT_FSIZE, 0),
        "no-address-space" => limit(libc::RLIMIT_AS, 200 << 20),
        "no-clock" => {
            // SAFETY: from here on `rdtsc` is a SIGSEGV.
            unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) };
        }
        _ => {}
    }
}

fn act(what: &str, segment: &'static Segment, func: u32, number: u64) {
    match what {
        "calls" | "no-file-size" => calls(func, number),
        "asked" => asked(func),
        "threads" => threads(func, number),
        "many-threads" => (0..number).for_each(|_| thread(func, 10)),
        "fork" => fork(func, number),
        "vfork" => vfork(func, number),
        "endless" => loop {
            calls(func, 1);
        },
        "names" => (0..number).for_each(|at| name(segment, at)),
        "tasks" => (0..number).for_each(|_| thread(1, 1)),
        "handler" => handler(func, number),
        "exit" => exit(func, number),
        "signals" => println!("{}", masks()),
        _ => {}
    }
}

fn call(func: u32) -> u64 {
    let token = scalpel::enter(SOURCE, func, 0, 0, 0, 0);
    black_box(func);
    scalpel::exit(token, SOURCE, func, 0, 0, 0, 0);
    token
}

fn calls(func: u32, number: u64) {
    for _ in 0..number {
        call(func);
    }
}

/// Makes as many calls as each line of its input says, and says so when they are made. With `thread` another thread makes them, with
/// `fork` another process.
fn asked(func: u32) {
    println!("ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        match words.next() {
            Some("thread") => thread(func, number),
            Some("fork") => forked(func, number),
            _ => calls(func, number),
        }
        println!("{number}");
    }
}

fn forked(func: u32, number: u64) {
    // SAFETY: no other thread runs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        calls(func, number);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

fn thread(func: u32, number: u64) {
    std::thread::spawn(move || calls(func, number))
        .join()
        .unwrap_or(());
}

fn threads(func: u32, number: u64) {
    let all: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || calls(func, number)))
        .collect();
    for one in all {
        one.join().unwrap_or(());
    }
}

/// Parent and child write at the same time, forked behind libc's back.
fn fork(func: u32, number: u64) {
    calls(func, 1);
    // SAFETY: no other thread runs.
    let child = unsafe { libc::syscall(libc::SYS_fork) };
    calls(func, number);
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(i32::try_from(child).unwrap_or(-1), std::ptr::null_mut(), 0) };
}

/// What a child of `vfork` does: it runs in its parent's memory, on a stack of its own, while the parent waits for it.
fn vfork(func: u32, number: u64) {
    extern "C" fn child(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the parent's two numbers, and the parent waits.
        let (func, number) = unsafe { *argument.cast::<(u32, u64)>() };
        calls(func, number);
        // SAFETY: ends the child without running the parent's last functions.
        unsafe { libc::_exit(0) }
    }
    calls(func, number);
    let mut stack = vec![0u128; 1 << 14];
    let mut argument = (func, number);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the top of a stack that lives until the child has ended.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        libc::clone(child, top, flags, (&raw mut argument).cast())
    };
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    calls(func, number);
}

fn name(segment: &Segment, at: u64) {
    let func = segment.new_function();
    segment.name(func, &Name::new(SOURCE, &format!("function number {at}")));
    call(func);
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn masks() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .filter(|line| line.starts_with("Sig") || line.starts_with("Threads"))
        .collect::<Vec<_>>()
        .join(" ")
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

/// A signal handler calls a probed function, while the thread it interrupts does.
fn handler(func: u32, number: u64) {
    extern "C" fn on_alarm(_: i32) {
        HANDLED.fetch_add(1, Ordering::Relaxed);
        call(1);
    }
    // SAFETY: the handler only does what a handler may.
    unsafe { libc::signal(libc::SIGALRM, on_alarm as *const () as libc::sighandler_t) };
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: 100,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: a pointer to a timer.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    calls(func, number);
    // SAFETY: as above: no alarm from here on.
    unsafe { libc::signal(libc::SIGALRM, libc::SIG_IGN) };
    println!("{}", number + HANDLED.load(Ordering::Relaxed));
}

/// Calls from an `atexit` handler and from the destructor of a thread's key, when thread-locals are gone.
fn exit(func: u32, number: u64) {
    extern "C" fn at_exit() {
        call(1);
    }
    extern "C" fn at_thread_end(_: *mut libc::c_void) {
        call(1);
    }
    let mut key = 0;
    // SAFETY: a place for the key, and functions that live for ever.
    unsafe {
        libc::pthread_key_create(&raw mut key, Some(at_thread_end));
        libc::atexit(at_exit);
    }
    std::thread::spawn(move || {
        calls(func, number);
        // SAFETY: the key exists; a value makes its destructor run.
        unsafe { libc::pthread_setspecific(key, std::ptr::dangling()) };
    })
    .join()
    .unwrap_or(());
}
