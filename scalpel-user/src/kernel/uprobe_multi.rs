//! One `uprobe_multi` link: a program on many offsets of a file at once (Linux 6.6), and which offsets the kernel
//! refuses.
//!
//! Must not know groups or budgets.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::apart::Link;
use super::calls::CallProgram;
use super::sys;
use crate::event::Pid;

/// A file that is probed. It is held open, so that it can be deleted or stand in another mount namespace: the kernel
/// is given `/proc/self/fd/N`, whose link leads to the inode itself.
#[derive(Debug)]
pub struct ProbedFile {
    file: File,
    label: PathBuf,
}

impl ProbedFile {
    /// Opens `path` for reading, as this process sees it (`/proc/PID/root/...` and `map_files` work).
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        Ok(Self {
            file: File::open(path)?,
            label: path.to_owned(),
        })
    }

    /// An open file, with the path that people know it by.
    pub const fn new(file: File, label: PathBuf) -> Self {
        Self { file, label }
    }

    /// The path that people know it by.
    pub fn label(&self) -> &Path {
        &self.label
    }

    /// The open file.
    pub const fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn kernel_path(&self) -> io::Result<std::ffi::CString> {
        sys::c_path(Path::new(&format!(
            "/proc/self/fd/{}",
            self.file.as_raw_fd()
        )))
    }
}

/// One probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Offset in the file.
    pub(super) offset: u64,
    /// Attach cookie.
    pub(super) cookie: u64,
}

/// Where a link goes.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) program: &'a CallProgram,
    pub(super) file: &'a ProbedFile,
    /// Process to watch; `None` = all.
    pub(super) pid: Option<Pid>,
    /// A return probe (not for sessions, which have their own).
    pub(super) on_return: bool,
}

/// Attaches all `sites` or none.
pub(super) fn attach(target: Target<'_>, sites: &[Site]) -> io::Result<Link> {
    let path = target.file.kernel_path()?;
    let offsets: Vec<u64> = sites.iter().map(|site| site.offset).collect();
    let cookies: Vec<u64> = sites.iter().map(|site| site.cookie).collect();
    sys::uprobe_multi_link(&sys::MultiLink {
        program: target.program.fd(),
        attach_type: target.program.attach_type(),
        path: &path,
        offsets: &offsets,
        cookies: &cookies,
        pid: target.pid.map_or(0, |pid| pid.0),
        flags: if target.on_return {
            sys::UPROBE_MULTI_RETURN
        } else {
            0
        },
    })
    .map(Link::from)
}

/// Whether a failed attach may be the fault of single offsets: an instruction that the kernel does not probe
/// (ENOTSUPP), an offset beyond the file (EINVAL), a page that cannot be read (EIO), a foreign breakpoint (EEXIST).
pub(super) fn blames_an_offset(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(sys::ENOTSUPP | libc::EINVAL | libc::EIO | libc::EEXIST | libc::ENOEXEC)
    )
}

/// Finds the sites that the kernel refuses, with its error number, without touching the target: the file is mapped
/// into this process, and trial links watch this process alone. It never runs the mapped code, but placing a
/// breakpoint there makes the kernel look at the instruction. (The mapping must be private, and may be without
/// execute permission: `valid_vma` in kernel/events/uprobes.c.)
pub(super) fn refused_sites(target: Target<'_>, sites: &[Site]) -> io::Result<Vec<(usize, i32)>> {
    // SAFETY: the mapping is neither read nor run; a file that shrinks meanwhile harms nobody.
    let mapping = unsafe { memmap2::MmapOptions::new().map_copy_read_only(target.file.file()) }?;
    let trial = Target {
        pid: Some(Pid(std::process::id())),
        ..target
    };
    let found = bisect(sites, &|part| match attach(trial, part) {
        Ok(link) => {
            drop(link);
            Ok(None)
        }
        Err(error) if blames_an_offset(&error) => Ok(error.raw_os_error()),
        Err(error) => Err(error),
    });
    drop(mapping);
    found
}

