//! What an event costs its thread: `cargo run --release -p scalpel-probe --example event_cost`. A reader drains the lane meanwhile.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use scalpel::harness::{Server, Shape};
use scalpel::{Hello, Source};
use scalpel_common::segment::clock;

const CALLS: u32 = 2_000_000;
const RUNS: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kind = match std::env::args().nth(1).as_deref() {
        Some("monotonic") => clock::MONOTONIC,
        _ => clock::TSC,
    };
    let folder = tempfile::tempdir()?;
    let shape = Shape {
        clock: kind,
        slots: 1 << 18,
        lanes: 2,
        ..Shape::default()
    };
    let server = Server::new(&folder.path().join("s"), shape)?;
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("SCALPEL_SOCKET", server.path()) };
    let accepting = std::thread::spawn(move || server.accept());
    let segment = scalpel::connect(&Hello {
        source: Source::Rust,
        runtime: "cost",
    })?;
    let (.., made) = accepting.join().ok().ok_or("the server ended")??;
    let func = segment.new_function();
    let done = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&done);
    let reader = std::thread::spawn(move || {
        let mut read = 0;
        while !over.load(Ordering::Relaxed) {
            read += made.skip();
        }
        read + made.skip()
    });
    let mut full: Vec<f64> = (0..RUNS).map(|_| time(|| calls(func))).collect();
    let mut bare: Vec<f64> = (0..RUNS).map(|_| time(|| clocks(segment))).collect();
    let mut off: Vec<f64> = (0..RUNS).map(|_| time(|| calls(u32::MAX))).collect();
    done.store(true, Ordering::Relaxed);
    let read = reader.join().ok().ok_or("the reader ended")?;
    println!("events read               {read}");
    println!(
        "one event                 {:6.1} ns",
        median(&mut full) / 2.0
    );
    println!("of that, the clock        {:6.1} ns", median(&mut bare));
    println!("a call that is not wanted {:6.1} ns", median(&mut off));
    Ok(())
}

fn calls(func: u32) {
    for _ in 0..CALLS {
        let token = scalpel::enter(Source::Rust, black_box(func), 0, 0, 0, 0);
        scalpel::exit(token, Source::Rust, func, 0, 0, 0, 0);
    }
}

fn clocks(segment: &scalpel::Segment) {
    for _ in 0..CALLS {
        black_box(segment.clock());
    }
}

/// Nanoseconds a call, of this thread's time on a processor: others may use the machine too.
fn time(work: impl FnOnce()) -> f64 {
    let start = on_processor();
    work();
    (on_processor() - start) / f64::from(CALLS)
}

/// Nanoseconds of this thread on a processor.
fn on_processor() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
