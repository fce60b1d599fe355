//! What a recording costs its target: the probes that ran, against the CPU time that the target used.
//!
//! Must not know how probes are attached.

use rustc_hash::FxHashSet;
use rustix::time::{ClockId, clock_gettime};

use crate::event::{Control, FuncId, Pid};
use crate::function::ExitStrategy;
use crate::kernel::attach::SiteRequest;
use crate::kernel::calibrate::ProbeCosts;
use crate::kernel::{cpu_apart_ns, process_cpu_ns};
use crate::sandbox;
use crate::target::{Process, waited_for_cpu_ns};

/// CPU time of the targets, as last seen.
#[derive(Debug, Default)]
pub(super) struct TargetCpu {
    processes: Vec<Seen>,
    /// Nobody but us reaps them: their numbers stay theirs when they have ended.
    are_ours: bool,
    /// What their children use counts, too.
    follows: bool,
    /// Who was born to them since, and lives.
    children: FxHashSet<Pid>,
    /// What these had used when they were looked at last, in ns.
    of_children: u64,
}

/// A process, and the CPU time that it had used at the first and at the last look, in ns.
#[derive(Debug)]
struct Seen {
    process: Process,
    parent: Option<Pid>,
    first: u64,
    last: u64,
    has_ended: bool,
}

impl TargetCpu {
    pub(super) fn of(processes: &[Process], are_ours: bool, follows: bool) -> Self {
        let mut all = Self {
            are_ours,
            follows,
            ..Self::default()
        };
        processes.iter().for_each(|process| all.add(process));
        all
    }

    /// One more, from now on.
    pub(super) fn add(&mut self, process: &Process) {
        let cpu = self.cpu_ns(process).unwrap_or(0);
        self.processes.push(Seen {
            process: process.clone(),
            parent: process.status().ok().map(|status| Pid(status.parent)),
            first: cpu,
            last: cpu,
            has_ended: false,
        });
    }

    /// Takes note of who is born to them and ends. A child that has ended and was waited for is in its parent's account; one
    /// that nobody waits for is not, so that less is known to be used than was.
    pub(super) fn control(&mut self, control: &Control) {
        match control {
            Control::Fork { parent, child, .. } if parent != child => {
                self.children.insert(*child);
            }
            Control::Exit {
                pid,
                process_ended: Some(_),
                ..
            } => {
                self.children.remove(pid);
            }
            _ => {}
        }
    }

    /// To be called while the processes live, or are not reaped yet.
    pub(super) fn look(&mut self) {
        let mut processes = std::mem::take(&mut self.processes);
        for seen in &mut processes {
            match self.cpu_ns(&seen.process) {
                Some(now) => seen.last = now.max(seen.last),
                None => seen.has_ended = true,
            }
        }
        self.processes = processes;
    }

    /// The last look of all: at the children, too, which are many maybe.
    pub(super) fn look_at_all(&mut self) {
        self.look();
        let of_child = |pid: &Pid| cpu_with_waited_for(*pid).unwrap_or(0);
        self.of_children = self.children.iter().map(of_child).sum();
    }

    /// CPU time used since the start, in ns; of children as of [`Self::look_at_all()`].
    pub(super) fn used_ns(&self) -> u64 {
        let since = self.processes.iter().map(|seen| seen.last - seen.first);
        // All that a child has ever used is in the account of the parent that waited for it.
        let is_watched = |pid| self.processes.iter().any(|seen| seen.process.pid() == pid);
        let was_waited_for =
            |seen: &&Seen| self.follows && seen.has_ended && seen.parent.is_some_and(is_watched);
        let ended = self.processes.iter().filter(was_waited_for);
        let waited_for: u64 = ended.map(|seen| seen.last).sum();
        (since.sum::<u64>() + self.of_children).saturating_sub(waited_for)
    }

    /// CPU time of all threads of a process, ended ones too. Clock ticks are too coarse for a short program.
    fn cpu_ns(&self, process: &Process) -> Option<u64> {
        let cpu = match self.follows {
            true => cpu_with_waited_for(process.pid())?,
            false => process_cpu_ns(process.pid().0).ok()?,
        };
        // Asked after the reading, this proves that the number was its own.
        (self.are_ours || process.is_alive()).then_some(cpu)
    }
}

/// CPU time of a process, and of the children that it has waited for.
fn cpu_with_waited_for(pid: Pid) -> Option<u64> {
    let own = process_cpu_ns(pid.0).ok()?;
    Some(own + waited_for_cpu_ns(pid).unwrap_or(0))
}

/// CPU time of this process so far in ns, and of what others have done for it: system calls apart, executables read.
pub(super) fn own_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(used.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(used.tv_nsec).unwrap_or(0)
        + cpu_apart_ns()
        + sandbox::cpu_ns()
}

