//! The real binary: what it says where, and the exit codes that scripts rely on. Needs no privileges.
#![expect(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const NOBODY: u32 = 65534;

fn scalpel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalpel-ebpf"));
    command
        .env_remove("NO_COLOR")
        .env_remove("SUDO_UID")
        .env_remove("SUDO_GID");
    command
}

fn run(args: &[&str]) -> Output {
    scalpel().args(args).output().unwrap()
}

#[track_caller]
fn fails(args: &[&str], code: i32, says: &[&str]) {
    let output = run(args);
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
    assert_eq!(out, "", "{args:?}: nothing but data goes to stdout");
    for text in says {
        assert!(err.contains(text), "{args:?}: no `{text}` in: {err}");
    }
    assert!(!err.contains('\x1b'), "{args:?}: colour in a pipe: {err}");
}

#[test]
fn wrong_usage_is_2_and_says_what_is_right() {
    fails(&["record"], 2, &["Usage: scalpel-ebpf record", "--pid"]);
    fails(
        &["record", "-p", "1", "--max-overhed", "1"],
        2,
        &["'--max-overhead'"],
    );
    fails(&["recrod"], 2, &["'record'"]);
    fails(&["record", "-p", "1", "-f", "/(/"], 2, &["--func `/(/`"]);
    fails(&["record", "-p", "1", "-d", "1d"], 2, &["unknown unit `d`"]);
    fails(&["list", "functions"], 2, &["give a FILE"]);
    fails(&["record", "-p", "0"], 2, &["0 is not in 1.."]);
}

