//! What a recording may do besides what it is for: root's other rights are gone, and executables are read by nobody.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::CALLS;
use scalpel_tests::scalpel;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "trust":
        no_thread_of_a_recording_keeps_what_it_does_not_take,
        a_command_has_all_that_root_has,
        the_reader_of_executables_is_nobody,
        whoever_accounts_for_programs_has_one_right,
    );
}

/// Numbers of `linux/capability.h` with which anything else could be done.
const DANGEROUS: [(u32, &str); 7] = [
    (7, "CAP_SETUID"),
    (8, "CAP_SETPCAP"),
    (16, "CAP_SYS_MODULE"),
    (17, "CAP_SYS_RAWIO"),
    (18, "CAP_SYS_CHROOT"),
    (21, "CAP_SYS_ADMIN"),
    (27, "CAP_MKNOD"),
];

fn field<'t>(status: &'t str, name: &str) -> anyhow::Result<&'t str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.and_then(|rest| rest.strip_prefix(':'));
    Ok(line.with_context(|| format!("{name} in {status}"))?.trim())
}

fn mask(status: &str, name: &str) -> anyhow::Result<u64> {
    Ok(u64::from_str_radix(field(status, name)?, 16)?)
}

fn no_thread_of_a_recording_keeps_what_it_does_not_take() -> Outcome {
    let copy = CALLS.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let mut recording = crate::exact(copy.directory()).attach(target.pid())?;
    let tasks = format!("/proc/{}/task", recording.running().pid());
    let mut threads = 0;
    for task in std::fs::read_dir(&tasks)? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        for set in ["CapPrm", "CapEff"] {
            let held = mask(&status, set)?;
            for (number, name) in DANGEROUS {
                ensure!(held >> number & 1 == 0, "{name} in {set} of {status}");
            }
        }
        threads += 1;
    }
    ensure!(threads > 1, "a recording has more threads than {threads}");
    // What it kept is enough.
    let truth = target.work()?;
    let recorded = recording.stop()?.expect_code(0)?;
    target.finish()?;
    recorded.report()?.agrees_with(&truth)
}

fn a_command_has_all_that_root_has() -> Outcome {
    let copy = CALLS.copy()?;
    let script = "grep ^Cap /proc/self/status";
    let recorded = crate::exact(copy.directory()).command(Path::new("/bin/sh"), &["-c", script])?;
    let recorded = recorded.expect_code(0)?;
    let plain = Command::new("/bin/sh").args(["-c", script]).output()?;
    let plain = String::from_utf8(plain.stdout)?;
    ensure!(mask(&plain, "CapEff")? >> 21 & 1 == 1, "not run by root");
    ensure!(
        recorded.ended.stdout == plain,
        "recorded: {}plain: {plain}",
        recorded.ended.stdout
    );
    Ok(())
}

/// The state of a confined process that has said that it is, and that it ends with whoever started it.
fn confined(word: &str) -> anyhow::Result<String> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut process = Command::new(scalpel::program()?)
        .arg(word)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = [1; 12];
    ours.read_exact(&mut said)?;
    ensure!(said == [0; 12], "{word} says {said:?}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()))?;
    drop(ours);
    let ended = process.wait()?;
    ensure!(ended.success(), "{ended}");
    ensure!(field(&status, "NoNewPrivs")? == "1", "{status}");
    ensure!(field(&status, "Seccomp")? == "2", "{status}");
    Ok(status)
}

fn whoever_accounts_for_programs_has_one_right() -> Outcome {
    let status = confined("meter")?;
    for (set, held) in [
        ("CapInh", 0),
        ("CapPrm", 1 << 21),
        ("CapEff", 1 << 21),
        ("CapAmb", 0),
    ] {
        ensure!(mask(&status, set)? == held, "{set} in {status}");
    }
    Ok(())
}

fn the_reader_of_executables_is_nobody() -> Outcome {
    let status = confined("reader")?;
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        ensure!(mask(&status, set)? == 0, "{set} in {status}");
    }
    for id in ["Uid", "Gid"] {
        let ids = field(&status, id)?;
        ensure!(ids.split_whitespace().all(|it| it == "65534"), "{status}");
    }
    ensure!(field(&status, "Groups")?.is_empty(), "{status}");
    Ok(())
}
