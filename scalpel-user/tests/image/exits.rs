//! The exit table: which strategy, and why.

use scalpel_user::function::ExitStrategy;
use scalpel_user::image::{
    Disassembler, ExitPolicy, ExitRequest, Image, KernelRelease, NoDebugFiles, Personality,
    ProcessFacts, SitePlan, plan_sites,
};

use crate::build::{Workshop, assemble, function, has, named};

fn policy(requested: ExitRequest, throwing: &[&str]) -> ExitPolicy {
    let throwing_images = throwing.iter().map(|&name| name.to_owned()).collect();
    let process = ProcessFacts {
        throwing_images,
        kernel: KernelRelease(6, 18, 0),
        ..ProcessFacts::default()
    };
    ExitPolicy { requested, process }
}

fn plan_in(bytes: &[u8], name: &str, policy: &ExitPolicy) -> SitePlan {
    let image = Image::parse(bytes, "/x/a.so", &NoDebugFiles).unwrap();
    let named = |f: &scalpel_user::image::ImageFunction| {
        f.name() == name || f.raw_names().any(|n| n == name)
    };
    let index = image
        .functions()
        .iter()
        .position(named)
        .unwrap_or_else(|| panic!("no {name}"));
    plan_sites(&image, &[index], policy).remove(0)
}

#[track_caller]
fn check(bytes: &[u8], name: &str, policy: &ExitPolicy, strategy: ExitStrategy, reason: &str) {
    let plan = plan_in(bytes, name, policy);
    let shown = plan.exit.reason.to_string();
    assert_eq!(
        (plan.exit.strategy, shown.split(" 0x").next().unwrap()),
        (strategy, reason),
        "{name}: {shown}"
    );
}

const ALONE: &[&str] = &[];
const WITH_CPP: &[&str] = &["libstdc++.so.6"];
const SAFE: &str = "no image of the process throws; longjmp and signals are survived";
const PROVEN: &str = "no exception can pass: all code it reaches is known and throws nothing";

#[test]
fn in_a_process_of_c_ordinary_functions_get_return_probes() {
    let bytes = assemble(&function("call *%rdi; ret"));
    check(
        &bytes,
        "f",
        &policy(ExitRequest::Default, ALONE),
        ExitStrategy::Return,
        SAFE,
    );
    check(
        &bytes,
        "f",
        &policy(ExitRequest::None, ALONE),
        ExitStrategy::EntryOnly,
        "entries only were asked for",
    );
}

#[test]
fn beside_cpp_images_a_callback_may_throw() {
    let bytes = assemble(&function("call *%rdi; ret"));
    let default = policy(ExitRequest::Default, WITH_CPP);
    check(
        &bytes,
        "f",
        &default,
        ExitStrategy::EntryOnly,
        "an exception may pass: it calls through a pointer at",
    );
    let force = policy(ExitRequest::ForceReturn, WITH_CPP);
    check(
        &bytes,
        "f",
        &force,
        ExitStrategy::Return,
        "forced, although an exception may pass: it calls through a pointer at",
    );
}

#[test]
fn beside_cpp_images_a_closed_function_is_proven_safe() {
    let source = format!(
        "{}{}{}",
        function("call g; ret"),
        named("g", ".hidden g; ret"),
        named("h", "call i@PLT; ret")
    );
    let bytes = assemble(&source);
    let default = policy(ExitRequest::Default, WITH_CPP);
    check(&bytes, "f", &default, ExitStrategy::Return, PROVEN);
    check(
        &bytes,
        "h",
        &default,
        ExitStrategy::EntryOnly,
        "an exception may pass: it calls the import i",
    );
}

#[test]
fn what_is_reached_through_callees_counts() {
    let source = format!(
        "{}{}",
        function("call g; ret"),
        named("g", ".hidden g; jmp *%rdi")
    );
    let default = policy(ExitRequest::Default, WITH_CPP);
    check(
        &assemble(&source),
        "f",
        &default,
        ExitStrategy::EntryOnly,
        "an exception may pass: through g, it jumps through a pointer at",
    );
}

