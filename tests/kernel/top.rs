//! `top`: once without a terminal, and on one.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use scalpel_tests::catalog::FLOOD;
use scalpel_tests::child::{self, PATIENCE};
use scalpel_tests::report::Report;
use scalpel_tests::scalpel::program;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "top":
        once_it_prints_what_it_has_seen_and_ends,
        without_a_terminal_it_says_what_to_do,
        on_a_terminal_it_sorts_searches_and_leaves_it_as_it_was,
    );
}

fn endless() -> anyhow::Result<(scalpel_tests::fixture::Copy, Target)> {
    let copy = FLOOD.copy()?;
    let mut target = Target::start(copy.path(), &["endless"])?;
    target.running().say("go\n")?;
    Ok((copy, target))
}

fn top(target: &Target, args: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(program()?);
    let pid = target.pid().to_string();
    command.args(["top", "--pid", &pid]).args(args);
    Ok(command)
}

fn once_it_prints_what_it_has_seen_and_ends() -> Outcome {
    let (_copy, target) = endless()?;
    let ended = child::run(top(&target, &["--once", "--json"])?)?.expect_code(0)?;
    let report = Report::parse(&ended.stdout)?;
    let hot = report.function("hot")?;
    ensure!(hot.state == "ran" && hot.calls > Some(0), "{hot:?}");
    let ended = child::run(top(&target, &["--once", "-i", "0.5", "-n", "0"])?)?.expect_code(0)?;
    for part in ["FUNCTION", "hot [", "lost  ", "overhead  "] {
        ensure!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    Ok(())
}

fn without_a_terminal_it_says_what_to_do() -> Outcome {
    let (_copy, target) = endless()?;
    let ended = child::run(top(&target, &[])?)?.expect_code(2)?;
    ensure!(ended.stderr.contains("--once"), "{}", ended.stderr);
    Ok(())
}

/// A terminal with a program in it.
struct Terminal {
    master: File,
    slave: File,
    written: Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    fn open() -> anyhow::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let name = std::ffi::OsString::from_vec(name.into_bytes());
        let slave = File::options().read(true).write(true).open(name)?;
        tcsetwinsize(
            &slave,
            Winsize {
                ws_row: 24,
                ws_col: 100,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )?;
        let master = File::from(master);
        let mut reader = master.try_clone()?;
        let (send, written) = channel();
        // It ends with the last descriptor of the slave.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                let text = bytes.get(..read).unwrap_or_default();
                if send.send(text.to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            master,
            slave,
            written,
            text: String::new(),
        })
    }

    fn run(&self, mut command: Command) -> anyhow::Result<Child> {
        command
            .stdin(self.slave.try_clone()?)
            .stdout(self.slave.try_clone()?)
            .stderr(self.slave.try_clone()?);
        Ok(command.spawn()?)
    }

    fn keys(&mut self, keys: &str) -> anyhow::Result<()> {
        Ok(self.master.write_all(keys.as_bytes())?)
    }

    /// Waits until `part` has been written since the last time.
    fn until(&mut self, part: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.text.find(part) {
                self.text.drain(..at + part.len());
                return Ok(());
            }
            match self.written.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => self.text += &String::from_utf8_lossy(&bytes),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(_) => bail!("{part:?} was not written, but {:?}", self.text),
            }
        }
    }
}

fn on_a_terminal_it_sorts_searches_and_leaves_it_as_it_was() -> Outcome {
    let (_copy, target) = endless()?;
    let mut terminal = Terminal::open()?;
    let before = tcgetattr(&terminal.slave)?;
    let mut child = terminal.run(top(&target, &["-i", "0.1"])?)?;
    let seen = (|| {
        terminal.until("\x1b[?1049h")?;
        terminal.until("FUNCTION")?;
        terminal.until("flood")?;
        // Since the start, for the hot ones are switched off soon.
        terminal.keys("a/ho")?;
        terminal.until("o_")?;
        terminal.keys("\r\x1b")?;
        terminal.until("q end")?;
        terminal.keys("c")?;
        terminal.keys("q")?;
        terminal.until("\x1b[?1049l")
    })();
    if seen.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    seen?;
    ensure!(status.success(), "{status}");
    let after = tcgetattr(&terminal.slave)?;
    ensure!(
        (after.local_modes, after.input_modes, after.output_modes)
            == (before.local_modes, before.input_modes, before.output_modes),
        "{after:?}"
    );
    drop(target);
    Ok(())
}
