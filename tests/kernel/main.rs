//! Real attach to real programs: what a recording says against what the program counted itself.
//!
//! One file a family, named as the rooms that it exercises.

mod call;
mod exits;
mod lifecycle;
mod loss;
mod process;
mod sample;
mod sched;
mod sites;
mod stream;

use std::path::Path;
use std::process::ExitCode;

use scalpel_tests::scalpel::Record;
use scalpel_tests::suite::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new("kernel", missing());
    exits::add(&mut suite);
    call::add(&mut suite);
    sched::add(&mut suite);
    sample::add(&mut suite);
    process::add(&mut suite);
    sites::add(&mut suite);
    loss::add(&mut suite);
    stream::add(&mut suite);
    lifecycle::add(&mut suite);
    suite.run()
}

/// What this machine lacks for the whole tier.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".into());
    }
    let btf = Path::new("/sys/kernel/btf/vmlinux");
    (!btf.exists()).then(|| format!("needs a kernel with BTF: there is no {}", btf.display()))
}

/// Exact counts: nothing is detached for what it costs.
fn exact(directory: &Path) -> Record {
    Record::into(directory).args(["--max-overhead", "off"])
}