#[test]
fn help_and_version_are_data_and_0() {
    for args in [
        &["--help"][..],
        &["record", "--help"],
        &["--version"],
        &["completions", "bash"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(
            !output.stdout.is_empty() && output.stderr.is_empty(),
            "{args:?}"
        );
    }
    assert!(String::from_utf8_lossy(&run(&["record", "--help"]).stdout).contains("Examples:"));
}

#[test]
fn a_process_that_is_none_is_4() {
    fails(
        &["doctor", "-p", "4194304"],
        4,
        &["no process 4194304", "list processes"],
    );
    let mut zombie = Command::new("true").spawn().unwrap();
    let pid = zombie.id().to_string();
    let stat = format!("/proc/{pid}/stat");
    while !fs::read_to_string(&stat).unwrap().contains(" Z ") {
        std::thread::yield_now();
    }
    fails(
        &["doctor", "-p", &pid],
        4,
        &["zombie", &std::process::id().to_string()],
    );
    zombie.wait().unwrap();
}

#[test]
fn a_file_that_is_no_recording_is_2_and_says_what_it_is() {
    fails(
        &["report", "/etc/passwd"],
        2,
        &["/etc/passwd is not a genome"],
    );
    fails(
        &["report", "/nonexistent/x.genome"],
        2,
        &["there is no /nonexistent/x.genome"],
    );
    fails(&["replay", "/etc/passwd"], 2, &["is no chunk log"]);
    fails(
        &["list", "functions", "/etc/passwd"],
        2,
        &["not an ELF file"],
    );
}

#[test]
fn functions_and_sites_of_a_file_are_listed() {
    let binary = env!("CARGO_BIN_EXE_scalpel-ebpf");
    let listed = |what: &str| -> serde_json::Value {
        let output = run(&["list", what, binary, "main", "--json"]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(listed("functions")[0]["raw_name"], "main");
    assert!(listed("sites")[0]["exit_reason"].is_string());
    fails(
        &["list", "functions", binary, "mainn"],
        2,
        &["no function of", "did you mean"],
    );
}

#[test]
fn who_may_not_is_3_and_the_missing_capability_is_named() {
    if !rustix::process::geteuid().is_root() {
        fails(
            &["record", "-p", &std::process::id().to_string()],
            3,
            &["CAP_BPF", "CAP_PERFMON", "sudo"],
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = public_copy(&folder);
    let nobody = |args: &[&str]| {
        let mut command = Command::new(&copy);
        command
            .args(args)
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/")
            .output()
            .unwrap()
    };
    let output = nobody(&["record", "-p", &std::process::id().to_string()]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(
        err.contains("missing CAP_BPF and CAP_PERFMON") && err.contains("setcap"),
        "{err}"
    );

    // Without privileges the doctor still answers: recording is blocked, and why.
    let output = nobody(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("FAIL") && text.contains("recording is blocked"),
        "{text}"
    );

    // Another user's process cannot be looked into.
    let output = nobody(&["doctor", "-p", &std::process::id().to_string()]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(
        err.contains("CAP_SYS_PTRACE") && err.contains("uid 0"),
        "{err}"
    );
}

/// The binary where everybody may execute it: folders of a build may be closed.
fn public_copy(folder: &tempfile::TempDir) -> PathBuf {
    let copy = folder.path().join("scalpel-ebpf");
    // A file that we had open for writing may be busy in a child that another test forked meanwhile.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_scalpel-ebpf"))
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    for path in [folder.path(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

#[test]
fn the_doctor_answers_programs() {
    let output = run(&["doctor", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], "scalpel.doctor/1");
    let blocked = json["blocked"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(blocked)));
    assert!(
        json["host"]
            .as_array()
            .is_some_and(|checks| checks.len() > 10),
        "{json}"
    );
    assert!(json["abilities"]["attach"]["choice"].is_string(), "{json}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = scalpel()
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn colour_comes_only_when_asked_for_in_a_pipe() {
    let colored = |args: &[&str], no_color: bool| {
        let mut command = scalpel();
        if no_color {
            command.env("NO_COLOR", "1");
        }
        command.args(args).output().unwrap().stdout.contains(&0x1b)
    };
    assert!(!colored(&["doctor"], false));
    assert!(colored(&["doctor", "--color", "always"], false));
    assert!(colored(&["doctor", "--color", "always"], true));
    assert!(!colored(&["doctor", "--color", "never"], false));
}

/// What a command shows on a terminal of so many columns. `script` is the terminal.
fn on_terminal(columns: u16, environment: &str, args: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_scalpel-ebpf");
    let line = format!(
        "stty cols {columns} && {environment} {program} {}",
        args.join(" ")
    );
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert_eq!(output.status.code(), Some(0), "{text}");
    text
}

/// Without what colours it.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

fn stream() -> String {
    format!("{}/tests/golden/small.stream", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_report_fits_the_terminal_however_narrow_it_is() {
    let stream = stream();
    for columns in [30, 40, 60, 80, 132] {
        for args in [
            &["report", &stream][..],
            &["report", &stream, "--tree", "callees"],
            &["report", &stream, "--tree", "callers"],
            &["report", &stream, "--by", "thread"],
            &["report", &stream, "--by", "module"],
        ] {
            let text = plain(&on_terminal(columns, "", args));
            assert!(text.lines().count() > 4, "{text}");
            for line in text.lines() {
                let width = line.chars().count();
                assert!(
                    width <= columns.into(),
                    "{columns} {args:?}: {width} {line:?}"
                );
            }
            // Names stay, whatever else gives way.
            assert!(
                text.contains("FUNCTION") || args.contains(&"--by"),
                "{text}"
            );
        }
    }
}

#[test]
fn numbers_stand_below_each_other_at_their_ends() {
    let stream = stream();
    for columns in [40, 80, 132] {
        let text = plain(&on_terminal(columns, "", &["report", &stream]));
        let mut lines = text.lines().skip_while(|line| !line.contains("FUNCTION"));
        let heading: Vec<char> = lines.next().unwrap().chars().collect();
        let begins = heading.len() - "FUNCTION".len();
        let rows: Vec<Vec<char>> = lines
            .map(|line| line.chars().collect())
            .take_while(|line: &Vec<char>| line.len() > begins && line[begins] != ' ')
            .collect();
        assert!(rows.len() > 3, "{text}");
        for row in &rows {
            assert_eq!(row[begins - 2..begins], [' ', ' '], "{text}");
            assert_ne!(row[begins], ' ', "{text}");
        }
    }
}

#[test]
fn a_terminal_has_colours_unless_no_color_is_set() {
    let stream = stream();
    for args in [
        &["report", &stream][..],
        &["report", &stream, "--tree", "callees"],
    ] {
        let colored = on_terminal(80, "", args);
        assert!(colored.contains('\x1b'), "{colored}");
        let without = on_terminal(80, "NO_COLOR=1", args);
        assert!(!without.contains('\x1b'), "{without}");
        assert_eq!(
            plain(&colored),
            without,
            "colour says nothing that words do not"
        );
    }
}

#[test]
fn processes_are_listed_as_json_and_text() {
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    let json: serde_json::Value =
        serde_json::from_slice(&run(&["list", "processes", "sleep", "--json"]).stdout).unwrap();
    let text = String::from_utf8(run(&["list", "processes", "sleep"]).stdout).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let pid = u64::from(child.id());
    assert!(
        json.as_array()
            .unwrap()
            .iter()
            .any(|row| row["pid"] == pid && row["name"] == "sleep"),
        "{json}"
    );
    assert!(
        text.lines()
            .any(|line| line.trim_start().starts_with(&format!("{pid} "))),
        "{text}"
    );
}

#[test]
fn the_manual_is_written_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["man", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    for page in [
        "scalpel-ebpf.1",
        "scalpel-ebpf-record.1",
        "scalpel-ebpf-report.1",
    ] {
        assert!(
            fs::read_to_string(folder.path().join(page))
                .unwrap()
                .contains(".TH"),
            "{page}"
        );
    }
    fails(&["man", "/nonexistent/folder"], 2, &["/nonexistent/folder"]);
}
