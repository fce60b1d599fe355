//! Probes of the uprobe PMU, one perf event each: for kernels without `uprobe_multi` (before Linux 6.6).
//!
//! They need a descriptor each (on older kernels `CAP_SYS_ADMIN` too) and close slowly: bounded in number. No fall-back
//! to tracefs, which crashed old kernels when tried blindly.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use super::apart::Link;
use super::sys;
use super::uprobe_multi::{Site, Target};

const PMU: &str = "/sys/bus/event_source/devices/uprobe";

/// Attaches one probe.
pub(super) fn attach(target: Target<'_>, site: Site) -> io::Result<Link> {
    let path = target.file.kernel_path()?;
    let event: Link = sys::perf_uprobe_open(&sys::PerfProbe {
        pmu: pmu_number()?,
        config: if target.on_return { return_bit()? } else { 0 },
        path: &path,
        offset: site.offset,
        pid: target.pid.map(|pid| pid.0),
    })?
    .into();
    sys::perf_link(target.program.fd(), event.as_fd(), site.cookie).map(Link::from)
}

/// Allows as many descriptors as this process may have. Failure shows up when one cannot be opened.
pub fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _not_fatal = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

fn pmu_number() -> io::Result<u32> {
    let text = fs::read_to_string(format!("{PMU}/type"))?;
    text.trim().parse().map_err(io::Error::other)
}

/// The bit of `config` that makes a return probe; its place is in sysfs (`config:0`).
fn return_bit() -> io::Result<u64> {
    let text = fs::read_to_string(format!("{PMU}/format/retprobe"))?;
    bit_of(&text)
        .ok_or_else(|| io::Error::other(format!("`{}` is not the place of a bit", text.trim())))
}

fn bit_of(format: &str) -> Option<u64> {
    let place: u32 = format.trim().strip_prefix("config:")?.parse().ok()?;
    1u64.checked_shl(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_return_bit_is_read_from_its_format() {
        assert_eq!(bit_of("config:0\n"), Some(1));
        assert_eq!(bit_of("config:3"), Some(8));
        assert_eq!(bit_of("config1:0"), None);
        assert_eq!(bit_of("config:99"), None);
    }
}
