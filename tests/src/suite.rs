//! A list of tests that can say at run time that they cannot run here, and why.
//!
//! `SCALPEL_REQUIRE=kernel,real,fixtures` turns such a skip into a failure, so that a machine which is meant to run
//! them cannot pass by skipping.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Why a test cannot run here. Returned as an error; the suite counts it as skipped.
#[derive(Debug)]
pub struct Skip(String);

impl Skip {
    /// The error for a test that cannot run because of `reason`.
    pub fn because(reason: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self(reason.into()))
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// What a test returns.
pub type Outcome = anyhow::Result<()>;

/// The tests of one tier (`kernel`, `real`, `fixtures`).
pub struct Suite {
    tier: &'static str,
    missing: Option<String>,
    trials: Vec<Trial>,
}

impl Suite {
    /// An empty suite. If `missing` names something that the whole tier needs, every test is skipped for it.
    pub fn new(tier: &'static str, missing: Option<String>) -> Self {
        Self {
            tier,
            missing,
            trials: Vec::new(),
        }
    }

    /// Adds a test named `family::sentence`.
    pub fn test(
        &mut self,
        family: &str,
        sentence: &str,
        run: impl FnOnce() -> Outcome + Send + 'static,
    ) {
        let tier = self.tier;
        let missing = self.missing.clone();
        self.trials.push(Trial::ignorable_test(
            format!("{family}::{sentence}"),
            move || match missing {
                Some(reason) => verdict(tier, Err(Skip::because(reason))),
                None => verdict(tier, run()),
            },
        ));
    }

    /// Runs what the command line selects, two tests at a time unless it says otherwise. Real projects have the
    /// machine, and their files, for themselves.
    pub fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        arguments
            .test_threads
            .get_or_insert(if self.tier == "real" { 1 } else { 2 });
        libtest_mimic::run(&arguments, self.trials).exit_code()
    }
}

/// What this machine lacks for any recording: the reason to skip a whole tier.
pub fn cannot_record() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".into());
    }
    let btf = Path::new("/sys/kernel/btf/vmlinux");
    (!btf.exists()).then(|| format!("needs a kernel with BTF: there is no {}", btf.display()))
}

/// Whether `SCALPEL_REQUIRE` names `tier`.
pub fn required(tier: &str) -> bool {
    std::env::var("SCALPEL_REQUIRE").is_ok_and(|tiers| tiers.split(',').any(|t| t.trim() == tier))
}

fn verdict(tier: &str, outcome: Outcome) -> Result<Completion, Failed> {
    match outcome {
        Ok(()) => Ok(Completion::Completed),
        Err(error) => match error.downcast_ref::<Skip>() {
            Some(skip) if !required(tier) => Ok(Completion::ignored_with(skip)),
            Some(skip) => Err(format!("skipped, but SCALPEL_REQUIRE names {tier}: {skip}").into()),
            None => Err(format!("{error:#}").into()),
        },
    }
}

/// Adds functions as tests, named by the family and their own names.
#[macro_export]
macro_rules! tests {
    ($suite:expr, $family:literal: $($test:ident),+ $(,)?) => {
        $($suite.test($family, stringify!($test), $test);)+
    };
}