#[test]
fn imports_that_are_declared_nothrow_are_harmless() {
    let workshop = Workshop::new();
    workshop.source("a.c", "#include <string.h>\n#include <stdlib.h>\nsize_t f(char *s) { return strlen(s) + 1; }\nvoid g(void *p, int (*c)(const void*, const void*)) { qsort(p, 1, 1, c); }\n");
    let bytes = workshop
        .run("gcc -O1 -fno-builtin -shared -fPIC -o a.so a.c")
        .bytes("a.so");
    let default = policy(ExitRequest::Default, WITH_CPP);
    check(&bytes, "f", &default, ExitStrategy::Return, PROVEN);
    check(
        &bytes,
        "g",
        &default,
        ExitStrategy::EntryOnly,
        "an exception may pass: it calls the import qsort",
    );
}

#[test]
fn functions_that_use_their_return_address_or_another_stack_never_get_one() {
    let default = policy(ExitRequest::Default, ALONE);
    let check = |body: &str, reason: &str| {
        check(
            &assemble(&function(body)),
            "f",
            &default,
            ExitStrategy::EntryOnly,
            reason,
        )
    };
    check("mov (%rsp),%rax; ret", "uses its own return address");
    check(
        "pop %rdx; .cfi_def_cfa_offset 0; jmp *%rdx",
        "uses its own return address",
    );
    check(
        "push %rbp; .cfi_def_cfa_offset 16; mov 8(%rsp),%rax; pop %rbp; .cfi_def_cfa_offset 8; ret",
        "uses its own return address",
    );
    check(
        "mov %rsp,(%rdi); mov (%rsi),%rsp; ret",
        "loads the stack pointer from elsewhere",
    );
    check(
        "mov %rdi,%rsp; ret",
        "loads the stack pointer from elsewhere",
    );
    check("1: jmp 1b", "never returns: it has no ret and no jump out");
    check(
        ".cfi_def_cfa_offset 16; add $8,%rsp; .cfi_def_cfa_offset 8; ret",
        "the return address is not at [rsp] at its entry",
    );
}

#[test]
fn frames_by_rbp_and_variable_arrays_are_ordinary() {
    let body = "push %rbp; .cfi_def_cfa_offset 16; mov %rsp,%rbp; .cfi_def_cfa_register rbp; sub %rdi,%rsp; mov -8(%rbp),%rsp; leave; .cfi_def_cfa rsp,8; ret";
    check(
        &assemble(&function(body)),
        "f",
        &policy(ExitRequest::Default, ALONE),
        ExitStrategy::Return,
        SAFE,
    );
}

#[test]
fn images_with_a_runtime_that_walks_the_stack_get_no_return_probes() {
    let source = format!("{}{}", function("ret"), named("caml_start_program", "ret"));
    check(
        &assemble(&source),
        "f",
        &policy(ExitRequest::ForceReturn, ALONE),
        ExitStrategy::EntryOnly,
        "the OCaml runtime looks up return addresses: a strange one ends it",
    );
}

#[test]
fn programs_that_make_stacks_for_coroutines_get_no_return_probes() {
    let bytes = assemble(&format!(
        "{}{}",
        function("ret"),
        "\n.data\n.quad makecontext\n"
    ));
    check(
        &bytes,
        "f",
        &policy(ExitRequest::Default, ALONE),
        ExitStrategy::EntryOnly,
        "the program switches between stacks of its own (makecontext)",
    );
    let mut beside = policy(ExitRequest::Default, ALONE);
    beside.process.switches_stacks = true;
    check(
        &assemble(&function("ret")),
        "f",
        &beside,
        ExitStrategy::EntryOnly,
        "the program switches between stacks of its own (in the main executable)",
    );
}

#[test]
fn known_names_are_entries_only() {
    let bytes = assemble(&named("swapcontext", "ret"));
    check(
        &bytes,
        "swapcontext",
        &policy(ExitRequest::ForceReturn, ALONE),
        ExitStrategy::EntryOnly,
        "returns twice, unwinds or switches stacks",
    );
}

