//! What the figures were measured on, and with which command.
use std::fs;

use anyhow::Result;

use crate::cmd;

/// The head of the page.
pub(super) fn about(seconds: u64) -> Result<String> {
    let cpu = first(&fs::read_to_string("/proc/cpuinfo")?, "model name")
        .unwrap_or_else(|| "unknown CPU".into());
    let memory = first(&fs::read_to_string("/proc/meminfo")?, "MemTotal").unwrap_or_default();
    let virtualized = fs::read_to_string("/proc/cpuinfo")?.contains(" hypervisor");
    let kernel = cmd::output(cmd::command("uname").args(["-r", "-m"]))?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let rustc = cmd::output(cmd::command("rustc").arg("--version"))?;
    let bpftrace = version("bpftrace");
    let gdb = version("gdb");
    Ok(format!(
        "Made by `cargo xtask bench` in {seconds} s; raw data in [data/benchmarks.csv](data/benchmarks.csv). Every figure is a median, \
with the least and the most in parentheses; ratios are taken round by round and then treated the same way. What is \
compared ran in turn, in the same rounds. Nothing here is asserted by a test: times depend on the machine.\n\n\
| machine | |\n|---|---|\n| CPU | {cpu}, {} processors{} |\n| memory | {memory} |\n| kernel | {} |\n| load when the page was written | {} |\n\
| built with | {} |\n| peers | {bpftrace}; {gdb} |\n",
        std::thread::available_parallelism()?,
        if virtualized {
            ", a virtual machine: every trap is dearer than on bare metal"
        } else {
            ""
        },
        kernel.trim(),
        load.trim(),
        rustc.trim(),
    ))
}

/// When and under what load a part was measured by itself.
pub(super) fn moment(part: &str) -> Result<String> {
    let date = cmd::output(cmd::command("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load: Vec<_> = load.split_whitespace().take(3).collect();
    Ok(format!(
        "Measured by `cargo xtask bench --only {part}` on {}, on the machine above; load in its last 1, 5 and 15 minutes: {}.",
        date.trim(),
        load.join(", ")
    ))
}

fn first(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn version(program: &str) -> String {
    let text = cmd::output(cmd::command(program).arg("--version")).unwrap_or_default();
    text.lines().next().unwrap_or("not installed").to_owned()
}

#[cfg(test)]
mod tests {
    use super::first;

    #[test]
    fn a_key_is_found_by_its_beginning() {
        assert_eq!(
            first("a : 1\nmodel name\t: Zen 5\n", "model name").unwrap(),
            "Zen 5"
        );
        assert_eq!(first("a : 1\n", "b"), None);
    }
}
