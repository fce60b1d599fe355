//! What ends a recording from outside: Ctrl-C, SIGTERM, SIGHUP, and the duration asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Listens until it is dropped with the process.
#[derive(Debug)]
pub(crate) struct Stopper {
    first: Arc<AtomicI32>,
    count: Arc<AtomicUsize>,
    until: Option<Instant>,
}

impl Stopper {
    /// Takes the signals over from now on: none of them ends the process any more.
    pub(crate) fn start() -> Result<Self> {
        let (first, count) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicUsize::new(0)));
        let (thread_first, thread_count) = (Arc::clone(&first), Arc::clone(&count));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the signal listener")?;
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .name("scalpel-signals".into())
            .spawn(move || {
                runtime.block_on(async move {
                    let listen = || -> std::io::Result<_> {
                        Ok((
                            signal(SignalKind::interrupt())?,
                            signal(SignalKind::terminate())?,
                            signal(SignalKind::hangup())?,
                        ))
                    };
                    let streams = listen();
                    let ok = streams.as_ref().map(|_| ()).map_err(std::io::Error::kind);
                    if ready.send(ok).is_err() {
                        return;
                    }
                    let Ok((mut interrupt, mut terminate, mut hangup)) = streams else {
                        return;
                    };
                    loop {
                        let number = tokio::select! {
                            _ = interrupt.recv() => libc::SIGINT,
                            _ = terminate.recv() => libc::SIGTERM,
                            _ = hangup.recv() => libc::SIGHUP,
                        };
                        // The first one is the reason; later ones are counted.
                        let _earlier = thread_first.compare_exchange(
                            0,
                            number,
                            Ordering::AcqRel,
                            Ordering::Acquire,
                        );
                        thread_count.fetch_add(1, Ordering::AcqRel);
                    }
                });
            })
            .context("starting the signal listener")?;
        let listening = is_ready.recv().context("starting the signal listener")?;
        listening
            .map_err(std::io::Error::from)
            .context("listening for signals")?;
        Ok(Self {
            first,
            count,
            until: None,
        })
    }

    /// The duration asked for begins: everything is attached.
    pub(crate) fn begin(&mut self, duration: Option<Duration>) {
        self.until = duration.map(|duration| Instant::now() + duration);
    }

    /// Whether the recording should end now.
    pub(crate) fn should_stop(&self) -> bool {
        self.signals() > 0 || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// The first signal that came.
    pub(super) fn signal(&self) -> Option<Signal> {
        match self.first.load(Ordering::Acquire) {
            libc::SIGINT => Some(Signal::INT),
            libc::SIGTERM => Some(Signal::TERM),
            libc::SIGHUP => Some(Signal::HUP),
            _ => None,
        }
    }

    /// How many came.
    pub(super) fn signals(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}
