//! Scopes do no harm: signals, system calls, forks and other tracers as they were; and whoever is killed, at whatever
//! moment, the program runs on.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Signal, kill_process};
use scalpel_tests::catalog::SCOPED;
use scalpel_tests::child::Running;
use scalpel_tests::dice::Dice;
use scalpel_tests::scope::{
    Scope, Target, command, complete, ended, guardian_of, is_traced, released,
};
use scalpel_tests::suite::{Outcome, Skip, Suite};
use scalpel_tests::tests;

/// Attachments that are killed at a random moment; `SCALPEL_SCOPE_CYCLES` for more.
const CYCLES: u32 = 150;

/// How often a thread is let go that signals come to.
const LET_GO: u32 = 12;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "scope":
        signal_handlers_run_and_are_not_in_the_trace,
        system_calls_return_what_they_would,
        signals_that_do_nothing_interrupt_nothing,
        masks_are_as_the_program_sets_them,
        children_and_threads_start_and_run_free,
        what_leaves_the_call_gives_a_reason,
        a_function_that_is_never_called_ends_at_ctrl_c,
        a_stopped_process_stays_stopped,
        a_process_under_another_tracer_is_refused_by_name,
        the_budget_ends_the_steps_and_not_the_call,
        who_is_killed_leaves_the_program_unharmed,
    );
}

fn signal_handlers_run_and_are_not_in_the_trace() -> Outcome {
    let target = Target::start(&SCOPED, "interrupted")?;
    let scope = complete(target.pid(), "interrupted", &["--calls", "20"])?;
    let first = scope.calls.first().context("no call")?.instructions;
    for call in &scope.calls {
        ensure!(
            call.instructions == first,
            "{} and {first}",
            call.instructions
        );
    }
    target.unharmed()
}

fn system_calls_return_what_they_would() -> Outcome {
    for (shape, follow) in [
        ("sleeps", "none"),
        ("sleeps", "all"),
        ("reads", "none"),
        ("reads", "all"),
    ] {
        let target = Target::start(&SCOPED, shape)?;
        complete(
            target.pid(),
            shape,
            &["--calls", "5", "--follow-calls", follow, "--budget", "2s"],
        )?;
        target
            .unharmed()
            .with_context(|| format!("{shape} {follow}"))?;
    }
    Ok(())
}

/// An ignored signal a millisecond, while `epoll_wait` waits: traced threads would get EINTR, or wait for ever. Being let go
/// is the moment in which it is hardest to prevent, so that comes often.
fn signals_that_do_nothing_interrupt_nothing() -> Outcome {
    for follow in ["none", "all"] {
        let target = Target::start(&SCOPED, "waits")?;
        complete(
            target.pid(),
            "waits",
            &["--calls", "5", "--follow-calls", follow, "--budget", "10s"],
        )?;
        for _ in 0..LET_GO {
            // Traced, and not stepped.
            let args = ["--duration", "150ms"];
            let ended = ended(target.pid(), "leaf", &args)?.expect_code(5)?;
            ensure!(Scope::parse(&ended.stdout)?.reasons == ["not called"]);
        }
        target.unharmed().with_context(|| follow.to_owned())?;
    }
    Ok(())
}

fn masks_are_as_the_program_sets_them() -> Outcome {
    for (shape, func, follow) in [
        ("masks", "masks", "all"),
        ("blocked", "calling", "none"),
        ("blocked", "calling", "all"),
        ("ignored", "calling", "all"),
    ] {
        let target = Target::start(&SCOPED, shape)?;
        complete(
            target.pid(),
            func,
            &["--calls", "3", "--follow-calls", follow, "--budget", "2s"],
        )?;
        target
            .unharmed()
            .with_context(|| format!("{shape} {follow}"))?;
    }
    // A callee at full speed returns with all signals blocked: its breakpoint comes late.
    let target = Target::start(&SCOPED, "masks")?;
    let ended = ended(target.pid(), "masks", &[])?.expect_code(5)?;
    ensure!(
        Scope::parse(&ended.stdout)?.reasons == ["call-out not verified"],
        "{ended:?}"
    );
    ensure!(target.end()?.contains("done"));
    Ok(())
}

fn children_and_threads_start_and_run_free() -> Outcome {
    for shape in ["forks", "spawns", "starts"] {
        for follow in ["none", "all"] {
            let target = Target::start(&SCOPED, shape)?;
            let args = ["--calls", "2", "--follow-calls", follow, "--budget", "10s"];
            let ended = ended(target.pid(), shape, &args)?;
            let said = || format!("{shape} {follow}: {ended:?}");
            let scope = Scope::parse(&ended.stdout).with_context(said)?;
            ensure!(scope.calls.len() == 2, "{}", said());
            // posix_spawn blocks all signals around its child, and pthread_create those of the C library.
            let known = |reason: &String| {
                reason == "call-out not verified" || reason == "unguarded system call"
            };
            ensure!(
                scope.reasons.iter().all(known),
                "{shape} {follow}: {:?}",
                scope.reasons
            );
            ensure!(
                shape != "forks" || scope.reasons.is_empty(),
                "{follow}: {:?}",
                scope.reasons
            );
            ensure!(target.end()?.contains("done"));
        }
    }
    Ok(())
}

