//! PostgreSQL: one backend of a server, attached to while it works.

use std::sync::Arc;

use anyhow::{Context, ensure};
use scalpel_tests::real::postgres::Server;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::scalpel::Record;
use scalpel_tests::suite::{Outcome, Suite};

use crate::verdict;

pub(crate) fn add(suite: &mut Suite, programs: &Arc<Programs>) {
    let shared = Arc::clone(programs);
    suite.test(
        "postgres",
        "the_books_of_pgbench_balance_after_a_recording",
        move || books(&shared),
    );
    let shared = Arc::clone(programs);
    suite.test(
        "postgres",
        "every_insert_of_a_session_is_counted",
        move || inserts(&shared),
    );
}

/// TPC-B keeps its sums: a transaction that a probe had broken would show in them.
fn books(programs: &Programs) -> Outcome {
    let server = Server::start(programs)?;
    server.run("pgbench", &["-i", "-q", "-s", "1", "postgres"])?;
    let mut bench = server.start_client("pgbench", &["-n", "-c", "1", "-T", "20", "postgres"])?;
    let backend = *server
        .backends_of_pgbench(1)?
        .first()
        .context("no backend")?;
    let recorded = Record::into(server.folder())
        .args(["-d", "4"])
        .attach(backend)?
        .ended()?
        .expect_code(0)?;
    let report = verdict::seen(&recorded)?;
    ensure!(bench.is_alive()?, "pgbench ended before the recording did");
    verdict::unharmed(backend, server.program())?;
    ensure!(
        report
            .functions
            .iter()
            .any(|function| function.name == "ExecutorRun"),
        "ExecutorRun never ran"
    );
    let said = bench.wait()?.expect_code(0)?.stdout;
    ensure!(said.contains("number of failed transactions: 0"), "{said}");
    let sums = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)
                   and (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)
                   and (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history)";
    ensure!(
        server.query(sums)? == "t",
        "the sums of pgbench do not agree any more"
    );
    server.stop()
}

/// One `heap_insert` a row, by PostgreSQL's own design.
fn inserts(programs: &Programs) -> Outcome {
    const ROWS: u64 = 1000;
    let server = Server::start(programs)?;
    server.query("create table rows (number int)")?;
    let mut session = server.start_client("psql", &["-qAtX", "-d", "postgres"])?;
    session.say("select pg_backend_pid();\n")?;
    let backend: u32 = session
        .stdout_line(|line| line.trim().parse::<u32>().is_ok())?
        .trim()
        .parse()?;
    let recording = Record::into(server.folder())
        .args(["-F", "0", "-f", "heap_insert"])
        .attach(backend)?;
    session.say(&format!(
        "do $$ begin for i in 1..{ROWS} loop insert into rows values (i); end loop; end $$;\n"
    ))?;
    session.say("select 'done';\n")?;
    session.stdout_line(|line| line.trim() == "done")?;
    let report = verdict::seen(&recording.stop()?)?;
    ensure!(report.lost == 0, "{} events lost", report.lost);
    let calls = report.calls("heap_insert")?;
    ensure!(calls == ROWS, "{calls} inserts seen, {ROWS} made");
    verdict::unharmed(backend, server.program())?;
    session.wait()?.expect_code(0)?;
    ensure!(
        server.query("select count(*), sum(number) from rows")? == "1000|500500",
        "rows are missing"
    );
    server.stop()
}
