//! Redis: stripped as its package ships it, under its own benchmark.

use std::sync::Arc;

use anyhow::ensure;
use scalpel_tests::child::Running;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::real::redis::Server;
use scalpel_tests::scalpel::Record;
use scalpel_tests::suite::{Outcome, Suite};

use crate::verdict;

pub(crate) fn add(suite: &mut Suite, programs: &Arc<Programs>) {
    let shared = Arc::clone(programs);
    suite.test(
        "redis",
        "the_benchmark_leaves_the_same_data_while_it_is_recorded",
        move || benchmark(&shared),
    );
    let shared = Arc::clone(programs);
    suite.test("redis", "every_set_is_counted", move || sets(&shared));
}

const REQUESTS: u64 = 20_000;

fn benchmark(programs: &Programs) -> Outcome {
    let plain = {
        let server = Server::start(programs)?;
        server.work(REQUESTS)?;
        let digest = server.digest()?;
        server.stop()?;
        digest
    };
    let server = Server::start(programs)?;
    let recording = Record::into(server.folder())
        .args(["-d", "20"])
        .attach(server.pid())?;
    server.work(REQUESTS)?;
    let report = verdict::seen(&recording.stop()?)?;
    ensure!(
        server.digest()? == plain,
        "the data differ from those of a run without a recording"
    );
    ensure!(
        report.functions.len() > 100,
        "only {} functions",
        report.functions.len()
    );
    verdict::unharmed(server.pid(), server.program())?;
    server.stop()
}

fn sets(programs: &Programs) -> Outcome {
    const SETS: u64 = 500;
    let server = Server::start(programs)?;
    let record = Record::into(server.folder()).args(["-F", "0", "-f", "setCommand"]);
    let recording = record.attach(server.pid())?;
    let mut client = Running::start(server.client("redis-cli")?)?;
    for number in 0..SETS {
        client.say(&format!("set key{number} {number}\n"))?;
    }
    let said = client.wait()?.expect_code(0)?.stdout;
    ensure!(said.matches("OK").count() as u64 == SETS, "{said}");
    let report = verdict::seen(&recording.stop()?)?;
    let calls = report.calls("setCommand")?;
    ensure!(
        calls == SETS && report.lost == 0,
        "{calls} seen, {SETS} made, {} lost",
        report.lost
    );
    verdict::unharmed(server.pid(), server.program())?;
    server.stop()
}
