//! Node.js: 78,000 C++ functions, and a program that must go on answering while they are probed; JavaScript, a native addon
//! and the C library as one path.

use std::fs;
use std::path::Path;

use anyhow::ensure;
use scalpel_tests::catalog::ADDON;
use scalpel_tests::fixture::target_directory;
use scalpel_tests::real::node::Server;
use scalpel_tests::report::Report;
use scalpel_tests::scalpel::Record;
use scalpel_tests::suite::{Outcome, Skip, Suite};
use scalpel_tests::tests;

use crate::verdict;

const REQUESTS: usize = 50;

pub(crate) fn add(suite: &mut Suite) {
    tests!(
        suite, "node":
        a_server_answers_the_same_while_it_is_recorded,
        javascript_an_addon_and_the_c_library_are_one_path,
    );
}

const CALLS: u64 = 20_000;

fn javascript_an_addon_and_the_c_library_are_one_path() -> Outcome {
    if !target_directory().join("probes/node").is_dir() {
        return Err(Skip::because(
            "the probe for Node.js is not built: `cargo xtask build-probes`",
        ));
    }
    let addon = ADDON.copy()?;
    let program = addon.directory().join("app.js");
    let text = format!(
        "const step = require('./addon.node');\nfunction leaf(n) {{ return step(n); }}\n\
         function work() {{ let n = 0; for (let i = 0; i < {CALLS}; i++) n = leaf(n); return n; }}\n\
         console.log(work());\n"
    );
    fs::write(&program, text)?;
    let options = [
        "--max-overhead",
        "off",
        "-F",
        "0",
        "-f",
        "addon_*",
        "-f",
        "getppid",
        "--lib",
        "libc.so*",
    ];
    let recorded = Record::into(addon.directory())
        .args(options)
        .args(["--lib".into(), addon.path().as_os_str().to_owned()])
        .command(Path::new("node"), &[&program.to_string_lossy()])?
        .expect_code(0)?;
    ensure!(recorded.ended.stdout == format!("{CALLS}\n"));
    let report = recorded.report()?;
    ensure!(report.lost == 0, "{} events lost", report.lost);
    for (caller, callee) in [
        ("work", "leaf"),
        ("addon_call", "addon_step"),
        ("addon_step", "getppid"),
    ] {
        let calls = report.edge_calls(caller, callee);
        ensure!(calls == CALLS, "{caller} -> {callee}: {calls} calls");
    }
    ensure!(report.calls("addon_call")? == CALLS);
    called_from(&report, "addon_call", "leaf")
}

/// Whether all calls came from one function, straight or through one of V8 that nobody else called.
fn called_from(report: &Report, callee: &str, caller: &str) -> Outcome {
    let (callee, caller) = (report.function(callee)?, report.function(caller)?);
    let above = |key: &str| -> Vec<Option<String>> {
        let edges = report.edges.iter().filter(|edge| edge.callee == key);
        edges.map(|edge| edge.caller.clone()).collect()
    };
    let wanted = Some(caller.key.clone());
    for via in above(&callee.key).into_iter().filter(|via| *via != wanted) {
        let from = above(via.as_deref().unwrap_or_default());
        ensure!(from == [wanted.clone()], "through {via:?} from {from:?}");
    }
    Ok(())
}

fn a_server_answers_the_same_while_it_is_recorded() -> Outcome {
    let server = Server::start()?;
    let plain = server.ask(REQUESTS)?;
    let recording = Record::into(server.folder()).attach(server.pid())?;
    for _ in 0..6 {
        ensure!(
            server.ask(REQUESTS)? == plain,
            "an answer changed while it was recorded"
        );
    }
    let report = verdict::seen(&recording.stop()?)?;
    verdict::named(&report)?;
    ensure!(
        report.functions.len() > 100,
        "only {} functions",
        report.functions.len()
    );
    ensure!(
        server.ask(REQUESTS)? == plain,
        "an answer changed after it was recorded"
    );
    verdict::unharmed(server.pid(), server.program())?;
    server.stop()
}
