//! Formats of the whole recording.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, ensure};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;

use crate::tools::{Subject, brought, check, consume, run, scalpel, schema, tool};

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "added_up":
        pprof_finds_every_call_and_every_ns,
        pprof_has_what_is_inlined_as_lines_of_one_location,
        folded_stacks_have_one_line_a_context,
        a_flame_graph_is_xml_that_can_be_drawn,
        a_difference_of_a_recording_with_itself_is_none,
        callgrind_annotate_finds_totals_and_never_more_than_the_whole,
        graphviz_draws_a_neighbourhood,
        genhtml_counts_the_functions_that_ran,
        readers_of_cobertura_find_the_same_calls,
        speedscope_opens_what_is_added_up,
        the_report_is_as_its_schema_says,
        ndjson_is_as_its_schema_says_and_duckdb_sums_it,
        jq_reads_ndjson_line_by_line,
        duckdb_reads_the_csv,
        what_was_not_measured_is_refused_by_name,
        a_genome_and_its_stream_export_the_same,
        an_older_export_is_kept_and_nothing_half_written_stays,
    );
}

/// Flat values of `-raw`, summed by value type.
fn raw_sums(raw: &str) -> anyhow::Result<(Vec<String>, Vec<u64>)> {
    let mut lines = raw.lines().skip_while(|line| *line != "Samples:").skip(1);
    let types = lines.next().context("no types")?.split(' ');
    let types: Vec<String> = types
        .filter_map(|kind| Some(kind.split('/').next()?.to_owned()))
        .filter(|kind| !kind.is_empty())
        .collect();
    let mut sums = vec![0; types.len()];
    for line in lines.take_while(|line| *line != "Locations") {
        let Some((values, _stack)) = line.split_once(": ") else {
            continue;
        };
        let values: Vec<u64> = values
            .split_whitespace()
            .filter_map(|value| value.parse().ok())
            .collect();
        sums.iter_mut()
            .zip(values)
            .for_each(|(sum, value)| *sum += value);
    }
    Ok((types, sums))
}

/// A number of all nodes of the call tree.
fn contexts_sum(ndjson: &str, field: &str) -> anyhow::Result<u64> {
    let mut sum = 0;
    for line in ndjson.lines() {
        let record: serde_json::Value = serde_json::from_str(line)?;
        if record["record"] == "context" {
            sum += record[field].as_u64().unwrap_or(0);
        }
    }
    Ok(sum)
}

fn pprof_finds_every_call_and_every_ns() -> Outcome {
    for subject in Subject::both()? {
        let file = subject.export("run.pb.gz", &[])?;
        let pprof =
            |args: &[&str]| consume(tool("go")?.args(["tool", "pprof"]).args(args).arg(&file));
        let (types, sums) = raw_sums(&pprof(&["-raw"])?)?;
        let contexts = fs::read_to_string(subject.export("run.ndjson", &[])?)?;
        for (kind, sum) in types.iter().zip(sums) {
            let field = match kind.as_str() {
                "cpu" => "self_cpu_ns",
                "wall" => "self_wall_ns",
                other => other,
            };
            let expected = contexts_sum(&contexts, field)?;
            ensure!(sum == expected, "{kind}: {sum}, the tree has {expected}");
        }
        ensure!(types.len() == 3, "{types:?}");
        let top = pprof(&["-top", "-sample_index=wall", "-unit=ns", "-nodefraction=0"])?;
        for name in ["fib", "odd", "main"] {
            let row = top.lines().find(|line| line.ends_with(&format!(" {name}")));
            let words: Vec<&str> = row
                .with_context(|| top.clone())?
                .split_whitespace()
                .collect();
            let number = |word: &str| word.trim_end_matches("ns").parse::<f64>();
            let (flat, cum) = (number(words[0])?, number(words[3])?);
            ensure!(
                flat as u64 == subject.of_name(name, "self_wall_ns"),
                "{name}: {top}"
            );
            ensure!(
                cum as u64 == subject.of_name(name, "total_wall_ns"),
                "{name}: {top}"
            );
        }
        let lost = subject.said["lost"].as_u64() > Some(0);
        ensure!(pprof(&["-comments"])?.contains(" lost (") == lost);
    }
    Ok(())
}

