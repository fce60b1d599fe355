//! What was scoped is found again in what was recorded: the function by its key, the thread, and the call by its time.
#![expect(
    clippy::indexing_slicing,
    reason = "JSON answers null for what is not there"
)]

use anyhow::{Context, ensure};
use scalpel_tests::catalog::SCOPED;
use scalpel_tests::scalpel::{self, report};
use scalpel_tests::scope::{Target, complete};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "scope":
        a_scoped_call_is_one_of_the_recording_beside_it,
    );
}

/// With a probe on the function, and with one on its return too: neither is in the way of a step.
fn a_scoped_call_is_one_of_the_recording_beside_it() -> Outcome {
    for exits in [&["--exits", "none"][..], &[]] {
        beside(exits).with_context(|| format!("{exits:?}"))?;
    }
    Ok(())
}

fn beside(exits: &[&str]) -> Outcome {
    let target = Target::start(&SCOPED, "calling")?;
    let folder = target.copy().directory().to_owned();
    let stream = folder.join("run.stream");
    let stream = stream.to_string_lossy();
    let recording = crate::exact(&folder)
        .args(["-f", "calling", "-f", "leaf", "--keep-stream", &stream])
        .args(exits.iter().copied())
        .attach(target.pid())?;
    let own = complete(target.pid(), "calling", &["--calls", "5"])?;
    let all = complete(target.pid(), "calling", &["--follow-calls", "all"])?;
    let recorded = recording.stop()?.expect_code(0)?;
    ensure!(own.calls.len() == 5 && all.instructions > own.calls[0].instructions);

    let report = report(&recorded.genome)?;
    let begins = begins(&stream)?;
    for scope in [own, all] {
        let key = scope.function.context("no function")?.key;
        let known = report.functions.iter().filter(|known| known.key == key);
        ensure!(known.count() == 1, "{key} is not in {:?}", report.functions);
        for call in &scope.calls {
            let mut threads = report.threads.iter();
            ensure!(threads.any(|thread| thread.tid == call.tid));
            ensure!(call.pid == report.run.pid);
            let within = call.start_ns..call.end_ns;
            let calls = begins.iter().filter(|(tid, name, time)| {
                *tid == u64::from(call.tid) && name == "calling" && within.contains(time)
            });
            ensure!(calls.count() == 1, "{call:?} in {begins:?}");
        }
    }
    target.unharmed()
}

/// Each call of a kept stream: thread, function, and when it began, by the clock that scopes have too.
fn begins(stream: &str) -> anyhow::Result<Vec<(u64, String, u64)>> {
    let exported = scalpel::run(&["export", stream, "--format", "chrome"])?;
    let trace: serde_json::Value = serde_json::from_str(&exported.stdout)?;
    let started = trace["otherData"]["started_ns"].as_str();
    let started: f64 = started.context("no start")?.parse()?;
    let events = trace["traceEvents"].as_array().context("no events")?;
    let begins = events.iter();
    let begins = begins.filter(|event| event["ph"] != "M" && event["ph"] != "E");
    let call = |event: &serde_json::Value| {
        let time = event["ts"].as_f64()? * 1e3 + started;
        let name = event["name"].as_str()?.to_owned();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "ns since boot"
        )]
        Some((event["tid"].as_u64()?, name, time as u64))
    };
    Ok(begins.filter_map(call).collect())
}
