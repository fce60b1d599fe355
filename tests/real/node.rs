//! Node.js: 78,000 C++ functions, and a program that must go on answering while they are probed.

use anyhow::ensure;
use scalpel_tests::real::node::Server;
use scalpel_tests::scalpel::Record;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;

use crate::verdict;

const REQUESTS: usize = 50;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "node": a_server_answers_the_same_while_it_is_recorded);
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
