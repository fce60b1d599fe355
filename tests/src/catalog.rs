//! Every fixture, by name.

use crate::fixture::Fixture;

/// Fan-in, fan-out, pointers, recursion 200 deep, mutual recursion, Fibonacci.
pub const CALLS: Fixture = calls("calls", &["-fno-optimize-sibling-calls"]);
/// [`CALLS`] in every layout an executable has. The offsets of the last differ from the addresses.
pub const LAYOUTS: [Fixture; 8] = [
    calls(
        "calls-pie",
        &["-fno-optimize-sibling-calls", "-pie", "-fPIE"],
    ),
    calls(
        "calls-no-pie",
        &["-fno-optimize-sibling-calls", "-no-pie", "-fno-pie"],
    ),
    calls("calls-static", &["-fno-optimize-sibling-calls", "-static"]),
    calls(
        "calls-static-pie",
        &["-fno-optimize-sibling-calls", "-static-pie"],
    ),
    calls(
        "calls-one-segment",
        &["-fno-optimize-sibling-calls", "-Wl,-z,noseparate-code"],
    ),
    calls(
        "calls-no-frame-pointer",
        &["-fno-optimize-sibling-calls", "-fomit-frame-pointer"],
    ),
    calls(
        "calls-cet",
        &["-fno-optimize-sibling-calls", "-fcf-protection=full"],
    ),
    OFFSETS,
];
/// [`CALLS`] with its text at another address than its file offset.
pub const OFFSETS: Fixture = calls(
    "calls-offsets",
    &[
        "-fno-optimize-sibling-calls",
        "-Wl,--section-start=.text=0x7000",
    ],
);
/// [`OFFSETS`] without symbols: the same bytes of text.
pub const STRIPPED: Fixture = calls(
    "calls-stripped",
    &[
        "-fno-optimize-sibling-calls",
        "-Wl,--section-start=.text=0x7000",
    ],
)
.stripped();
/// Sibling calls.
pub const TAIL: Fixture = Fixture::c("tail", &["tail.c"]);
/// longjmp over two frames.
pub const JUMP: Fixture = Fixture::c("jump", &["jump.c"]);
/// Signal handlers.
pub const SIGNALS: Fixture = Fixture::c("signals", &["signals.c"]);
/// Handlers on an alternate stack above the thread's.
pub const ALTSTACK: Fixture = Fixture::c("altstack", &["altstack.c"]);
/// swapcontext coroutines.
pub const COROUTINES: Fixture = Fixture::c("coroutines", &["coroutines.c"]);
/// A fault left by siglongjmp from an alternate stack.
pub const RECOVERS: Fixture = Fixture::c("recovers", &["recovers.c"]);
/// Behind a seccomp filter that kills.
pub const SANDBOXED: Fixture = Fixture::c("sandboxed", &["sandboxed.c"]);
/// Children on the parent's stack.
pub const VFORKS: Fixture = Fixture::c("vforks", &["vforks.c"]);
/// Coroutines close below the running stack.
pub const FIBERS: Fixture = Fixture::c("fibers", &["fibers.c"]);
/// Threads: early, late, returning, exiting, cancelled.
pub const THREADS: Fixture = Fixture::c("threads", &["threads.c"]);
/// A burner and a sleeper that measure themselves.
pub const TIMES: Fixture = Fixture::c("times", &["times.c"]);
/// CPU time split three to one.
pub const SPLIT: Fixture = Fixture::c("split", &["split.c"]);
/// Threads whose places are known, without frame pointers.
pub const STACKS: Fixture = Fixture::c("stacks", &["stacks.c"]).flags(&["-fomit-frame-pointer"]);
/// The same with frame pointers.
pub const STACKS_FRAME_POINTER: Fixture = Fixture::c("stacks-frame-pointer", &["stacks.c"]);
/// Threads that wait in known places, without frame pointers.
pub const WAITS: Fixture = Fixture::c("waits", &["waits.c"]).flags(&["-fomit-frame-pointer"]);
/// The same with frame pointers.
pub const WAITS_FRAME_POINTER: Fixture = Fixture::c("waits-frame-pointer", &["waits.c"]);
/// Requests of which three are slow, and why is known.
pub const REQUESTS: Fixture = Fixture::c("requests", &["requests.c"]);
/// C++ exceptions.
pub const THROWS: Fixture = Fixture::cpp("throws", &["throws.cpp"]);
/// C++ that walks its own stack.
pub const BACKTRACES: Fixture = Fixture::cpp("backtraces", &["backtraces.cpp"]);
/// Rust panics.
pub const PANICS: Fixture = Fixture::rust("panics", &["panics.rs"]);
/// Goroutines with growing stacks.
pub const GOROUTINES: Fixture = Fixture::go("goroutines", &["goroutines.go"]);
/// Entry shapes.
pub const SHAPES: Fixture = Fixture::c("shapes", &["shapes.c", "shapes.s"]);
/// Two functions of one name, one function of two names.
pub const TWINS: Fixture = Fixture::c("twins", &["twins.c", "twins_other.c"]);
/// Calls both versions of [`LIBVERSIONS`]'s function.
pub const VERSIONS: Fixture = Fixture::c("versions", &["versions.c"]);
/// One name, two versions.
pub const LIBVERSIONS: Fixture =
    Fixture::c("libversions.so", &["libversions.c", "libversions.map"]).flags(&[
        "-shared",
        "-fPIC",
        "-Wl,--version-script=libversions.map",
    ]);
