//! Formats with a time line: single calls, balanced whatever was lost.

use std::fs;

use anyhow::ensure;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;

use crate::added_up::opens_in_speedscope;
use crate::made::PID;
use crate::tools::{Subject, check, scalpel};

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "calls":
        chromes_trace_nests_and_has_every_call,
        perfettos_trace_decodes_nests_and_has_every_call,
        speedscope_opens_calls_whose_ends_were_lost,
        a_part_is_balanced_and_smaller,
        one_thread_goes_out_alone,
        more_than_the_reader_opens_is_refused_with_the_way_round,
        a_genome_has_no_single_calls_and_says_where_to_get_them,
        a_cut_stream_is_partial,
    );
}

fn chromes_trace_nests_and_has_every_call() -> Outcome {
    for subject in Subject::both()? {
        let file = subject.export("run.trace.json", &[])?;
        check([
            "chrome".as_ref(),
            file.as_os_str(),
            subject.report.as_os_str(),
        ])?;
        let lost = fs::read_to_string(file)?.contains("{\"end\":\"lost\"}");
        ensure!(lost == (subject.code == 5));
    }
    Ok(())
}

fn perfettos_trace_decodes_nests_and_has_every_call() -> Outcome {
    for subject in Subject::both()? {
        let file = subject.export("run.pftrace", &[])?;
        check([
            "perfetto".as_ref(),
            file.as_os_str(),
            subject.report.as_os_str(),
        ])?;
    }
    Ok(())
}

fn speedscope_opens_calls_whose_ends_were_lost() -> Outcome {
    let subject = Subject::lossy()?;
    let file = subject.export("run.speedscope.json", &[])?;
    ensure!(fs::read_to_string(&file)?.contains(" [lost]\""));
    opens_in_speedscope(&file)
}

fn events(subject: &Subject, args: &[&str]) -> anyhow::Result<Vec<serde_json::Value>> {
    let file = subject.export("part.trace.json", args)?;
    let trace: serde_json::Value = serde_json::from_slice(&fs::read(file)?)?;
    Ok(trace["traceEvents"].as_array().cloned().unwrap_or_default())
}

fn a_part_is_balanced_and_smaller() -> Outcome {
    let subject = Subject::whole()?;
    let all = events(&subject, &[])?;
    // `main` began before, and goes on after.
    let part = events(&subject, &["--from", "0.00005", "--to", "0.0001"])?;
    ensure!(part.len() < all.len(), "{} of {}", part.len(), all.len());
    let count = |phase: &str| part.iter().filter(|event| event["ph"] == phase).count();
    ensure!(count("B") == count("E") && count("B") > 0);
    ensure!(
        part.iter()
            .any(|event| event["args"]["start"] == "began earlier")
    );
    ensure!(
        part.iter()
            .any(|event| event["args"]["end"] == "still open")
    );
    let times = part.iter().filter_map(|event| event["ts"].as_f64());
    ensure!(times.into_iter().all(|us| (50.0..=100.0).contains(&us)));
    Ok(())
}

fn one_thread_goes_out_alone() -> Outcome {
    let subject = Subject::whole()?;
    let tid = (PID + 1).to_string();
    let part = events(&subject, &["--thread", &tid])?;
    ensure!(part.iter().all(|event| event["tid"] == PID + 1), "{part:?}");
    let begins: Vec<_> = part.iter().filter(|event| event["ph"] == "B").collect();
    ensure!(
        begins.len() == 3 && begins.iter().all(|event| event["name"] == "task"),
        "{part:?}"
    );
    Ok(())
}

fn refused(subject: &Subject, args: &[&str], says: &[&str]) -> Outcome {
    let recording = subject.recording.to_string_lossy().into_owned();
    let line = ["export", &recording]
        .into_iter()
        .chain(args.iter().copied());
    let ran = scalpel(line)?;
    ensure!(
        (ran.code, ran.stdout.as_str()) == (2, ""),
        "{args:?}: {} {}",
        ran.code,
        ran.stderr
    );
    for text in says {
        ensure!(
            ran.stderr.contains(text),
            "{args:?}: no `{text}` in: {}",
            ran.stderr
        );
    }
    Ok(())
}

fn more_than_the_reader_opens_is_refused_with_the_way_round() -> Outcome {
    let subject = Subject::whole()?;
    for format in ["chrome", "perfetto", "speedscope"] {
        let ways = ["--from", "--to", "--thread", "pprof", "--max-calls"];
        refused(&subject, &["--format", format, "--max-calls", "20"], &ways)?;
    }
    let none = ["--format", "chrome", "--thread", "1"];
    refused(&subject, &none, &["no call in this part"])
}

fn a_genome_has_no_single_calls_and_says_where_to_get_them() -> Outcome {
    let mut subject = Subject::whole()?;
    let genome = subject.genome()?;
    subject.recording = genome;
    refused(&subject, &["--format", "perfetto"], &["--keep-stream"])?;
    refused(
        &subject,
        &["--format", "speedscope", "--from", "1"],
        &["--keep-stream"],
    )
}

fn a_cut_stream_is_partial() -> Outcome {
    let mut subject = Subject::whole()?;
    let bytes = fs::read(&subject.recording)?;
    let cut = subject.path("cut.stream");
    fs::write(&cut, &bytes[..bytes.len() - 20])?;
    (subject.recording, subject.code) = (cut, 5);
    for name in [
        "cut.trace.json",
        "cut.pftrace",
        "cut.speedscope.json",
        "cut.pb.gz",
        "cut.csv",
    ] {
        subject.export(name, &[])?;
    }
    Ok(())
}