fn pprof_has_what_is_inlined_as_lines_of_one_location() -> Outcome {
    let subject = Subject::inlined()?;
    let file = subject.export("run.pb.gz", &[])?;
    let pprof = |args: &[&str]| consume(tool("go")?.args(["tool", "pprof"]).args(args).arg(&file));
    let raw = pprof(&["-raw"])?;
    let locations = raw.lines().skip_while(|line| *line != "Locations").skip(1);
    // A location begins with its number; each further line of it with blanks only.
    let mut lines: Vec<Vec<&str>> = Vec::new();
    for line in locations.take_while(|line| *line != "Mappings") {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (line.split_once(": 0x"), lines.last_mut()) {
            (Some(_), _) => lines.push(words.get(3).copied().into_iter().collect()),
            (None, Some(location)) => location.extend(words.first().copied()),
            (None, None) => {}
        }
    }
    for expected in [
        vec!["odd", "even", "fib"],
        vec!["even", "fib"],
        vec!["even"],
        vec!["fib"],
    ] {
        ensure!(
            lines.iter().filter(|lines| **lines == expected).count() == 1,
            "{expected:?} in {raw}"
        );
    }
    let top = pprof(&["-top", "-sample_index=samples", "-nodefraction=0"])?;
    for (name, flat, cum) in [
        ("fib", "3", "11"),
        ("even", "5", "8"),
        ("odd", "3", "3"),
        ("main", "0", "11"),
    ] {
        let row = top
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut row = row.filter(|words| words.get(5) == Some(&name));
        let words = row.next().with_context(|| top.clone())?;
        ensure!((words[0], words[3]) == (flat, cum), "{name}: {top}");
        // pprof marks what is inlined everywhere.
        ensure!(
            (name == "odd") == (words.get(6) == Some(&"(inline)")),
            "{top}"
        );
    }
    Ok(())
}

fn folded_stacks_have_one_line_a_context() -> Outcome {
    let subject = Subject::whole()?;
    let text = fs::read_to_string(subject.export("run.folded", &["--weight", "calls"])?)?;
    let mut stacks = BTreeMap::new();
    for line in text.lines() {
        let (stack, calls) = line.rsplit_once(' ').context("a line without a number")?;
        ensure!(
            stacks.insert(stack, calls.parse::<u64>()?).is_none(),
            "{stack} twice"
        );
    }
    ensure!(
        stacks.values().sum::<u64>() == subject.sum("calls"),
        "{text}"
    );
    ensure!(
        stacks.contains_key("main;twin [shop];twin [libtwin]"),
        "{text}"
    );
    Ok(())
}

fn a_flame_graph_is_xml_that_can_be_drawn() -> Outcome {
    let subject = Subject::lossy()?;
    let file = subject.export("run.svg", &["--weight", "wall"])?;
    let picture = subject.path("run.png");
    consume(tool("rsvg-convert")?.arg(&file).arg("-o").arg(&picture))?;
    ensure!(fs::metadata(picture)?.len() > 2_000);
    ensure!(fs::read_to_string(file)?.contains(" lost ("));
    Ok(())
}

fn a_difference_of_a_recording_with_itself_is_none() -> Outcome {
    let subject = Subject::whole()?;
    let base = subject.recording.to_str().context("a path that is text")?;
    let text = fs::read_to_string(subject.export("diff.svg", &["--base", base])?)?;
    let changes = text.lines().filter(|line| line.contains("<title>"));
    for title in changes.flat_map(|line| line.split("<title>").skip(1)) {
        ensure!(
            title.contains("0.00%") || title.starts_with("all "),
            "{title}"
        );
    }
    Ok(())
}

/// A number with commas and a share: `316,602 (22.75%)`.
fn annotated(line: &str) -> Vec<(u64, f64)> {
    let mut found = Vec::new();
    for part in line.split('(') {
        let Some((share, _)) = part.split_once("%)") else {
            continue;
        };
        found.push((0, share.trim().parse().unwrap_or(f64::NAN)));
    }
    let mut numbers = line.split(|c: char| c.is_whitespace() || c == '(');
    for slot in &mut found {
        let number = numbers.find_map(|word| word.replace(',', "").parse::<u64>().ok());
        slot.0 = number.unwrap_or(0);
    }
    found
}

