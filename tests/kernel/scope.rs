//! Scopes of a running process: the exact instructions of calls whose truth is known, or the right reason.
#![expect(
    clippy::indexing_slicing,
    reason = "JSON answers null for what is not there"
)]

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, ensure};
use object::{Object, ObjectSymbol};
use scalpel_tests::catalog::{SCOPED, SCOPED_FIXED, SCOPED_GO, SCOPED_STATIC, SCOPED_STRIPPED};
use scalpel_tests::child;
use scalpel_tests::scalpel;
use scalpel_tests::scope::{Scope, Target, complete, ended};
use scalpel_tests::suite::{Outcome, Skip, Suite};
use scalpel_tests::tests;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "scope":
        every_instruction_of_known_routines_is_there,
        calls_are_counted_and_told_apart,
        callees_are_followed_as_asked,
        recursion_and_reentry_are_whole,
        threads_are_named_and_go_on,
        another_stepper_sees_the_same_instructions,
        the_vdso_is_stepped,
        a_function_of_a_library_is_found,
        a_static_program_is_no_different,
        a_stripped_program_is_scoped_by_address,
        a_go_program_is_no_different,
        a_command_gives_its_own_code,
        a_command_that_becomes_another_program_is_told,
        what_is_not_there_is_refused_by_name,
        a_tier_that_is_not_there_is_skipped_with_its_reason,
        files_hold_the_full_assembly_and_a_chrome_trace,
    );
}