/// Time in probes in ns, lowest and highest: each hit costs what its kind of site and exit costs on this host.
pub(super) fn probes_ns(
    requests: &[SiteRequest],
    costs: &ProbeCosts,
    hits_of: impl Fn(FuncId) -> u64,
) -> (u64, u64) {
    let mut counted = FxHashSet::default();
    let mut sum = (0u64, 0u64);
    for request in requests
        .iter()
        .filter(|request| counted.insert(request.func))
    {
        let hits = hits_of(request.func);
        let (low, high) = costs.interval_of_call(
            request.stepped,
            request.exit == ExitStrategy::Return,
            request.exit == ExitStrategy::RetOffsets,
        );
        sum.0 = sum.0.saturating_add(hits.saturating_mul(low));
        sum.1 = sum.1.saturating_add(hits.saturating_mul(high));
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::Command;
    use std::sync::Arc;

    use super::*;
    use crate::event::made;
    use crate::kernel::attach::ProbedFile;

    #[test]
    fn a_stepped_site_costs_more_than_a_cheap_one_and_is_counted_once() {
        let path = std::env::current_exe().unwrap();
        let file = Arc::new(ProbedFile::new(std::fs::File::open(&path).unwrap(), path));
        let request = |stepped, exit| SiteRequest {
            func: FuncId::new(1).unwrap(),
            file: Arc::clone(&file),
            offset: 0,
            stepped,
            exit,
            ret_offsets: Vec::new(),
            heat: 0,
            pid_filter: None,
        };
        let costs = ProbeCosts::default();
        let check = |requests: &[SiteRequest], expect| {
            assert_eq!(probes_ns(requests, &costs, |_| 1000), expect)
        };
        let cheap = request(false, ExitStrategy::EntryOnly);
        check(std::slice::from_ref(&cheap), (700_000, 2_000_000));
        check(&[cheap.clone(), cheap], (700_000, 2_000_000));
        check(
            &[request(true, ExitStrategy::Return)],
            (10_500_000, 13_500_000),
        );
    }

    #[test]
    fn a_child_that_has_ended_still_tells_its_cpu_time() {
        let mut child = Command::new("sh")
            .args([
                "-c",
                "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; read x",
            ])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let process = Process::open(Pid(child.id())).unwrap();
        let mut cpu = TargetCpu::of(std::slice::from_ref(&process), true, false);
        drop(child.stdin.take());
        while process.is_alive() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        cpu.look();
        assert!(cpu.used_ns() > 0, "{cpu:?}");
        child.wait().unwrap();
    }

    /// A child that was there already, and worked for long before it was looked at.
    #[test]
    fn what_a_child_used_before_is_not_used_again_when_its_parent_waits_for_it() {
        let busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        let script = format!("({busy}; echo $BASHPID; read x) <&0 & wait; echo; read x");
        for follows in [true, false] {
            let mut parent = Command::new("bash")
                .args(["-c", &script])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = parent.stdin.take().unwrap();
            let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
            let child: u32 = lines.next().unwrap().unwrap().parse().unwrap();
            let both = [parent.id(), child].map(|pid| Process::open(Pid(pid)).unwrap());
            let watched = if follows { &both[..] } else { &both[..1] };
            let mut cpu = TargetCpu::of(watched, false, follows);
            let before = process_cpu_ns(child).unwrap();
            stdin.write_all(b"go\n").unwrap();
            lines.next().unwrap().unwrap();
            cpu.look_at_all();
            assert!(
                cpu.used_ns() < before / 2,
                "{follows}: {before} and {cpu:?}"
            );
            // Nobody who is watched waits for the parent.
            let used = cpu.used_ns();
            drop(stdin);
            parent.wait().unwrap();
            cpu.look_at_all();
            assert_eq!(cpu.used_ns(), used, "{cpu:?}");
        }
    }

    /// Both ways of knowing it: of one that lives, and of one that its parent has waited for.
    #[test]
    fn what_children_use_is_used_by_their_parents() {
        let busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        for (script, lives) in [
            (
                format!("read x; (sleep 0; {busy}; echo; read x) & echo $!; wait"),
                true,
            ),
            (
                format!("read x; (sleep 0; {busy}) & echo $!; wait; echo; read x"),
                false,
            ),
        ] {
            let mut parent = Command::new("bash")
                .args(["-c", &script])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let process = Process::open(Pid(parent.id())).unwrap();
            let mut cpu = TargetCpu::of(std::slice::from_ref(&process), true, true);
            let mut stdin = parent.stdin.take().unwrap();
            stdin.write_all(b"go\n").unwrap();
            let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
            let child: u32 = lines.next().unwrap().unwrap().parse().unwrap();
            cpu.control(&made::fork(1, parent.id(), child));
            lines.next().unwrap().unwrap();
            let own = process_cpu_ns(parent.id()).unwrap();
            if !lives {
                cpu.control(&made::process_ended(2, child));
            }
            cpu.look_at_all();
            // A loop of 60,000 rounds takes longer than a parent that waits.
            assert!(cpu.used_ns() > 2 * own, "{lives}: {own} of {cpu:?}");
            drop(stdin);
            parent.wait().unwrap();
        }
    }
}