fn what_leaves_the_call_gives_a_reason() -> Outcome {
    for (shape, func, follow, reason) in [
        ("jumped", "jumps", "none", "call-out not verified"),
        ("jumped", "jumps", "all", "left without return"),
        ("faults", "faults", "none", "unexplained successor"),
    ] {
        let target = Target::start(&SCOPED, shape)?;
        let args = ["--follow-calls", follow, "--budget", "5s"];
        let ended = ended(target.pid(), func, &args)?.expect_code(5)?;
        let scope = Scope::parse(&ended.stdout)?;
        ensure!(
            scope.reasons == [reason] && scope.status == "truncated",
            "{shape} {follow}: {:?}",
            scope.reasons
        );
        ensure!(target.end()?.contains("done"));
    }
    Ok(())
}

fn a_function_that_is_never_called_ends_at_ctrl_c() -> Outcome {
    let target = Target::start(&SCOPED, "straight")?;
    let mut scope = Running::start(command(target.pid(), &["-f", "leaf", "--json"])?)?;
    scope.stderr_line(|line| line.contains("Ctrl-C"))?;
    scope.signal(Signal::INT)?;
    let ended = scope.wait()?.expect_code(5)?;
    ensure!(Scope::parse(&ended.stdout)?.reasons == ["not called"]);
    target.unharmed()
}

fn state(pid: u32) -> anyhow::Result<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("State:\t"));
    Ok(line.context("no state")?.to_owned())
}

fn a_stopped_process_stays_stopped() -> Outcome {
    let target = Target::start(&SCOPED, "straight")?;
    target.signal(Signal::STOP)?;
    std::thread::sleep(Duration::from_millis(100));
    let ended = ended(target.pid(), "straight", &["--duration", "500ms"])?.expect_code(5)?;
    ensure!(Scope::parse(&ended.stdout)?.reasons == ["not called"]);
    std::thread::sleep(Duration::from_millis(100));
    let state = state(target.pid())?;
    ensure!(state.starts_with('T'), "{state}");
    target.signal(Signal::CONT)?;
    complete(target.pid(), "straight", &[])?;
    target.unharmed()
}

fn a_process_under_another_tracer_is_refused_by_name() -> Outcome {
    let target = Target::start(&SCOPED, "straight")?;
    let mut gdb = Command::new("gdb");
    // It attaches and waits for commands, which never come.
    gdb.args(["-q", "-nx", "-p", &target.pid().to_string()]);
    let Ok(gdb) = Running::start(gdb) else {
        return Err(Skip::because("gdb is not installed"));
    };
    for _ in 0..300 {
        if is_traced(target.pid())? {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    ensure!(is_traced(target.pid())?, "gdb did not attach");
    let refused = ended(target.pid(), "straight", &[])?.expect_code(3)?;
    ensure!(
        refused.stderr.contains("is traced by process"),
        "{}",
        refused.stderr
    );
    drop(gdb);
    Ok(())
}

fn the_budget_ends_the_steps_and_not_the_call() -> Outcome {
    let target = Target::start(&SCOPED, "interrupted")?;
    let ended = ended(target.pid(), "interrupted", &["--budget", "1ms"])?.expect_code(5)?;
    let scope = Scope::parse(&ended.stdout)?;
    ensure!(
        scope.reasons == ["budget"] && scope.instructions > 0,
        "{:?}",
        scope.reasons
    );
    target.unharmed()
}

fn who_is_killed_leaves_the_program_unharmed() -> Outcome {
    let cycles = std::env::var("SCALPEL_SCOPE_CYCLES").ok();
    let cycles = cycles.map_or(Ok(CYCLES), |cycles| cycles.parse())?;
    let mut dice = Dice(0x5ca1_9e15_c09e);
    let mut guardians = 0;
    for (shape, func) in [
        ("calling", "calling"),
        ("threads", "calling"),
        ("reads", "reads"),
    ] {
        let mut target = Target::start(&SCOPED, shape)?;
        for cycle in 0..cycles / 3 {
            let follow = if dice.roll(2) == 0 { "all" } else { "none" };
            let args = ["-f", func, "-n", "100000", "--follow-calls", follow];
            let scope = Running::start(command(target.pid(), &args)?)?;
            std::thread::sleep(Duration::from_millis(20 + dice.roll(160)));
            let guardian = (dice.roll(2) == 0)
                .then(|| guardian_of(scope.pid()))
                .flatten();
            match guardian {
                Some(guardian) => {
                    guardians += 1;
                    kill_process(guardian, Signal::KILL)?;
                    scope.wait()?;
                }
                None => {
                    scope.signal(Signal::KILL)?;
                    drop(scope);
                }
            }
            ensure!(
                target.running().is_alive()?,
                "{shape}: dead in cycle {cycle}"
            );
        }
        // One more scope finds everything as it must be, and takes away what the killed ones left.
        released(target.pid())?;
        complete(target.pid(), func, &["--budget", "2s"])?;
        let said = target.end()?;
        ensure!(said.contains("done"), "{shape}: {said}");
    }
    ensure!(guardians > 0, "no guardian was killed");
    Ok(())
}
