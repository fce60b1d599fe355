//! Who may reach outside: which rooms may use which libraries, clocks, files, threads, the environment and `unsafe`.
use super::tokens::{Token, heads, starts_with};
use super::{Finding, Repo};

/// A crate that few folders may name.
struct Fence {
    /// The crate, as in paths.
    name: &'static str,
    /// Folders or files whose sources may name it.
    may: &'static [&'static str],
}

const FENCES: &[Fence] = &[
    Fence {
        name: "aya",
        may: &["scalpel-user/src/kernel/"],
    },
    Fence {
        name: "aya_obj",
        may: &["scalpel-user/src/kernel/", "xtask/"],
    },
    Fence {
        name: "aya_log",
        may: &["scalpel-user/src/kernel/"],
    },
    Fence {
        name: "libc",
        may: &[
            "scalpel-user/src/kernel/",
            // Signals by their numbers.
            "scalpel-user/src/record/stop.rs",
            "probes/core/examples/",
            "probes/node/src/napi/",
            "probes/scope/src/step/",
            "probes/scope/src/callout/",
            "probes/scope/src/displaced/",
            "probes/scope/src/outside/",
            "probes/scope/src/pt/",
            "probes/scope/src/perf/",
            "probes/scope/tests/",
            "probes/scope/examples/",
            "probes/node/scope/src/memory.rs",
        ],
    },
    Fence {
        name: "perf_event",
        may: &["scalpel-user/src/kernel/"],
    },
    Fence {
        name: "ratatui",
        may: &[
            "scalpel-user/src/commands/top.rs",
            "scalpel-user/src/sink/top.rs",
        ],
    },
    Fence {
        name: "blazesym",
        may: &["scalpel-user/src/symbol", "scalpel-user/examples/"],
    },
    Fence {
        name: "clap",
        may: &[
            "scalpel-user/src/cli/",
            "scalpel-user/src/commands/",
            "scalpel-user/src/main.rs",
            "xtask/",
        ],
    },
];

/// Where `unsafe` may stand.
const UNSAFE: &[&str] = &[
    "probes/core/",
    "probes/node/src/napi/",
    // All of it talks to the interpreter's C API.
    "probes/python/",
    "scalpel-user/src/kernel/",
    "scalpel-user/src/probe/memory.rs",
    "scalpel-ebpf/",
    "tests/fixtures/",
    "probes/scope/src/step/",
    // Parts of the stepper: debug registers, and the copy that is run in place of the code.
    "probes/scope/src/callout/",
    "probes/scope/src/displaced/",
    "probes/scope/src/outside/",
    "probes/scope/src/pt/",
    "probes/scope/src/perf/",
    // A call by address, which the surface offers as unsafe.
    "probes/scope/src/scope.rs",
    "probes/scope/src/elsewhere.rs",
    "probes/scope/src/handles.rs",
    // The borders to C, Node.js and Python.
    "probes/c/",
    "probes/node/scope/src/",
    "probes/python/scope/src/",
    "probes/scope/tests/",
    "probes/scope/examples/",
];

/// No clock, file, thread or environment in here.
const PURE: &[&str] = &[
    "decode", "order", "matching", "stack", "sink", "doubt", "caps", "report", "catalog", "event",
    "function", "input", "tree",
];

/// What of `std` a pure room must not name.
const IMPURE: &[&str] = &["env", "fs", "net", "process", "thread"];
/// Clocks, by type: a `Duration` is only a number.
const CLOCKS: &[&str] = &["Instant", "SystemTime"];
/// Libraries that are nothing but reach.
const IMPURE_CRATES: &[&str] = &["libc", "memmap2", "procfs", "rusqlite", "rustix", "tokio"];

/// Names each reach that is not allowed.
pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repo.files.iter().filter(|file| file.is_rust()) {
        let tokens = file.tokens();
        let mut add = |token: &Token, message: String| {
            findings.push(Finding {
                path: file.path.clone(),
                line: token.line,
                message,
            });
        };
        for (place, token) in tokens.iter().enumerate() {
            let rest = tokens.get(place..).unwrap_or_default();
            if let Some(name) = fenced(
                &file.path,
                rest,
                place.checked_sub(1).and_then(|before| tokens.get(before)),
            ) {
                add(token, format!("only {} may name `{name}`", fence_of(name)));
            }
            if token.text == "unsafe" && !under(&file.path, UNSAFE) {
                add(token, "`unsafe` may not stand here".into());
            }
            if is_pure(&file.path) {
                for word in impure(rest) {
                    add(token, format!("a pure room must not reach for `{word}`"));
                }
            }
        }
    }
    findings
}

