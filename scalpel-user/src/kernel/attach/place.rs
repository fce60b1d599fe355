//! Placing the probes of one group, and finding out who is to blame when the kernel refuses.

use caps::Capability;

use super::super::error::{Hint, KernelError};
use super::super::uprobe_multi::{self, ProbedFile, Site, Target};
use super::super::{sys, uprobe_perf};
use super::shape::{Member, Owned};

/// Why a group could not be attached.
pub(super) enum Failure {
    /// Single members are to blame (their indices, with the reason).
    Members(Vec<(usize, String)>),
    /// Nothing more can be attached.
    Fatal(KernelError),
}

impl Failure {
    pub(super) fn into_reason(self) -> String {
        match self {
            Self::Members(refused) => format!("{} of its sites are refused now", refused.len()),
            Self::Fatal(error) => error.to_string(),
        }
    }
}

pub(super) fn attach_multi(
    target: Target<'_>,
    sites: &[Site],
    owners: &[usize],
) -> Result<Vec<Owned>, Failure> {
    let error = match uprobe_multi::attach(target, sites) {
        Ok(link) => return Ok(vec![(None, link)]),
        Err(error) => error,
    };
    if !uprobe_multi::blames_an_offset(&error) {
        return Err(fatal(target, sites.len(), error));
    }
    let refused = uprobe_multi::refused_sites(target, sites)
        .map_err(|source| fatal(target, sites.len(), source))?;
    if refused.is_empty() {
        return Err(fatal(target, sites.len(), error));
    }
    Err(Failure::Members(blame(&refused, sites, owners)))
}

pub(super) fn attach_perf(
    target: Target<'_>,
    members: &[Member],
    sites: &[Site],
    owners: &[usize],
) -> Result<Vec<Owned>, Failure> {
    let mut links = Vec::with_capacity(sites.len());
    let mut refused = Vec::new();
    for (index, (site, owner)) in sites.iter().zip(owners).enumerate() {
        match uprobe_perf::attach(target, *site) {
            Ok(link) => links.push((members.get(*owner).map(|member| member.func), link)),
            Err(error) if uprobe_multi::blames_an_offset(&error) => {
                refused.push((index, error.raw_os_error().unwrap_or(0)));
            }
            Err(error) => return Err(fatal(target, sites.len(), error)),
        }
    }
    if refused.is_empty() {
        Ok(links)
    } else {
        Err(Failure::Members(blame(&refused, sites, owners)))
    }
}

/// Members to blame for refused sites, each once, in ascending order.
fn blame(refused: &[(usize, i32)], sites: &[Site], owners: &[usize]) -> Vec<(usize, String)> {
    let mut members: Vec<(usize, String)> = refused
        .iter()
        .filter_map(|&(index, errno)| {
            let (site, owner) = (sites.get(index)?, owners.get(index)?);
            Some((*owner, refusal(site.offset, errno)))
        })
        .collect();
    members.sort_by_key(|(member, _)| *member);
    members.dedup_by_key(|(member, _)| *member);
    members
}

fn refusal(offset: u64, errno: i32) -> String {
    match errno {
        sys::ENOTSUPP => {
            format!("the kernel cannot probe the instruction at file offset {offset:#x}")
        }
        libc::EINVAL => format!("file offset {offset:#x} is beyond the file, or not probeable"),
        _ => format!(
            "the kernel refused file offset {offset:#x}: {}",
            std::io::Error::from_raw_os_error(errno)
        ),
    }
}

fn fatal(target: Target<'_>, sites: usize, source: std::io::Error) -> Failure {
    match (source.raw_os_error(), target.pid) {
        (Some(libc::ESRCH), Some(pid)) => Failure::Fatal(KernelError::ProcessGone(pid.0)),
        _ => Failure::Fatal(attach_error(target.file, sites, source, needed(target))),
    }
}

/// The capabilities that an attach may need. Perf events of the uprobe PMU want the last one on older kernels.
fn needed(target: Target<'_>) -> &'static [Capability] {
    const LINKS: &[Capability] = &[Capability::CAP_BPF, Capability::CAP_PERFMON];
    const PERF: &[Capability] = &[
        Capability::CAP_BPF,
        Capability::CAP_PERFMON,
        Capability::CAP_SYS_ADMIN,
    ];
    if target.program.attach_type() == sys::ATTACH_PERF {
        PERF
    } else {
        LINKS
    }
}

pub(super) fn attach_error(
    file: &ProbedFile,
    sites: usize,
    source: std::io::Error,
    needed: &[Capability],
) -> KernelError {
    let hint = Hint::for_errno(source.raw_os_error(), needed);
    KernelError::Attach {
        file: file.label().display().to_string(),
        sites,
        hint,
        source,
    }
}