#[test]
fn the_kernel_and_the_process_forbid_return_probes() {
    let bytes = assemble(&function("ret"));
    let with = |kernel, seccomp, shadow_stack, go| ExitPolicy {
        requested: ExitRequest::ForceReturn,
        process: ProcessFacts {
            kernel,
            seccomp,
            shadow_stack,
            go,
            ..ProcessFacts::default()
        },
    };
    let killed = "lets seccomp kill a process at its return probe";
    for (kernel, bad) in [
        ((6, 10, 9), false),
        ((6, 11, 0), true),
        ((6, 12, 13), true),
        ((6, 12, 14), false),
        ((6, 13, 2), true),
        ((6, 13, 3), false),
    ] {
        let kernel = KernelRelease(kernel.0, kernel.1, kernel.2);
        let plan = plan_in(&bytes, "f", &with(kernel, true, false, false));
        assert_eq!(
            plan.exit.reason.to_string().ends_with(killed),
            bad,
            "{kernel}"
        );
        assert_eq!(plan.exit.strategy == ExitStrategy::Return, !bad, "{kernel}");
    }
    assert_eq!(
        plan_in(
            &bytes,
            "f",
            &with(KernelRelease(6, 10, 0), false, true, false)
        )
        .exit
        .strategy,
        ExitStrategy::EntryOnly
    );
    assert_eq!(
        plan_in(
            &bytes,
            "f",
            &with(KernelRelease(6, 18, 0), false, false, true)
        )
        .exit
        .strategy,
        ExitStrategy::EntryOnly
    );
}

#[test]
fn ret_offsets_are_all_rets_with_those_of_the_cold_part() {
    let cold = ".section .text.unlikely,\"ax\"\n.type f.cold,@function\nf.cold:\n.cfi_startproc\nmov $2,%eax\nret\n.cfi_endproc\n.size f.cold,.-f.cold\n";
    let bytes = assemble(&format!(
        "{}{cold}",
        function("test %edi,%edi; je 1f; jg f.cold; xor %eax,%eax; ret; 1: mov $1,%eax; repz ret")
    ));
    let plan = plan_in(&bytes, "f", &policy(ExitRequest::Ret, ALONE));
    assert_eq!(plan.exit.strategy, ExitStrategy::RetOffsets);
    assert!(!plan.exit.unseen_exits);
    let at: Vec<&[u8]> = plan
        .exit
        .ret_offsets
        .iter()
        .map(|&offset| &bytes[offset as usize..offset as usize + 2])
        .collect();
    assert_eq!(at.len(), 3);
    assert_eq!(
        at.iter()
            .filter(|bytes| bytes[0] == 0xc3 || **bytes == [0xf3, 0xc3])
            .count(),
        3
    );
}

#[test]
fn tail_jumps_are_exits_that_ret_probes_do_not_see() {
    let bytes = assemble(&format!(
        "{}{}",
        function("test %edi,%edi; je g; ret"),
        named("g", ".hidden g; ret")
    ));
    assert!(
        plan_in(&bytes, "f", &policy(ExitRequest::Ret, ALONE))
            .exit
            .unseen_exits
    );
}

#[test]
fn no_ret_is_probed_where_the_code_cannot_be_read_with_certainty() {
    // The jump lands inside what a linear reading takes for one instruction: 0xc3 is its last byte.
    let bytes = assemble(&function(
        "jmp 1f; .byte 0x48,0xb8; 1: nop; nop; nop; nop; nop; nop; nop; nop; ret",
    ));
    let plan = plan_in(&bytes, "f", &policy(ExitRequest::Ret, ALONE));
    assert_eq!(
        (plan.exit.strategy, plan.exit.ret_offsets.len()),
        (ExitStrategy::EntryOnly, 0)
    );
}

