//! `/proc/PID/status`: what the kernel tells of a process beyond its numbers.
//!
//! Read over bytes, because a process may call itself anything.

/// The lines of the file that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Name (`comm`).
    pub name: String,
    /// State letter: R, S, D, T, t, Z, X, I.
    pub state: char,
    /// Process of the thread the file belongs to.
    pub tgid: u32,
    /// Parent.
    pub parent: u32,
    /// Tracer (debugger, strace), 0 = none.
    pub tracer: u32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Its pid in each pid namespace, from ours inwards. More than one: it lives in a nested namespace.
    pub namespace_pids: Vec<u32>,
    /// The kernel says it is a kernel thread (Linux 6.7 and later).
    pub kernel_thread: bool,
    /// 0 none, 1 strict, 2 filter.
    pub seccomp: u8,
    /// A user shadow stack (CET) is on.
    pub shadow_stack: bool,
    /// Number of threads.
    pub threads: u32,
    /// It ignores SIGCHLD: children end without a trace in its accounts.
    pub ignores_children: bool,
}

/// SIGCHLD in the masks of signals.
const CHILD_BIT: u64 = 1 << 16;

impl Status {
    /// Parses the text of the file; what is missing stays at its default.
    pub fn parse(text: &[u8]) -> Self {
        let mut status = Self {
            state: '?',
            ..Self::default()
        };
        for line in text.split(|&byte| byte == b'\n') {
            if let Some((key, value)) = super::bytes::split_once(line, b':') {
                status.take(key, &String::from_utf8_lossy(value.trim_ascii()));
            }
        }
        status
    }

    fn take(&mut self, key: &[u8], value: &str) {
        let field = |at: usize| {
            value
                .split_whitespace()
                .nth(at)
                .and_then(|text| text.parse().ok())
                .unwrap_or_default()
        };
        match key {
            b"Name" => self.name = value.to_owned(),
            b"State" => self.state = value.chars().next().unwrap_or('?'),
            b"Tgid" => self.tgid = field(0),
            b"PPid" => self.parent = field(0),
            b"TracerPid" => self.tracer = field(0),
            // Real, effective, saved, file system.
            b"Uid" => self.uid = field(1),
            b"Gid" => self.gid = field(1),
            b"NSpid" => {
                self.namespace_pids = value
                    .split_whitespace()
                    .filter_map(|text| text.parse().ok())
                    .collect()
            }
            b"Kthread" => self.kernel_thread = value == "1",
            b"Seccomp" => self.seccomp = value.parse().unwrap_or_default(),
            b"x86_Thread_features" => {
                self.shadow_stack = value.split_whitespace().any(|word| word == "shstk")
            }
            b"Threads" => self.threads = field(0),
            b"SigIgn" => {
                let mask = u64::from_str_radix(value, 16).unwrap_or_default();
                self.ignores_children = mask & CHILD_BIT != 0;
            }
            _ => {}
        }
    }

    /// Whether it lives in a pid namespace below ours.
    pub fn in_nested_pid_namespace(&self) -> bool {
        self.namespace_pids.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_that_matter_are_read() {
        let text = b"Name:\tmy (odd) na\\nme \xff\nState:\tS (sleeping)\nTgid:\t42\nPPid:\t7\nTracerPid:\t9\nUid:\t0\t1000\t0\t0\n\
            Gid:\t0\t100\t0\t0\nNSpid:\t42\t3\nKthread:\t0\nThreads:\t12\nSeccomp:\t2\nx86_Thread_features:\tshstk wrss\n\
            SigIgn:\t0000000000011000\n";
        let status = Status::parse(text);
        assert_eq!(status.name, "my (odd) na\\nme \u{fffd}");
        assert_eq!(
            (status.state, status.tgid, status.parent, status.tracer),
            ('S', 42, 7, 9)
        );
        assert_eq!(
            (status.uid, status.gid, status.threads, status.seccomp),
            (1000, 100, 12, 2)
        );
        assert!(status.in_nested_pid_namespace() && status.shadow_stack && !status.kernel_thread);
        assert!(status.ignores_children);
    }

    #[test]
    fn an_old_kernel_without_some_lines_is_no_error() {
        let status = Status::parse(b"Name:\tx\nx86_Thread_features:\t\n");
        assert!(!status.shadow_stack && !status.in_nested_pid_namespace());
        assert!(!Status::parse(b"SigIgn:\t0000000000001000\n").ignores_children);
        assert_eq!(Status::parse(b"").state, '?');
    }
}