fn callgrind_annotate_finds_totals_and_never_more_than_the_whole() -> Outcome {
    for subject in Subject::both()? {
        let file = subject.export("callgrind.out.1", &[])?;
        let annotate = |inclusive: &str| {
            let inclusive = format!("--inclusive={inclusive}");
            let args = [&inclusive, "--threshold=100", "--auto=no"];
            consume(tool("callgrind_annotate")?.args(args).arg(&file))
        };
        let (own, total) = (annotate("no")?, annotate("yes")?);
        for (text, field) in [(&own, "self_wall_ns"), (&total, "total_wall_ns")] {
            for name in ["fib", "even", "odd", "main"] {
                // All its ends were lost: the report has no time of it.
                if (name, subject.code) == ("even", 5) {
                    continue;
                }
                let line = text
                    .lines()
                    .find(|line| line.contains(&format!(":{name} ")));
                let numbers = annotated(line.with_context(|| text.clone())?);
                ensure!(
                    numbers[1].0 == subject.of_name(name, field),
                    "{name} {field} is {}: {text}\n{}",
                    subject.of_name(name, field),
                    fs::read_to_string(&file)?
                );
                ensure!(numbers.iter().all(|(_, share)| *share <= 100.0), "{text}");
            }
        }
        let sum = own.lines().find(|line| line.contains("PROGRAM TOTALS"));
        let numbers = annotated(sum.with_context(|| own.clone())?);
        ensure!(numbers[2].0 == subject.sum("calls"), "{own}");
    }
    Ok(())
}

fn graphviz_draws_a_neighbourhood() -> Outcome {
    let subject = Subject::whole()?;
    let file = subject.export("near.dot", &["-f", "Lput*", "--depth", "1"])?;
    let plain = consume(tool("dot")?.arg("-Tplain").arg(&file))?;
    let count = |word: &str| plain.lines().filter(|line| line.starts_with(word)).count();
    // Called by `main`, calls `entries`.
    ensure!((count("node "), count("edge ")) == (3, 3), "{plain}");
    consume(
        tool("dot")?
            .args(["-Tsvg", "-o"])
            .arg(subject.path("near.svg"))
            .arg(&file),
    )?;
    Ok(())
}

fn genhtml_counts_the_functions_that_ran() -> Outcome {
    let subject = Subject::whole()?;
    let file = subject.export("run.info", &[])?;
    // genhtml wants the sources.
    fs::create_dir(subject.path("src"))?;
    for source in ["shop.c", "libtwin.c"] {
        fs::write(subject.path("src").join(source), "// line\n".repeat(100))?;
    }
    let mut genhtml = tool("genhtml")?;
    genhtml.current_dir(subject.path(""));
    let said = consume(
        genhtml
            .args(["--function-coverage", "-o", "html"])
            .arg(&file),
    )?;
    // All but `never`.
    ensure!(said.contains("(9 of 10 functions)"), "{said}");
    let info = fs::read_to_string(file)?;
    ensure!(
        info.contains(&format!("FNDA:{},fib:20", subject.of_name("fib", "calls"))),
        "{info}"
    );
    ensure!(info.contains("FNDA:0,never:70"), "{info}");
    Ok(())
}

fn readers_of_cobertura_find_the_same_calls() -> Outcome {
    let subject = Subject::whole()?;
    let file = subject.export("run.xml", &[])?;
    check([
        "cobertura".as_ref(),
        file.as_os_str(),
        subject.report.as_os_str(),
    ])
}

fn speedscope_opens_what_is_added_up() -> Outcome {
    let subject = Subject::lossy()?;
    let genome = subject.genome()?;
    let file = subject.path("run.speedscope.json");
    scalpel([
        "export".as_ref(),
        genome.as_os_str(),
        "-o".as_ref(),
        file.as_os_str(),
    ])?;
    opens_in_speedscope(&file)
}

