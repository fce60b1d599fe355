//! The guardian's process, as the tool sees it: orders go in, reports come out, and closing its input lets the target go.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use scalpel_scope::outside::guard;
use scalpel_scope::outside::message::{Order, Report};

use super::ScopeError;
use crate::exit::Outcome;

/// Runs this process as a guardian until its input ends.
pub fn be_the_guardian() -> Result<Outcome> {
    guard().context("the guardian of a scope")?;
    Ok(Outcome::Done)
}

/// A guardian that runs.
#[derive(Debug)]
pub(super) struct Guardian {
    child: Child,
    orders: Option<ChildStdin>,
    reports: Receiver<io::Result<Report>>,
}

impl Guardian {
    /// Starts it, out of reach of the terminal's signals.
    pub(super) fn start() -> Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg("guardian")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the guardian")?;
        let (send, reports) = channel();
        let lines = child.stdout.take().map(BufReader::new);
        std::thread::Builder::new()
            .name("guardian".into())
            .spawn(move || {
                for line in lines.into_iter().flat_map(BufReader::lines) {
                    let report = line.and_then(|line| Ok(serde_json::from_str(&line)?));
                    if send.send(report).is_err() {
                        return;
                    }
                }
            })
            .context("starting the guardian's reader")?;
        Ok(Self {
            orders: child.stdin.take(),
            child,
            reports,
        })
    }

    /// Tells it what to do.
    pub(super) fn order(&mut self, order: &Order) -> Result<()> {
        let line = serde_json::to_string(order)? + "\n";
        if let Some(orders) = &mut self.orders {
            // One that is dead says so when its reports are read.
            drop(orders.write_all(line.as_bytes()));
        }
        Ok(())
    }

    /// The next report, if one comes in time.
    pub(super) fn report(&self, patience: Duration) -> Result<Option<Report>> {
        match self.reports.recv_timeout(patience) {
            Ok(report) => Ok(Some(report.context("reading from the guardian")?)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(ScopeError::NoGuardian.into()),
        }
    }

    /// Lets the target go as soon as it can.
    pub(super) fn let_go(&mut self) {
        self.orders = None;
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.let_go();
        // It ends by itself; within a system call of the stepped thread it is ended, which does no harm either.
        for _ in 0..200 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
