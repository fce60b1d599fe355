//! Probes in the targets' language runtimes: where they say HELLO, and what the environment of a command tells them.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result};
use scalpel_common::segment::modes;
use scalpel_common::wire::SOCKET_VARIABLE;
use uuid::Uuid;

use super::installed::folder;
use super::subject::Subject;
use crate::function::FunctionTable;
use crate::output::Output;
use crate::plan::{ProbeMode, RecordPlan, Target};
use crate::probe::{EndsTold, Options, Place};

/// Where the socket will be, if probes are wanted at all.
pub(super) fn place(plan: &RecordPlan, uuid: &Uuid) -> Result<Option<Place>> {
    if plan.dry_run || plan.runtimes.mode == ProbeMode::Off {
        return Ok(None);
    }
    let place =
        Place::choose(&uuid.to_string()).context("choosing a place for the socket of probes")?;
    Ok(Some(place))
}

/// Variables that lead a command's probes here, and into its runtimes.
pub(super) fn environment(
    plan: &RecordPlan,
    place: Option<&Place>,
    output: &Output,
) -> Vec<(OsString, OsString)> {
    let Some(place) = place else {
        return Vec::new();
    };
    let mut variables = vec![(SOCKET_VARIABLE.into(), place.path().into())];
    match folder("python") {
        Some(python) => variables.push((
            "PYTHONPATH".into(),
            in_front(&python.join("inject"), "PYTHONPATH", ":"),
        )),
        None => output.detail("the probe for Python is not installed here"),
    }
    if forbids_preload(&plan.target) {
        output.warn(
            "Node.js with --experimental-permission starts with no preloaded file: its JavaScript is not recorded",
        );
        return variables;
    }
    match folder("node") {
        Some(node) => variables.push(("NODE_OPTIONS".into(), node_options(&node))),
        None => output.detail("the probe for Node.js is not installed here"),
    }
    variables
}

/// Node.js 20 may read no file then but those it is told of on its own command line, and fails at its start.
fn forbids_preload(target: &Target) -> bool {
    const FLAG: &str = "--experimental-permission";
    let options = std::env::var("NODE_OPTIONS").unwrap_or_default();
    let of_command = target
        .command()
        .is_some_and(|line| line.args.iter().any(|argument| argument == FLAG));
    of_command || options.split_whitespace().any(|option| option == FLAG)
}

/// The options of Node.js with the preload in front; it reads quotes and backslashes in them.
fn node_options(folder: &Path) -> OsString {
    let preload = folder.join("preload.js").to_string_lossy().into_owned();
    let preload = preload.replace('\\', r"\\").replace('"', r#"\""#);
    let preload = format!("--require \"{preload}\"");
    in_front(Path::new(&preload), "NODE_OPTIONS", " ")
}

/// A path before what a variable says already.
fn in_front(path: &Path, variable: &str, separator: &str) -> OsString {
    let mut value = path.as_os_str().to_owned();
    if let Some(before) = std::env::var_os(variable).filter(|before| !before.is_empty()) {
        value.push(separator);
        value.push(before);
    }
    value
}

/// What is to be listened to.
pub(super) fn options(
    plan: &RecordPlan,
    subject: &Subject,
    uuid: Uuid,
    place: Place,
    functions: &FunctionTable,
) -> Options {
    let status = subject
        .processes
        .first()
        .and_then(|process| process.status().ok());
    let status = status.unwrap_or_default();
    Options {
        uuid,
        pids: subject.pids(),
        place,
        owner: (status.uid, status.gid),
        memory: plan.runtimes.memory,
        modes: match plan.runtimes.mode {
            ProbeMode::Call => modes::CALL,
            ProbeMode::Native => modes::CALL | modes::NATIVE,
            ProbeMode::Count | ProbeMode::Off => modes::COUNT,
        },
        settings: plan.runtimes.settings.clone(),
        functions: functions.clone(),
        ends_told_of: match (plan.runtimes.alone, plan.subprocesses) {
            (true, _) => EndsTold::Nobody,
            (false, true) => EndsTold::All,
            (false, false) => EndsTold::Targets,
        },
    }
}
