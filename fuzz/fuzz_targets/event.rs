//! Events of any bits, through order, stacks and tree: never a panic, and every call is counted or named as lost.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalpel_user::decode::{self, Census};
use scalpel_user::event::{FuncId, MonoTime};
use scalpel_user::order::{Order, Released};
use scalpel_user::stack::{Builder, Options};

fuzz_target!(|bytes: &[u8]| {
    let mut events = Vec::new();
    let whole = bytes.len() / 64 * 64;
    decode::events(&bytes[..whole], &mut events).expect("a whole number of events");
    Census::default().note(&events);
    let (mut order, mut builder) = (Order::new(), Builder::new(Options::default()));
    for part in events.chunks(7) {
        order.events(part);
        let newest = part.iter().map(|event| event.time).max().unwrap_or(0);
        order.drained(MonoTime(newest / 2), &mut |item| take(&mut builder, item));
    }
    order.finish(&mut |item| take(&mut builder, item));
    builder.finish(MonoTime(u64::MAX), &mut |_pid, _address| FuncId::new(7));
});

fn take(builder: &mut Builder, item: Released<'_>) {
    match item {
        Released::Events(events) => builder.events(events),
        Released::Gap { pid, tid, lost, .. } => builder.gap(pid, tid, lost),
        Released::Sample(sample) => builder.sample(&sample),
        Released::ThreadEnded { time, pid, tid } => builder.thread_ended(time, pid, tid),
        Released::Executed { time, pid } => builder.executed(time, pid),
    }
}
