//! Which code may run as a copy: what cannot be written while the copy stands for it. Read once, when a scope is opened.
use std::fs;

/// A range of addresses.
pub(super) type Range = (u64, u64);

/// Addresses of the kernel's half, where the old system call page seems to be.
const KERNEL: u64 = 1 << 63;

/// The mappings whose code may be copied.
pub(super) fn ranges() -> Vec<Range> {
    let alone = fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
    let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    text.lines().filter_map(|line| range(line, alone)).collect()
}

/// The mappings of files among them.
pub(super) fn text() -> Vec<Range> {
    let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    text.lines().filter_map(|line| range(line, false)).collect()
}

/// Private and not writable. Code of no file is a just-in-time compiler's: another thread could rewrite it.
fn range(line: &str, alone: bool) -> Option<Range> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let access = words.next()?;
    let path = words.nth(3).unwrap_or_default().trim_start();
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let file = path.starts_with('/') && !path.starts_with("/memfd:") && !path.starts_with("/dev/");
    let runs = access.contains('x') && !access.contains('w') && access.ends_with('p');
    let known = file || path == "[vdso]" || path.is_empty() && alone;
    (runs && known && start < KERNEL).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, alone: bool, expect: bool) {
        assert_eq!(range(line, alone).is_some(), expect, "{line}");
    }

    #[test]
    fn code_that_can_be_written_is_not_copied() {
        check(
            "10000-20000 r-xp 00000000 fe:00 12   /lib/a.so",
            false,
            true,
        );
        check(
            "10000-20000 --xp 00000000 fe:00 12   /lib/a.so",
            false,
            true,
        );
        check(
            "10000-20000 r--p 00000000 fe:00 12   /lib/a.so",
            false,
            false,
        );
        check("10000-20000 rwxp 00000000 00:00 0", true, false);
        check(
            "10000-20000 r-xs 00000000 00:01 9    /memfd:doublemapper",
            true,
            false,
        );
        check(
            "10000-20000 r-xp 00000000 00:01 9    /memfd:jit",
            true,
            false,
        );
        check("10000-20000 r-xp 00000000 00:00 0    [vdso]", false, true);
    }

    #[test]
    fn code_of_no_file_is_copied_where_no_other_thread_can_rewrite_it() {
        check("10000-20000 r-xp 00000000 00:00 0 ", true, true);
        check("10000-20000 r-xp 00000000 00:00 0 ", false, false);
    }
}
