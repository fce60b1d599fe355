//! A process's checks: what it is, and what will be used on it.

use super::Check;
use crate::caps::{Abilities, Attach, Hazard};
use crate::target::{MappedImage, Process, Runtime, Status, TargetError};

/// What was found out about a process.
#[derive(Clone, Debug)]
pub struct TargetFacts {
    /// Its status file.
    pub status: Status,
    /// Its program, as itself sees it.
    pub exe: String,
    /// Its executable files.
    pub images: Vec<MappedImage>,
    /// The program was made by Go.
    pub go: Option<bool>,
    /// Its runtimes.
    pub runtimes: Vec<Runtime>,
    /// It lives in another mount namespace.
    pub other_mounts: bool,
    /// Its personality flags (`/proc/PID/personality`), if readable.
    pub personality: Option<u32>,
}

impl TargetFacts {
    /// Reads them. `is_go` looks into a program's bytes.
    pub fn read(
        process: &Process,
        is_go: impl FnOnce(&MappedImage) -> Option<bool>,
    ) -> Result<Self, TargetError> {
        let images = process.images()?;
        let go = images.iter().find(|image| image.main).and_then(is_go);
        let mounts = |path: std::path::PathBuf| std::fs::read_link(path).ok();
        let theirs = mounts(process.proc_path("ns/mnt"));
        Ok(Self {
            status: process.status()?,
            exe: process.exe()?.to_string_lossy().into_owned(),
            go,
            runtimes: process.runtimes()?,
            other_mounts: theirs.is_some() && theirs != mounts("/proc/self/ns/mnt".into()),
            personality: process
                .read("personality")
                .ok()
                .and_then(|text| hexadecimal(&text)),
            images,
        })
    }
}

fn hexadecimal(text: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(text).ok()?.trim(), 16).ok()
}

/// `READ_IMPLIES_EXEC`: data is executable, so every mapping of the process counts as code.
const READ_IMPLIES_EXEC: u32 = 0x0040_0000;

/// Every fact about the process, judged.
pub fn check_process(process: &TargetFacts, able: &Abilities) -> Vec<Check> {
    let status = &process.status;
    let mut checks = vec![
        Check::ok(
            "process",
            format!(
                "{} ({}), {} threads, uid {}",
                process.exe, status.name, status.threads, status.uid
            ),
        ),
        files(process),
        returns(process, able),
        namespaces(process),
    ];
    checks.extend(tracer(status));
    checks.extend(stopped(status));
    checks.extend(personality(process));
    checks.extend(runtimes(process));
    checks
}

fn files(process: &TargetFacts) -> Check {
    let closed: Vec<String> = process
        .images
        .iter()
        .filter_map(|image| Some(format!("{}: {}", image.name(), image.file.as_ref().err()?)))
        .collect();
    let deleted = process.images.iter().filter(|image| image.deleted).count();
    let found = match deleted {
        0 => format!("{} executable files", process.images.len()),
        _ => format!(
            "{} executable files, {deleted} of them deleted or replaced",
            process.images.len()
        ),
    };
    if closed.is_empty() {
        return Check::ok("files", found);
    }
    Check::warn(
        "files",
        found,
        format!("cannot be opened: {}", closed.join("; ")),
        "run with sudo; their functions will have no names",
    )
}

/// Whether return probes may be used, and if not why: the same facts as the recording's exit table takes.
fn returns(process: &TargetFacts, able: &Abilities) -> Check {
    let sandboxed = process.status.seccomp > 0;
    let restricted = |found: &str, why: &str| {
        Check::warn(
            "returns",
            found,
            why,
            "calls are counted by entry; `--exits ret` sees their ends, at a price",
        )
    };
    if process.go == Some(true) {
        return Check::warn(
            "returns",
            "the program is made by Go",
            "Go moves its stacks: a return probe would crash it",
            "entries are counted, time comes from sampling",
        );
    }
    if sandboxed && able.is(Hazard::SeccompKillsReturns) {
        return restricted(
            "the process has a seccomp filter",
            "on this kernel a return probe would get it killed",
        );
    }
    if process.status.shadow_stack && able.is(Hazard::ShadowStackReturns) {
        return restricted(
            "the process has a shadow stack",
            "on this kernel a return probe would get it killed",
        );
    }
    let extra = match (sandboxed, process.status.shadow_stack) {
        (true, true) => ", under seccomp and a shadow stack",
        (true, false) => ", under seccomp",
        (false, true) => ", under a shadow stack",
        (false, false) => "",
    };
    let how = match (able.attach.choice, able.session.choice) {
        (Attach::Multi, true) => "uprobe session",
        (Attach::Multi, false) => "uprobe_multi return probes",
        (Attach::Perf, _) => "perf return probes",
    };
    Check::ok(
        "returns",
        format!(
            "{how} where a function is proven safe{extra}; see `list sites -p {}`",
            process.status.tgid
        ),
    )
}

fn namespaces(process: &TargetFacts) -> Check {
    let inner = process
        .status
        .namespace_pids
        .last()
        .copied()
        .unwrap_or(process.status.tgid);
    let found = match (
        process.status.in_nested_pid_namespace(),
        process.other_mounts,
    ) {
        (false, false) => return Check::ok("namespaces", "ours"),
        (true, _) => format!("in a pid namespace, where its pid is {inner}: a container"),
        (false, true) => "in a mount namespace of its own".into(),
    };
    Check {
        why: "its files are read through /proc".into(),
        ..Check::ok("namespaces", found)
    }
}

fn tracer(status: &Status) -> Option<Check> {
    let why = "a debugger that stops it changes every time measured, and breakpoints in probed code may collide";
    (status.tracer != 0).then(|| {
        Check::warn(
            "debugger",
            format!("process {} traces it", status.tracer),
            why,
            "detach it",
        )
    })
}

fn stopped(status: &Status) -> Option<Check> {
    let next = format!("`kill -CONT {}`", status.tgid);
    matches!(status.state, 'T' | 't').then(|| {
        Check::warn(
            "state",
            "it is stopped",
            "a stopped process calls nothing",
            next,
        )
    })
}

fn personality(process: &TargetFacts) -> Option<Check> {
    let flags = process.personality?;
    let why = "data counts as code in it: mappings without a function in them are no fault";
    (flags & READ_IMPLIES_EXEC != 0).then(|| {
        Check::warn(
            "personality",
            format!("READ_IMPLIES_EXEC ({flags:#x})"),
            why,
            "",
        )
    })
}

fn runtimes(process: &TargetFacts) -> Option<Check> {
    let words: Vec<_> = process
        .runtimes
        .iter()
        .map(|runtime| runtime.word())
        .collect();
    let why = "functions of the interpreter are seen, those of the interpreted program are not";
    (!words.is_empty()).then(|| Check {
        why: why.into(),
        ..Check::ok("runtimes", words.join(", "))
    })
}
