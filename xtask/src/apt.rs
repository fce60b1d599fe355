//! System packages by name: which are missing, and their installation after a question.
use std::io::{BufRead, IsTerminal};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::cmd;

/// Installs those of `packages` that are missing, asking first unless `yes`. `what` says what they are for.
pub(crate) fn ensure(packages: &[&str], what: &str, yes: bool) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|name| !installed(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !exists("apt-get") {
        bail!(
            "{what} needs {list} (Debian's names), and there is no apt-get here: install them, then run this again"
        );
    }
    cmd::say(format_args!("{what} needs the Debian packages: {list}"));
    if !yes && !asked()? {
        bail!("not installed; install them with `apt-get install {list}` or pass --yes");
    }
    install(&missing)
}

/// Whether `program` is in the path.
pub(crate) fn exists(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

fn installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| output.stdout == b"installed")
}

fn asked() -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    cmd::say(format_args!("Install them now with apt-get? [y/N]"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Lists may be old or absent; an update that fails half way still leaves usable ones.
pub(crate) fn update() {
    if let Err(error) = cmd::run(as_root("apt-get").args(["update", "-qq"])) {
        cmd::say(format_args!("warning: {error:#}"));
    }
}

fn install(packages: &[&str]) -> Result<()> {
    update();
    cmd::run(
        as_root("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null()),
    )
}

/// `program`, through sudo where needed.
pub(crate) fn as_root(program: &str) -> Command {
    if cmd::is_root() {
        return cmd::command(program);
    }
    let mut command = cmd::command("sudo");
    command.arg(program);
    command
}
