//! What a runtime offers to a recording that begins now, while it runs. Pure: facts in, an offer out.

use serde::Serialize;

use super::Present;
use crate::target::Runtime;

/// Oldest minor version of Python 3 that runs a script which another process gives it.
const ENTERED_SINCE: u32 = 14;

/// What is true of the process, whatever runs in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings {
    /// Its files are not ours: another mount namespace or root.
    pub(super) elsewhere: bool,
    /// It writes names of compiled code where samples find them.
    pub(super) names_compiled_code: bool,
    /// Our probe for Python is in it already.
    pub(super) has_probe: bool,
    /// A probe in it has joined a recording: whoever records it next listens to that one.
    pub(super) has_joined: bool,
}

/// Probes that there are here: `python/cp314`, `node`.
#[derive(Clone, Debug, Default)]
pub struct Installed {
    /// Languages.
    pub languages: Vec<String>,
    /// Minor versions of Python 3.
    pub python: Vec<u32>,
}

/// The most that can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offered {
    /// Every call of its functions: the probe is loaded into it.
    Calls,
    /// Its functions are native ones: chosen and counted as in any program.
    Native,
    /// Samples that name what it compiled, and native functions.
    Names,
    /// Functions of the runtime itself, and samples in them.
    Interpreter,
}

impl Offered {
    /// What is meant, for the foot of a table.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Calls => "the probe is loaded into it, or is there: every call",
            Self::Native => "its functions are native ones",
            Self::Names => "samples name its compiled functions",
            Self::Interpreter => "functions of the runtime itself, and samples in them",
        }
    }

    /// As in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Native => "native",
            Self::Names => "names",
            Self::Interpreter => "interpreter",
        }
    }
}

/// What one runtime offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The runtime.
    pub present: Present,
    /// The most that `record --pid` gets.
    pub offered: Offered,
    /// Why its functions are not recorded call by call, and what to do. `None` = they are.
    pub why_not: Option<String>,
}

pub(super) fn offer(present: Present, surroundings: Surroundings, installed: &Installed) -> Offer {
    let why_not = why_not(&present, surroundings, installed);
    let offered = match (present.runtime, &why_not) {
        (Runtime::Go, _) => Offered::Native,
        (_, None) => Offered::Calls,
        _ if surroundings.names_compiled_code => Offered::Names,
        _ => Offered::Interpreter,
    };
    let why_not = why_not.filter(|_| offered != Offered::Native);
    Offer {
        present,
        offered,
        why_not,
    }
}

fn why_not(present: &Present, surroundings: Surroundings, installed: &Installed) -> Option<String> {
    match present.runtime {
        Runtime::Python | Runtime::Node if surroundings.has_joined => None,
        Runtime::Python => python(present, surroundings, installed),
        Runtime::Node => Some(format!(
            "JavaScript that runs already has no safe way in (SIGUSR1 would open a port for debuggers, and is never sent); {}",
            at_start("node", installed)
        )),
        Runtime::Go => Some("a Go program has no probe to be loaded".into()),
        other => Some(at_start(other.word(), installed)),
    }
}

fn python(present: &Present, surroundings: Surroundings, installed: &Installed) -> Option<String> {
    let version = present.version.as_deref().unwrap_or("of unknown version");
    if present.free_threaded {
        return Some(format!(
            "Python {version} without its global lock is not supported"
        ));
    }
    let minor = minor(version);
    if minor.is_none_or(|minor| minor < ENTERED_SINCE) {
        return Some(format!(
            "Python {version} cannot be entered while it runs, 3.{ENTERED_SINCE} can; {}",
            at_start("python", installed)
        ));
    }
    if !minor.is_some_and(|minor| installed.python.contains(&minor)) {
        return Some(format!(
            "no probe for Python {version} is installed here: `cargo xtask build-probes` makes it"
        ));
    }
    if surroundings.has_probe {
        return Some(
            "the probe of an earlier recording is in it, which joined none and does not try again; restart the program".into(),
        );
    }
    if surroundings.elsewhere {
        return Some(
            "it lives in another mount namespace or root, where the probe's files are not; run scalpel-ebpf in there".into(),
        );
    }
    None
}

/// What to do instead.
fn at_start(language: &str, installed: &Installed) -> String {
    if installed.languages.iter().any(|one| one == language) {
        format!("`record -- CMD` starts it with the probe for {language}")
    } else {
        format!("there is no probe for {language} here")
    }
}

/// The second number of `3.14.8`.
fn minor(version: &str) -> Option<u32> {
    let mut numbers = version.split('.');
    let major = numbers.next()?;
    let minor = numbers.next()?.parse().ok()?;
    (major == "3").then_some(minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Surroundings = Surroundings {
        elsewhere: false,
        names_compiled_code: false,
        has_probe: false,
        has_joined: false,
    };

    fn of(runtime: Runtime, version: &str, surroundings: Surroundings) -> Offer {
        let installed = Installed {
            languages: vec!["python".into(), "node".into()],
            python: vec![13, 14],
        };
        let present = Present {
            runtime,
            version: (!version.is_empty()).then(|| version.into()),
            path: "/x".into(),
            free_threaded: version.ends_with('t'),
        };
        offer(present, surroundings, &installed)
    }

    fn refused(offer: &Offer, part: &str) {
        let why = offer.why_not.as_deref().unwrap();
        assert!(why.contains(part), "{why}");
    }

    #[test]
    fn only_a_python_that_takes_a_script_and_has_a_probe_is_entered() {
        let entered = of(Runtime::Python, "3.14.8", HERE);
        assert_eq!((entered.offered, entered.why_not), (Offered::Calls, None));
        for (version, part) in [
            ("3.13.0", "3.14 can"),
            ("3.9", "`record -- CMD` starts it"),
            ("", "unknown version"),
            ("3.15.2", "no probe for Python 3.15.2"),
            ("3.14.8t", "without its global lock"),
        ] {
            let offer = of(Runtime::Python, version, HERE);
            assert_eq!(offer.offered, Offered::Interpreter);
            refused(&offer, part);
        }
        let elsewhere = Surroundings {
            elsewhere: true,
            ..HERE
        };
        refused(&of(Runtime::Python, "3.14.8", elsewhere), "mount namespace");
        let again = Surroundings {
            has_probe: true,
            ..HERE
        };
        refused(&of(Runtime::Python, "3.14.8", again), "earlier recording");
        let joined = Surroundings {
            has_joined: true,
            ..again
        };
        for (runtime, version) in [(Runtime::Python, "3.9.1"), (Runtime::Node, "")] {
            let offer = of(runtime, version, joined);
            assert_eq!((offer.offered, offer.why_not), (Offered::Calls, None));
        }
    }

    #[test]
    fn other_runtimes_say_what_is_seen_and_what_to_do() {
        refused(&of(Runtime::Node, "", HERE), "never sent");
        refused(&of(Runtime::Node, "", HERE), "`record -- CMD`");
        refused(&of(Runtime::Java, "17", HERE), "no probe for java here");
        let names = Surroundings {
            names_compiled_code: true,
            ..HERE
        };
        assert_eq!(of(Runtime::Java, "17", names).offered, Offered::Names);
        let go = of(Runtime::Go, "1.26.8", HERE);
        assert_eq!((go.offered, go.why_not), (Offered::Native, None));
    }
}