/// Shape, function if it has another name, and what must have run.
type Known = (&'static str, &'static [(&'static str, u64)]);

const KNOWN: &[Known] = &[
    (
        "straight",
        &[("lea eax, [rdi + 1]", 1), ("nop", 1), ("ret", 1)],
    ),
    (
        "looped",
        &[
            ("mov ecx, 5", 1),
            ("dec ecx", 1),
            ("jne", 1),
            ("dec ecx", 1),
            ("jne", 1),
            ("dec ecx", 1),
            ("jne", 1),
            ("dec ecx", 1),
            ("jne", 1),
            ("dec ecx", 1),
            ("jne", 1),
            ("ret", 1),
        ],
    ),
    (
        "looped_one",
        &[
            ("mov ecx, 4", 1),
            ("loop", 1),
            ("loop", 1),
            ("loop", 1),
            ("loop", 1),
            ("ret", 1),
        ],
    ),
    (
        "repeated",
        &[
            ("lea rdi, [rsp -", 1),
            ("mov ecx,", 1),
            ("xor eax, eax", 1),
            ("rep stosb byte ptr [rdi], al", 64),
            ("mov ecx, 0", 1),
            ("rep stosb byte ptr [rdi], al", 1),
            ("ret", 1),
        ],
    ),
    (
        "indirect",
        &[
            ("lea rax, [rip + 4]", 1),
            ("jmp rax", 1),
            ("lea rax, [rip + 4]", 1),
            ("push rax", 1),
            ("ret", 1),
            ("lea rax, [rip + 3]", 1),
            ("call rax", 1),
            ("ret", 1),
            ("ret", 1),
        ],
    ),
    (
        "shadowed",
        &[
            ("mov eax, ss", 1),
            ("mov ss, eax", 1),
            ("nop", 1),
            ("nop", 1),
            ("ret", 1),
        ],
    ),
    (
        "flags",
        &[
            ("pushfq", 1),
            ("pop rax", 1),
            ("push rax", 1),
            ("popfq", 1),
            ("and eax,", 1),
            ("ret", 1),
        ],
    ),
    (
        "called",
        &[
            ("mov eax,", 1),
            ("syscall", 1),
            ("mov rax, r11", 1),
            ("and eax,", 1),
            ("ret", 1),
        ],
    ),
    (
        "called_old",
        &[
            ("push rbx", 1),
            ("mov eax,", 1),
            ("int", 1),
            ("xor eax, eax", 1),
            ("pop rbx", 1),
            ("ret", 1),
        ],
    ),
    ("broken", &[("xor eax, eax", 1), ("int3", 1), ("ret", 1)]),
];

fn every_instruction_of_known_routines_is_there() -> Outcome {
    for (shape, expect) in KNOWN {
        let target = Target::start(&SCOPED, shape)?;
        let scope = complete(target.pid(), shape, &[])?;
        let expect: Vec<_> = expect
            .iter()
            .map(|(text, count)| ((*text).to_owned(), *count))
            .collect();
        ensure!(scope.texts() == expect, "{shape}: {:?}", scope.texts());
        let ran: u64 = expect.iter().map(|(_, count)| count).sum();
        ensure!(scope.instructions == ran && scope.tier == "ptrace");
        target.unharmed().context(*shape)?;
    }
    Ok(())
}

fn calls_are_counted_and_told_apart() -> Outcome {
    let target = Target::start(&SCOPED, "straight")?;
    let scope = complete(target.pid(), "straight", &["--calls", "7"])?;
    ensure!(scope.calls.len() == 7 && scope.instructions == 21);
    let mut last = 0;
    for call in &scope.calls {
        ensure!(call.rows == 3 && call.tid == target.pid(), "{call:?}");
        ensure!(
            call.start_ns > last && call.end_ns > call.start_ns,
            "{call:?}"
        );
        ensure!(
            scope
                .rows(call)
                .iter()
                .all(|row| row.symbol.as_deref() == Some("straight"))
        );
        last = call.end_ns;
    }
    target.unharmed()
}

fn callees_are_followed_as_asked() -> Outcome {
    let target = Target::start(&SCOPED, "calling")?;
    let symbols = |follow: &str| -> anyhow::Result<(u64, BTreeSet<String>)> {
        let scope = complete(target.pid(), "calling", &["--follow-calls", follow])?;
        let names = scope.trace.iter().filter_map(|row| row.symbol.clone());
        Ok((scope.instructions, names.collect()))
    };
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let (own, names) = symbols("none")?;
    ensure!(names == set(&["calling"]), "{names:?}");
    let (known, names) = symbols("known")?;
    ensure!(names == set(&["calling", "leaf"]), "{names:?}");
    let (all, names) = symbols("all")?;
    ensure!(names == set(&["calling", "leaf"]), "{names:?}");
    // Three calls of a leaf of two instructions or a few more.
    ensure!(
        known == all && known > own && (known - own).is_multiple_of(3),
        "{own} {known} {all}"
    );
    target.unharmed()
}

fn recursion_and_reentry_are_whole() -> Outcome {
    let count = |scope: &Scope, text: &str| {
        scope
            .trace
            .iter()
            .filter(|row| row.text.starts_with(text))
            .count()
    };
    let target = Target::start(&SCOPED, "recursive")?;
    let scope = complete(target.pid(), "recursive", &[])?;
    ensure!(count(&scope, "ret") == 5, "{:?}", scope.texts());
    target.unharmed()?;
    let target = Target::start(&SCOPED, "again")?;
    // The function between the two runs at full speed, and calls the scoped one again: four activations.
    let scope = complete(target.pid(), "again", &[])?;
    ensure!(count(&scope, "ret") == 4, "{:?}", scope.texts());
    ensure!(
        scope
            .trace
            .iter()
            .all(|row| row.symbol.as_deref() == Some("again"))
    );
    target.unharmed()?;
    let target = Target::start(&SCOPED, "tail")?;
    let scope = complete(target.pid(), "tail", &[])?;
    let (last, _) = scope.texts().pop().context("nothing ran")?;
    ensure!(last.starts_with("jmp"), "{:?}", scope.texts());
    target.unharmed()
}

fn threads_are_named_and_go_on() -> Outcome {
    let target = Target::start(&SCOPED, "threads")?;
    let scope = complete(target.pid(), "calling", &["--calls", "40"])?;
    let tids: BTreeSet<u32> = scope.calls.iter().map(|call| call.tid).collect();
    ensure!(tids.len() > 1, "one thread only: {tids:?}");
    let lengths: BTreeSet<u64> = scope.calls.iter().map(|call| call.instructions).collect();
    ensure!(
        lengths.len() == 1,
        "the same call is not the same: {lengths:?}"
    );
    target.unharmed()
}

/// Steps one call, and prints where it is before each instruction.
const GDB: &str = r#"
set confirm off
set breakpoint pending off
break *calling
run calling
delete
set $slot = $rsp
while $rsp <= $slot
printf "pc %lx\n", (long)$pc - (long)calling
stepi
end
kill
"#;

fn another_stepper_sees_the_same_instructions() -> Outcome {
    let fixture = SCOPED.copy()?;
    let script = fixture.directory().join("steps.gdb");
    std::fs::write(&script, GDB)?;
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-x"])
        .arg(&script)
        .arg(fixture.path());
    let seen = match child::run(gdb) {
        Ok(ended) => ended,
        Err(_) => return Err(Skip::because("gdb is not installed")),
    };
    let truth: Vec<i64> = seen
        .stdout
        .lines()
        .filter_map(|line| u64::from_str_radix(line.strip_prefix("pc ")?, 16).ok())
        .map(u64::cast_signed)
        .collect();
    if truth.is_empty() {
        return Err(Skip::because(format!(
            "gdb cannot step here: {}",
            seen.stderr
        )));
    }
    let target = Target::start(&SCOPED, "calling")?;
    let scope = complete(target.pid(), "calling", &["--follow-calls", "all"])?;
    let addr = |text: &str| i64::from_str_radix(text.trim_start_matches("0x"), 16);
    let first = addr(&scope.trace.first().context("nothing ran")?.addr)?;
    let ours = scope
        .trace
        .iter()
        .map(|row| addr(&row.addr).map(|at| at - first));
    let ours = ours.collect::<Result<Vec<_>, _>>()?;
    // gdb's breakpoint may sit behind the prologue: what it saw is the end of what ran.
    let offset = truth.first().copied().unwrap_or(0);
    let from = ours
        .iter()
        .position(|at| *at == offset)
        .context("gdb began elsewhere")?;
    ensure!(
        ours.get(from..) == Some(&truth[..]),
        "gdb: {truth:x?}\nscope: {ours:x?}"
    );
    target.unharmed()
}

fn the_vdso_is_stepped() -> Outcome {
    let target = Target::start(&SCOPED, "tells_time")?;
    let args = ["--follow-calls", "all", "--budget", "2s"];
    let scope = complete(target.pid(), "tells_time", &args)?;
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", target.pid()))?;
    let vdso = maps.lines().find(|line| line.ends_with("[vdso]"));
    let (start, _) = vdso
        .and_then(|line| line.split_once('-'))
        .context("no vDSO")?;
    let head = start.get(..start.len() - 4).unwrap_or_default();
    let inside =
        |row: &&scalpel_tests::scope::Row| row.addr.trim_start_matches("0x").starts_with(head);
    ensure!(
        scope.trace.iter().filter(inside).count() > 3,
        "none of it is in the vDSO"
    );
    target.unharmed()
}

fn a_function_of_a_library_is_found() -> Outcome {
    let target = Target::start(&SCOPED, "straight")?;
    // It waits by it between its calls.
    let scope = complete(target.pid(), "poll", &["--lib", "libc.so*", "--calls", "3"])?;
    ensure!(scope.instructions > 9);
    target.unharmed()
}

fn a_static_program_is_no_different() -> Outcome {
    let target = Target::start(&SCOPED_STATIC, "calling")?;
    let args = ["--follow-calls", "all", "--calls", "3"];
    complete(target.pid(), "calling", &args)?;
    target.unharmed()
}

fn a_stripped_program_is_scoped_by_address() -> Outcome {
    let bytes = std::fs::read(SCOPED_FIXED.build()?)?;
    let file = object::File::parse(bytes.as_slice())?;
    let straight = file
        .symbols()
        .find(|symbol| symbol.name() == Ok("straight"))
        .context("no `straight`")?;
    let target = Target::start(&SCOPED_STRIPPED, "calling")?;
    let calling = file
        .symbols()
        .find(|symbol| symbol.name() == Ok("calling"))
        .context("no `calling`")?;
    let scope = complete(target.pid(), &format!("{:#x}", calling.address()), &[])?;
    ensure!(scope.instructions > 10 && straight.address() > 0);
    target.unharmed()
}

fn a_go_program_is_no_different() -> Outcome {
    let target = Target::start(&SCOPED_GO, "")?;
    let ended = ended(target.pid(), "main.calling", &["--calls", "20"])?;
    let scope = Scope::parse(&ended.stdout)?;
    ensure!(
        scope.calls.len() == 20,
        "{} calls: {}",
        scope.calls.len(),
        ended.stderr
    );
    let whole = scope
        .calls
        .iter()
        .filter(|call| call.status == "complete")
        .count();
    // A goroutine that is moved to another thread in a callee is not followed there, and says so.
    ensure!(whole >= 10, "{whole} of 20 are whole: {:?}", scope.reasons);
    let lengths: BTreeSet<u64> = scope
        .calls
        .iter()
        .filter(|call| call.status == "complete" && scope.begins_once(call))
        .map(|call| call.instructions)
        .collect();
    ensure!(lengths.len() == 1, "{lengths:?}");
    ensure!(target.end()?.contains("done"));
    Ok(())
}

fn a_command_gives_its_own_code() -> Outcome {
    let fixture = SCOPED.copy()?;
    let run = |shape: &str| -> anyhow::Result<child::Ended> {
        let mut command = Command::new(scalpel::program()?);
        command.args(["scope", "-f", "straight", "--json", "--"]);
        command.arg(fixture.path()).arg(shape);
        let mut running = child::Running::start(command)?;
        if shape != "nothing" {
            // The first call of all, from the program's beginning.
            running.stdout_line(|line| line.contains("\"status\""))?;
        }
        running.wait()
    };
    let ended = run("straight")?.expect_code(0)?;
    ensure!(ended.stdout.contains("done"), "{ended:?}");
    let ended = run("nothing")?.expect_code(2)?;
    ensure!(
        Scope::parse(&ended.stdout)?.reasons == ["not called"],
        "{ended:?}"
    );
    Ok(())
}

fn a_command_that_becomes_another_program_is_told() -> Outcome {
    let fixture = SCOPED.copy()?;
    let mut command = Command::new(scalpel::program()?);
    command.args(["scope", "-f", "executes", "--"]);
    command.arg(fixture.path()).arg("executes");
    let ended = child::Running::start(command)?;
    let mut running = ended;
    running.stdout_line(|line| line.contains("truncated"))?;
    let ended = running.wait()?.expect_code(0)?;
    ensure!(
        ended.stdout.contains("done"),
        "the program that it became did not run: {ended:?}"
    );
    Ok(())
}

fn what_is_not_there_is_refused_by_name() -> Outcome {
    let target = Target::start(&SCOPED, "straight")?;
    let none = ended(target.pid(), "strait", &[])?.expect_code(4)?;
    ensure!(none.stderr.contains("strait"), "{}", none.stderr);
    let many = ended(target.pid(), "*", &[])?.expect_code(2)?;
    ensure!(many.stderr.contains("functions"), "{}", many.stderr);
    let gone = ended(u32::MAX / 4, "straight", &[])?.expect_code(4)?;
    ensure!(
        gone.stderr.contains("there is no process"),
        "{}",
        gone.stderr
    );
    target.unharmed()
}

fn a_tier_that_is_not_there_is_skipped_with_its_reason() -> Outcome {
    let target = Target::start(&SCOPED, "straight")?;
    for tier in ["pt", "lbr"] {
        let skipped = ended(target.pid(), "straight", &["--tier", tier])?.expect_code(3)?;
        let scope = Scope::parse(&skipped.stdout)?;
        ensure!(scope.tier == "none" && scope.trace.is_empty() && scope.status != "complete");
        let why = scope.skip_reason.context("no reason")?;
        ensure!(skipped.stderr.contains(&why), "{}", skipped.stderr);
    }
    complete(target.pid(), "straight", &["--tier", "step"])?;
    target.unharmed()
}

fn files_hold_the_full_assembly_and_a_chrome_trace() -> Outcome {
    let target = Target::start(&SCOPED, "calling")?;
    let folder = target.copy().directory().to_owned();
    let (assembly, chrome) = (folder.join("calls.s"), folder.join("calls.json"));
    let (assembly_text, chrome_text) = (assembly.to_string_lossy(), chrome.to_string_lossy());
    let args = [
        "--follow-calls",
        "all",
        "-o",
        &*assembly_text,
        "--chrome",
        &*chrome_text,
    ];
    complete(target.pid(), "calling", &args)?;
    let text = std::fs::read_to_string(&assembly)?;
    ensure!(
        text.contains("calling:") && text.contains("leaf:") && text.contains("ret"),
        "{text}"
    );
    let trace: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&chrome)?)?;
    let events = trace["traceEvents"].as_array().context("no events")?;
    let phase = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    ensure!(phase("B") == 4 && phase("E") == 4, "{events:?}");
    target.unharmed()
}
