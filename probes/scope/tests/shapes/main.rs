//! Hard shapes in a traced process, each with the exact right trace or the right reason. Every shape runs in a process of
//! its own; some run again as nobody, and under a seccomp filter that denies perf, bpf and ptrace.
#![expect(
    unsafe_code,
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "shapes are what is unsafe about a process"
)]
mod code;
mod gates;
mod heap;
mod packets;
mod programs;
mod ptrace;
mod shape;
#[cfg(feature = "uncured")]
mod uncured;

use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use scalpel_scope::pt;

const SHAPE: &str = "SCALPEL_TEST_SHAPE";
const GATE: &str = "SCALPEL_TEST_GATE";
const PATIENCE: Duration = Duration::from_secs(150);

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(SHAPE) {
        gates::close(std::env::var(GATE).ok().as_deref());
        shape_of(&name)();
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials()).exit_code()
}

fn shape_of(name: &str) -> fn() {
    #[cfg(feature = "uncured")]
    if let Some((_, shape)) = shape::SWALLOWED.iter().find(|(shape, _)| *shape == name) {
        return *shape;
    }
    let all = &mut shape::ALL.iter();
    all.find(|(shape, ..)| *shape == name).unwrap().1
}

/// Each cure must be needed. What needs traps to be swallowed, which only this feature can do at will, has to hold with all.
#[cfg(feature = "uncured")]
fn trials() -> Vec<Trial> {
    let held = |(name, _): &(&'static str, fn())| {
        let name = *name;
        Trial::test(name, move || run(name, None, shape::End::Well, None))
    };
    let mut trials: Vec<Trial> = shape::SWALLOWED.iter().map(held).collect();
    for (cure, shapes) in uncured::ALL {
        for name in *shapes {
            let full = format!("without_{cure}_{name}_fails");
            let skipped = skipped(&full, lacks(name, None));
            let trial = Trial::test(full, move || {
                let held = run(name, None, shape::End::Well, Some(cure)).is_ok();
                if held {
                    return Err(format!("{name} holds without {cure}").into());
                }
                Ok(())
            });
            trials.push(trial.with_ignored_flag(skipped));
        }
    }
    trials
}

#[cfg(not(feature = "uncured"))]
fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, _, end) in shape::ALL {
        for gate in [None, Some("nobody"), Some("seccomp"), Some("copies")] {
            let long = ["random", "a_site_sleeps", "a_million"];
            if gate.is_some() && long.iter().any(|begin| name.starts_with(begin)) {
                continue;
            }
            let full = gate.map_or_else(|| (*name).to_owned(), |gate| format!("{name}_as_{gate}"));
            let skipped = skipped(&full, lacks(name, gate));
            let trial = Trial::test(full, move || run(name, gate, *end, None));
            trials.push(trial.with_ignored_flag(skipped));
        }
    }
    trials
}

/// Says why a trial is skipped, if it is.
fn skipped(full: &str, why: Option<&str>) -> bool {
    if let Some(why) = why {
        eprintln!("skipped: {full}: {why}");
    }
    why.is_some()
}

/// Why a shape cannot be had here.
fn lacks(name: &str, gate: Option<&str>) -> Option<&'static str> {
    match name {
        "a_wide_vector_state_survives" if !std::arch::is_x86_feature_detected!("avx512f") => {
            Some("this processor has no AVX-512")
        }
        "code_under_a_protection_key_is_traced" if !shape::has_protection_keys() => {
            Some("this machine has no protection keys")
        }
        "a_path_is_decoded_from_its_packets" if pt::available().is_err() => {
            Some("libipt is not installed: no random program goes through packets either")
        }
        _ if name.contains("probe_in_the_code") && (gate.is_some() || !shape::can_probe()) => {
            Some("probes are not permitted")
        }
        _ => None,
    }
}

/// Runs one shape in a fresh process: it has to end as it should, in time.
fn run(
    name: &str,
    gate: Option<&str>,
    end: shape::End,
    uncured: Option<&str>,
) -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .env(SHAPE, name)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(gate) = gate {
        command.env(GATE, gate);
    }
    if name.contains("turned_off") {
        command.env("SCALPEL_SCOPE", "off");
    }
    // What hangs without its cure hangs for ever.
    let patience = match uncured {
        Some(cure) => {
            command.env("SCALPEL_TEST_UNCURED", cure);
            PATIENCE / 10
        }
        None => PATIENCE,
    };
    let mut child = command.spawn()?;
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() > patience {
            child.kill()?;
            return Err(format!("{name} hangs").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output()?;
    if fits(output.status, end) {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{name} ended with {}, expected {end:?}\n{told}",
        output.status
    )
    .into())
}

fn fits(status: ExitStatus, end: shape::End) -> bool {
    use std::os::unix::process::ExitStatusExt;
    match end {
        shape::End::Well => status.success(),
        shape::End::By(signal) => status.signal() == Some(signal),
    }
}