#[test]
fn cpp_functions_that_throw_are_entries_only_and_leaves_are_proven() {
    if !has("g++") {
        return;
    }
    let workshop = Workshop::new();
    workshop.source("a.cc", "extern \"C\" {\n__attribute__((noinline)) int leaf(int x) noexcept { return x * 3; }\n__attribute__((noinline)) int thrower(int x) { if (x > 9) throw x; return leaf(x); }\n__attribute__((noinline)) int middle(int x) { return thrower(x) + 1; }\n}\nint main(int n, char**) { try { return middle(n); } catch (int) { return leaf(n); } }\n");
    let bytes = workshop.run("g++ -O1 -o a a.cc").bytes("a");
    let image = Image::parse(&bytes, "a", &NoDebugFiles).unwrap();
    assert_eq!(
        (image.can_throw(), image.personalities()),
        (true, &[Personality::Cpp][..])
    );
    let default = policy(ExitRequest::Default, ALONE);
    check(&bytes, "leaf", &default, ExitStrategy::Return, PROVEN);
    check(
        &bytes,
        "thrower",
        &default,
        ExitStrategy::EntryOnly,
        "an exception may pass: it calls the import __cxa_allocate_exception",
    );
    check(
        &bytes,
        "middle",
        &default,
        ExitStrategy::EntryOnly,
        "an exception may pass: through thrower, it calls the import __cxa_allocate_exception",
    );
}

#[test]
fn rust_functions_that_may_panic_are_entries_only_also_when_stripped() {
    if !has("rustc") {
        return;
    }
    let workshop = Workshop::new();
    workshop.source("a.rs", "#[inline(never)] #[unsafe(no_mangle)] pub extern \"C\" fn leaf(x: u32) -> u32 { x.wrapping_mul(3) }\n#[inline(never)] #[unsafe(no_mangle)] pub fn panicker(v: &[u32], i: usize) -> u32 { v[i] }\nfn main() { let n = std::env::args().count(); let r = std::panic::catch_unwind(|| panicker(&[1], n)); std::process::exit((leaf(n as u32) + r.is_ok() as u32) as i32) }\n");
    let bytes = workshop.run("rustc --edition 2024 -O -o a a.rs").bytes("a");
    let default = policy(ExitRequest::Default, ALONE);
    check(&bytes, "leaf", &default, ExitStrategy::Return, PROVEN);
    assert_eq!(
        plan_in(&bytes, "panicker", &default).exit.strategy,
        ExitStrategy::EntryOnly
    );
    let image = Image::parse(&bytes, "a", &NoDebugFiles).unwrap();
    assert_eq!(image.personalities(), [Personality::Rust]);
    let stripped = workshop.run("strip -o s a").bytes("s");
    assert!(
        Image::parse(&stripped, "s", &NoDebugFiles)
            .unwrap()
            .can_throw()
    );
}

#[test]
fn go_is_recognised_in_the_file_and_never_gets_return_probes() {
    if !has("go") {
        return;
    }
    let workshop = Workshop::new();
    workshop.source("a.go", "package main\n\n//go:noinline\nfunc leaf(x int) int { return x * 3 }\n\n//go:noinline\nfunc deep(x int) int { if x == 0 { return 0 }; return deep(x-1) + leaf(x) }\n\nfunc main() { println(deep(14)) }\n");
    for (line, name) in [
        ("go build -o a a.go", "a"),
        ("go build -ldflags=-s -o s a.go", "s"),
    ] {
        let mut bytes = workshop.run(line).bytes(name);
        assert!(
            Image::parse(&bytes, name, &NoDebugFiles).unwrap().is_go(),
            "{name}"
        );
        if name == "a" {
            let force = policy(ExitRequest::ForceReturn, ALONE);
            check(
                &bytes,
                "main.leaf",
                &force,
                ExitStrategy::EntryOnly,
                "Go moves stacks: a return probe would crash it",
            );
            let deep = plan_in(&bytes, "main.deep", &policy(ExitRequest::Default, ALONE));
            let image = Image::parse(&bytes, name, &NoDebugFiles).unwrap();
            let text = deep.instruction(&image, &Disassembler::new());
            let site = deep.site.unwrap();
            // cmp 0x10(%r14),%rsp ; jbe (grow the stack, begin again) ; push %rbp
            assert_eq!(
                (site.delta, text.as_str(), site.reentered),
                (6, "pushq %rbp", false)
            );
        }
        crate::files::drop_section_headers(&mut bytes);
        assert!(
            Image::parse(&bytes, name, &NoDebugFiles).unwrap().is_go(),
            "{name} without section headers"
        );
    }
}
