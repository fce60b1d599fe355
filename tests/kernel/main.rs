//! Real attach to real programs: what a recording says against what the program counted itself.
//!
//! One file a family, named as the rooms that it exercises.

mod auto;
mod call;
mod cgroup;
mod company;
mod count;
mod dump;
mod exits;
mod host;
mod killed;
mod lifecycle;
mod loss;
mod probe;
mod process;
mod sample;
mod sched;
mod scope;
mod scope_harm;
mod scope_linked;
mod scope_places;
mod sites;
mod stat;
mod stopped;
mod stream;
mod top;
mod trigger;
mod trust;
mod values;
mod wait;

use std::path::Path;
use std::process::ExitCode;

use scalpel_tests::scalpel::Record;
use scalpel_tests::suite::{self, Suite};

fn main() -> ExitCode {
    let mut suite = Suite::new("kernel", suite::cannot_record());
    exits::add(&mut suite);
    call::add(&mut suite);
    count::add(&mut suite);
    stat::add(&mut suite);
    auto::add(&mut suite);
    top::add(&mut suite);
    sched::add(&mut suite);
    sample::add(&mut suite);
    wait::add(&mut suite);
    trigger::add(&mut suite);
    values::add(&mut suite);
    cgroup::add(&mut suite);
    host::add(&mut suite);
    process::add(&mut suite);
    company::add(&mut suite);
    sites::add(&mut suite);
    loss::add(&mut suite);
    stream::add(&mut suite);
    probe::add(&mut suite);
    lifecycle::add(&mut suite);
    killed::add(&mut suite);
    stopped::add(&mut suite);
    trust::add(&mut suite);
    dump::add(&mut suite);
    scope::add(&mut suite);
    scope_harm::add(&mut suite);
    scope_linked::add(&mut suite);
    scope_places::add(&mut suite);
    suite.run()
}

/// Exact counts: nothing is detached for what it costs.
fn exact(directory: &Path) -> Record {
    Record::into(directory).args(["--max-overhead", "off"])
}