/// Parts tried at once: closing a link waits for grace periods (60 ms), which parallel closes share.
const PARALLEL: usize = 16;
/// Parts that a refused part is cut into.
const CUT: usize = 4;

/// Verdict on some sites: `None` = accepted, else the error number of the refusal.
type Verdict = io::Result<Option<i32>>;

/// Indices of the items that make `attempt` refuse, level by level, in parallel. An item is blamed only if it is
/// refused alone.
fn bisect<T: Sync>(
    items: &[T],
    attempt: &(dyn Fn(&[T]) -> Verdict + Sync),
) -> io::Result<Vec<(usize, i32)>> {
    let mut refused = Vec::new();
    let mut suspects = cut(0, items.len(), PARALLEL);
    while !suspects.is_empty() {
        let mut next = Vec::new();
        for batch in suspects.chunks(PARALLEL) {
            for (&(start, end), verdict) in batch.iter().zip(try_all(items, batch, attempt)) {
                match verdict? {
                    None => {}
                    Some(errno) if end - start == 1 => refused.push((start, errno)),
                    Some(_) => next.extend(cut(start, end, CUT)),
                }
            }
        }
        suspects = next;
    }
    refused.sort_unstable();
    Ok(refused)
}

fn try_all<T: Sync>(
    items: &[T],
    parts: &[(usize, usize)],
    attempt: &(dyn Fn(&[T]) -> Verdict + Sync),
) -> Vec<Verdict> {
    std::thread::scope(|scope| {
        let trials: Vec<_> = parts
            .iter()
            .map(|&(start, end)| {
                scope.spawn(move || attempt(items.get(start..end).unwrap_or_default()))
            })
            .collect();
        let gone = |_| Err(io::Error::other("a trial attach panicked"));
        trials
            .into_iter()
            .map(|trial| trial.join().unwrap_or_else(gone))
            .collect()
    })
}

/// Cuts a range into at most `parts` ranges of nearly equal length.
fn cut(start: usize, end: usize, parts: usize) -> Vec<(usize, usize)> {
    let step = (end - start).div_ceil(parts).max(1);
    (start..end)
        .step_by(step)
        .map(|from| (from, (from + step).min(end)))
        .collect()
}

/// Closes links in parallel: each close waits for the same grace periods. Returns when all are closed.
pub(super) fn close_all(links: Vec<Link>) {
    const THREADS: usize = 32;
    let queue = std::sync::Mutex::new(links);
    let take = || {
        queue
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .pop()
    };
    let threads = queue.lock().map_or(1, |queue| queue.len()).min(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(link) = take() {
                    drop(link)
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn bisecting_blames_exactly_the_bad_sites(bad in proptest::collection::vec(any::<bool>(), 0..200)) {
            let found = bisect(&bad, &|part| Ok(part.contains(&true).then_some(sys::ENOTSUPP))).unwrap();
            let expect: Vec<(usize, i32)> =
                bad.iter().enumerate().filter(|(_, bad)| **bad).map(|(index, _)| (index, sys::ENOTSUPP)).collect();
            prop_assert_eq!(found, expect);
        }
    }

    #[test]
    fn forty_bad_sites_of_eighty_thousand_take_few_trials() {
        let items: Vec<bool> = (0..78_000).map(|index| index % 1_950 == 7).collect();
        let trials = AtomicUsize::new(0);
        let found = bisect(&items, &|part| {
            trials.fetch_add(1, Ordering::Relaxed);
            Ok(part.contains(&true).then_some(sys::ENOTSUPP))
        });
        assert_eq!(found.unwrap().len(), 40);
        assert!(trials.into_inner() < 1_200);
    }

    #[test]
    fn an_error_that_no_site_is_to_blame_for_ends_the_search() {
        let found = bisect(&[1, 2, 3], &|_| {
            Err(io::Error::from_raw_os_error(libc::EMFILE))
        });
        assert_eq!(found.unwrap_err().raw_os_error(), Some(libc::EMFILE));
    }

    #[test]
    fn closing_nothing_returns() {
        close_all(Vec::new());
    }
}
