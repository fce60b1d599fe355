//! Who the files belong to: under `sudo` the one who called it, not root.

use std::fs::File;
use std::io;
use std::os::unix::fs::fchown;

/// Owner that files are given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    ids: Option<(u32, u32)>,
}

impl Owner {
    /// The caller of `sudo`, if there was one and we are root; else nobody else than ourselves.
    pub fn of_this_run() -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse().ok();
        Self::decide(
            rustix::process::geteuid().is_root(),
            number("SUDO_UID"),
            number("SUDO_GID"),
        )
    }

    const fn decide(root: bool, uid: Option<u32>, gid: Option<u32>) -> Self {
        match (root, uid, gid) {
            (true, Some(uid), Some(gid)) => Self {
                ids: Some((uid, gid)),
            },
            _ => Self { ids: None },
        }
    }

    /// Gives `file` to the owner.
    pub fn give(self, file: &File) -> io::Result<()> {
        match self.ids {
            Some((uid, gid)) => fchown(file, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_to_the_caller_of_sudo_only_when_we_are_root() {
        assert_eq!(
            Owner::decide(true, Some(1000), Some(100)).ids,
            Some((1000, 100))
        );
        assert_eq!(Owner::decide(false, Some(1000), Some(100)).ids, None);
        assert_eq!(Owner::decide(true, Some(1000), None).ids, None);
        assert_eq!(Owner::decide(true, None, None).ids, None);
    }
}