fn under(path: &str, folders: &[&str]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// The fenced crate that a path at the head of `list` names, if `path` is outside its fence.
fn fenced(path: &str, list: &[Token], before: Option<&Token>) -> Option<&'static str> {
    let at_head = before.is_none_or(|token| token.text != "::");
    FENCES
        .iter()
        .find(|fence| at_head && starts_with(list, &[fence.name, "::"]) && !under(path, fence.may))
        .map(|fence| fence.name)
}

fn fence_of(name: &str) -> String {
    let fence = FENCES.iter().find(|fence| fence.name == name);
    fence.map_or_else(String::new, |fence| fence.may.join(", "))
}

fn is_pure(path: &str) -> bool {
    path.strip_prefix("scalpel-user/src/").is_some_and(|rest| {
        let room = rest.split(['/', '.']).next().unwrap_or_default();
        PURE.contains(&room)
    })
}

/// What the path at the head of `list` reaches for.
fn impure(list: &[Token]) -> Vec<String> {
    let Some(first) = list.first() else {
        return Vec::new();
    };
    if starts_with(list, &["std", "::"]) {
        let named = heads(list.get(2..).unwrap_or_default()).into_iter();
        return named
            .map(|head| head.text.clone())
            .filter(|head| IMPURE.contains(&head.as_str()))
            .collect();
    }
    let is_crate =
        starts_with(list, &[&first.text, "::"]) && IMPURE_CRATES.contains(&first.text.as_str());
    if is_crate || CLOCKS.contains(&first.text.as_str()) {
        return vec![first.text.clone()];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::super::expect;
    use super::*;

    fn finds(path: &str, source: &str, lines: &[usize]) {
        let found: Vec<_> = lines.iter().map(|&line| (path, line)).collect();
        expect(check, &[(path, source)], &found);
    }

    #[test]
    fn only_the_kernel_room_uses_aya() {
        finds(
            "scalpel-user/src/kernel/load.rs",
            "use aya::EbpfLoader;",
            &[],
        );
        finds("scalpel-user/src/session.rs", "use aya::EbpfLoader;", &[1]);
        finds(
            "scalpel-user/src/session.rs",
            "\nfn f(e: aya::Ebpf) {}",
            &[2],
        );
    }

    #[test]
    fn only_the_symbol_room_uses_blazesym() {
        finds(
            "scalpel-user/src/symbol/mod.rs",
            "use blazesym::symbolize;",
            &[],
        );
        finds(
            "scalpel-user/src/target/mod.rs",
            "use blazesym::symbolize;",
            &[1],
        );
    }

    #[test]
    fn unsafe_stands_in_the_kernel_room_only() {
        finds(
            "scalpel-user/src/kernel/sys.rs",
            "fn f() { unsafe { g() } }",
            &[],
        );
        finds(
            "scalpel-user/src/image/elf.rs",
            "fn f() { unsafe { g() } }",
            &[1],
        );
        finds(
            "scalpel-user/src/image/elf.rs",
            "// unsafe\nfn f() { g(\"unsafe\") }",
            &[],
        );
    }

    #[test]
    fn pure_rooms_have_no_clock_file_thread_or_environment() {
        for source in [
            "use std::fs;",
            "use std::{fmt, thread::{self}};",
            "fn f() { std::env::var(x) }",
            "use std::time::{Duration, Instant};",
            "use rustix::fs::open;",
        ] {
            finds("scalpel-user/src/order.rs", source, &[1]);
        }
        finds(
            "scalpel-user/src/order.rs",
            "use std::time::Duration; use std::collections::VecDeque;",
            &[],
        );
        finds("scalpel-user/src/target/mod.rs", "use std::fs;", &[]);
    }
}