/// Loads [`LIBPLUGIN`] late.
pub const PLUGINS: Fixture = Fixture::c("plugins", &["plugins.c"]);
/// A library that is loaded late.
pub const LIBPLUGIN: Fixture =
    Fixture::c("libplugin.so", &["libplugin.c"]).flags(&["-shared", "-fPIC"]);
/// A native addon of Node.js, loaded late.
pub const ADDON: Fixture = Fixture::c("addon.node", &["addon.c"]).flags(&["-shared", "-fPIC"]);
/// Eight threads in mid-call when the process ends.
pub const DYING: Fixture = Fixture::c("dying", &["dying.c"]);
/// Forks while it calls.
pub const FORKS: Fixture = Fixture::c("forks", &["forks.c"]);
/// 5,000 threads at once, or 1,000 children one after another.
pub const CROWD: Fixture = Fixture::c("crowd", &["crowd.c"]);
/// Executes itself again and again.
pub const RELAY: Fixture = Fixture::c("relay", &["relay.c"]);
/// Closes and opens [`LIBPLUGIN`] again and again.
pub const RELOADS: Fixture = Fixture::c("reloads", &["reloads.c"]);
/// Waits in a sleep that nothing interrupts.
pub const HELD: Fixture = Fixture::c("held", &["held.c"]);
/// Two processes of one id, one after the other.
pub const REBORN: Fixture = Fixture::c("reborn", &["reborn.c"]);
/// Returns known values.
pub const RETURNS: Fixture = Fixture::c("returns", &["returns.c"]);
/// Becomes another program.
pub const EXECS: Fixture = Fixture::c("execs", &["execs.c"]);
/// Calls at a moderate rate until told to stop.
pub const BUSY: Fixture = Fixture::c("busy", &["busy.c"]);
/// Calls as fast as it can.
pub const FLOOD: Fixture = Fixture::c("flood", &["flood.c"]);

/// One function called again and again until the input ends, whose result is checked each time.
pub const SCOPED: Fixture = Fixture::c("scoped", &["scoped.c", "scoped.s"]);
/// [`SCOPED`] with the C library in it.
pub const SCOPED_STATIC: Fixture =
    Fixture::c("scoped-static", &["scoped.c", "scoped.s"]).flags(&["-static"]);
/// [`SCOPED`] over musl, its loader mapped.
pub const SCOPED_MUSL: Fixture = Fixture::musl("scoped-musl", &["scoped.c", "scoped.s"]);
/// [`SCOPED`] with musl in it.
pub const SCOPED_MUSL_STATIC: Fixture =
    Fixture::musl("scoped-musl-static", &["scoped.c", "scoped.s"]).flags(&["-static"]);
/// [`SCOPED`] without symbols, at fixed addresses.
pub const SCOPED_STRIPPED: Fixture = Fixture::c("scoped-stripped", &["scoped.c", "scoped.s"])
    .flags(&["-no-pie", "-fno-pie"])
    .stripped();
/// [`SCOPED_STRIPPED`] with its symbols.
pub const SCOPED_FIXED: Fixture =
    Fixture::c("scoped-fixed", &["scoped.c", "scoped.s"]).flags(&["-no-pie", "-fno-pie"]);
/// One function called by goroutines.
pub const SCOPED_GO: Fixture = Fixture::go("scoped-go", &["scoped.go"]);

/// Programs that run to their end by themselves and account for themselves.
pub const PROGRAMS: [Fixture; 23] = [
    CALLS, OFFSETS, STRIPPED, TAIL, RECOVERS, SANDBOXED, VFORKS, FIBERS, JUMP, SIGNALS, ALTSTACK,
    COROUTINES, THREADS, TIMES, SPLIT, THROWS, BACKTRACES, PANICS, GOROUTINES, SHAPES, TWINS,
    FORKS, FLOOD,
];

const fn calls(name: &'static str, flags: &'static [&'static str]) -> Fixture {
    Fixture::c(name, &["calls.c"]).flags(flags)
}