/// By its schema, and by itself in a browser.
pub(crate) fn opens_in_speedscope(file: &std::path::Path) -> Outcome {
    let application = brought("node_modules/speedscope/dist/release")?;
    let schema = application.join("file-format-schema.json");
    check(["speedscope".as_ref(), file.as_os_str(), schema.as_os_str()])?;
    let chromium = tool("chromium")?;
    check([
        "browser".as_ref(),
        file.as_os_str(),
        application.as_os_str(),
        chromium.get_program(),
    ])
}

fn the_report_is_as_its_schema_says() -> Outcome {
    for subject in Subject::both()? {
        let file = subject.export("run.json", &[])?;
        ensure!(fs::read(&file)? == fs::read(&subject.report)?);
        let schema = schema("report.schema.json");
        check(["report".as_ref(), file.as_os_str(), schema.as_os_str()])?;
    }
    Ok(())
}

fn ndjson_is_as_its_schema_says_and_duckdb_sums_it() -> Outcome {
    for subject in Subject::both()? {
        let file = subject.export("run.ndjson", &[])?;
        let schema = schema("export.schema.json");
        check([
            "ndjson".as_ref(),
            file.as_os_str(),
            subject.report.as_os_str(),
            schema.as_os_str(),
        ])?;
    }
    Ok(())
}

fn jq_reads_ndjson_line_by_line() -> Outcome {
    let subject = Subject::whole()?;
    let file = subject.export("run.ndjson", &[])?;
    let sum = "[inputs | select(.record == \"context\") | .calls] | add";
    let said = consume(tool("jq")?.args(["-n", sum]).arg(file))?;
    ensure!(said.trim() == subject.sum("calls").to_string(), "{said}");
    Ok(())
}

fn duckdb_reads_the_csv() -> Outcome {
    for subject in Subject::both()? {
        let file = subject.export("run.csv", &[])?;
        check(["csv".as_ref(), file.as_os_str(), subject.report.as_os_str()])?;
    }
    Ok(())
}

fn what_was_not_measured_is_refused_by_name() -> Outcome {
    let subject = Subject::whole()?;
    let args = ["--format", "folded", "--weight", "samples"];
    let ran = run(
        std::process::Command::new(env!("CARGO_BIN_EXE_scalpel-ebpf"))
            .arg("export")
            .arg(&subject.recording)
            .args(args),
    )?;
    ensure!((ran.code, ran.stdout.as_str()) == (2, ""), "{}", ran.stderr);
    ensure!(
        ran.stderr
            .contains("has no samples; it has: CPU time, wall time, calls"),
        "{}",
        ran.stderr
    );
    Ok(())
}

fn a_genome_and_its_stream_export_the_same() -> Outcome {
    let subject = Subject::whole()?;
    let genome = subject.genome()?;
    for format in [
        "pprof",
        "folded",
        "callgrind",
        "lcov",
        "cobertura",
        "ndjson",
        "svg",
    ] {
        let of = |recording: &std::path::Path| {
            let ran = scalpel([
                "export".as_ref(),
                recording.as_os_str(),
                "--format".as_ref(),
                format.as_ref(),
            ])?;
            ensure!(ran.code == 0, "{format}: {}", ran.stderr);
            Ok(ran.stdout)
        };
        ensure!(of(&subject.recording)? == of(&genome)?, "{format}");
    }
    Ok(())
}

fn an_older_export_is_kept_and_nothing_half_written_stays() -> Outcome {
    let subject = Subject::whole()?;
    let file = subject.export("a.csv", &[])?;
    fs::write(&file, "older")?;
    subject.export("a.csv", &[])?;
    ensure!(fs::read(subject.path("a.csv.old"))? == b"older");
    let refused = ["export", "-o", "b.svg", "--weight", "samples"];
    let path = subject.path("b.svg");
    scalpel([
        "export".as_ref(),
        subject.recording.as_os_str(),
        "-o".as_ref(),
        path.as_os_str(),
        refused[3].as_ref(),
        refused[4].as_ref(),
    ])?;
    let names = fs::read_dir(subject.path(""))?.flatten();
    let left: Vec<_> = names.map(|entry| entry.file_name()).collect();
    ensure!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().contains("b.svg")),
        "{left:?}"
    );
    Ok(())
}
