//! A corpus of entry shapes, each with the right decision.

use scalpel_user::image::{
    Disassembler, ExitPolicy, Image, KernelRelease, NoDebugFiles, ProcessFacts, SitePlan,
    plan_sites,
};

use crate::build::{assemble, function, named};

const KERNEL: KernelRelease = KernelRelease(6, 18, 0);

fn plan(source: &str, name: &str) -> (SitePlan, String) {
    let bytes = assemble(source);
    let image = Image::parse(&bytes, "a.so", &NoDebugFiles).unwrap();
    let index = image
        .functions()
        .iter()
        .position(|f| f.raw_names().any(|n| n == name))
        .unwrap();
    let policy = ExitPolicy {
        process: ProcessFacts {
            kernel: KERNEL,
            ..ProcessFacts::default()
        },
        ..ExitPolicy::default()
    };
    let plan = plan_sites(&image, &[index], &policy).remove(0);
    let text = plan.instruction(&image, &Disassembler::new());
    (plan, text)
}

/// `expect`: `+delta cost instruction: reason`, or the refusal; the reason up to its first address.
#[track_caller]
fn check(source: &str, expect: &str) {
    let (plan, text) = plan(source, "f");
    let reason = plan.site_reason();
    let reason = reason.split(" 0x").next().unwrap();
    let shown = match &plan.site {
        Ok(site) => format!("+{} {} {text}: {reason}", site.delta, site.cost.word()),
        Err(_) => reason.to_owned(),
    };
    assert_eq!(shown, expect);
}

const FIRST: &str = "first emulated instruction, rsp unchanged, no jump lands before it";

#[test]
fn a_push_at_the_entry_is_the_site() {
    check(
        &function("push %rbp; .cfi_def_cfa_offset 16; pop %rbp; .cfi_def_cfa_offset 8; ret"),
        "+0 emulated pushq %rbp: the first instruction is emulated",
    );
}

#[test]
fn endbr64_is_passed_over() {
    check(
        &function(
            "endbr64; push %r12; .cfi_def_cfa_offset 16; pop %r12; .cfi_def_cfa_offset 8; ret",
        ),
        &format!("+4 emulated pushq %r12: {FIRST}"),
    );
}

#[test]
fn moves_and_the_stack_protectors_load_are_passed_over() {
    check(
        &function(
            "mov %fs:0x28,%rax; mov %rdi,%rsi; push %rbx; .cfi_def_cfa_offset 16; pop %rbx; .cfi_def_cfa_offset 8; ret",
        ),
        &format!("+12 emulated pushq %rbx: {FIRST}"),
    );
}

#[test]
fn behind_a_moved_stack_pointer_no_site_is_safe() {
    check(
        &function(
            "sub $8,%rsp; .cfi_def_cfa_offset 16; push %rbx; pop %rbx; add $8,%rsp; .cfi_def_cfa_offset 8; ret",
        ),
        "+0 stepped subq $8, %rsp: no cheaper site: rsp changes at",
    );
}

#[test]
fn a_conditional_branch_can_be_the_site() {
    let (plan, text) = plan(&function("test %rdi,%rdi; je 1f; inc %rdi; 1: ret"), "f");
    let site = plan.site.unwrap();
    assert_eq!(
        (site.delta, site.cost.word(), &text[..3]),
        (3, "emulated", "je ")
    );
}

#[test]
fn a_jump_back_to_the_entry_block_forbids_what_is_behind_it() {
    check(
        &function("mov %rdi,%rax; 1: dec %rax; jnz 1b; ret"),
        "+0 stepped movq %rdi, %rax: no cheaper site: a jump lands at",
    );
}

#[test]
fn a_jump_from_a_cold_part_forbids_the_site() {
    let cold = ".section .text.unlikely,\"ax\"\n.type f.cold,@function\nf.cold:\n.cfi_startproc\njmp .Lback\n.cfi_endproc\n.size f.cold,.-f.cold\n";
    let hot = function(
        "mov %rdi,%rax; .Lback: push %rbx; .cfi_def_cfa_offset 16; jne f.cold; pop %rbx; .cfi_def_cfa_offset 8; ret",
    );
    check(
        &format!("{hot}{cold}"),
        "+0 stepped movq %rdi, %rax: no cheaper site: a jump lands at",
    );
}

#[test]
fn a_jump_from_assembly_without_symbol_forbids_the_site() {
    let stranger = ".text\n.byte 0x90\njmp .Lin\n";
    let own = function(
        "mov %rdi,%rax; .Lin: push %rbx; .cfi_def_cfa_offset 16; pop %rbx; .cfi_def_cfa_offset 8; ret",
    );
    check(
        &format!("{own}{stranger}"),
        "+0 stepped movq %rdi, %rax: no cheaper site: a jump lands at",
    );
}

#[test]
fn a_call_that_skips_endbr64_forbids_the_site() {
    let caller = named("g", "call .Lbody; ret");
    let own = function(
        "endbr64; .Lbody: push %rbx; .cfi_def_cfa_offset 16; pop %rbx; .cfi_def_cfa_offset 8; ret",
    );
    check(
        &format!("{own}{caller}"),
        "+0 stepped endbr64: no cheaper site: a jump lands at",
    );
}

#[test]
fn one_instruction_functions_are_probed_where_they_are() {
    check(
        &function("ret"),
        "+0 stepped retq: no cheaper site: the entry block ends at",
    );
    let (plan, _) = plan(&format!("{}{}", function("jmp g"), named("g", "ret")), "f");
    assert_eq!(plan.site.unwrap().cost.word(), "emulated");
}

#[test]
fn data_with_a_functions_symbol_is_refused() {
    check(
        &function(".byte 0x06, 0x07, 0x0e, 0x16"),
        "its bytes do not decode up to the first branch: data, not code",
    );
}

#[test]
fn data_in_text_between_functions_harms_no_site() {
    let table = ".text\n.byte 0x06,0xe9,0,0,0,0,0x06\n";
    let own = function(
        "mov %rdi,%rax; push %rbx; .cfi_def_cfa_offset 16; pop %rbx; .cfi_def_cfa_offset 8; ret",
    );
    check(
        &format!("{own}{table}"),
        &format!("+3 emulated pushq %rbx: {FIRST}"),
    );
}

#[test]
fn a_loop_over_the_entry_is_marked() {
    let (plan, _) = plan(
        &function("dec %rdi; jnz f; ret")
            .replace("jnz f", "jnz .Lf")
            .replace("f:\n", "f:\n.Lf:\n"),
        "f",
    );
    let site = plan.site.unwrap();
    assert!(site.reentered);
    assert_eq!(site.delta, 3);
}

#[test]
fn a_nop5_needs_an_unused_red_zone() {
    let nop5 = ".byte 0x0f,0x1f,0x44,0,0";
    check(
        &function(&format!("{nop5}; ret")),
        "+0 nop5 nopl (%rax, %rax): the first instruction is emulated",
    );
    check(
        &function(&format!("mov %rdi,%rax; {nop5}; ret")),
        &format!("+3 nop5 nopl (%rax, %rax): {FIRST}"),
    );
    check(
        &function(&format!(
            "mov %rdi,-8(%rsp); {nop5}; push %rbx; .cfi_def_cfa_offset 16; pop %rbx; .cfi_def_cfa_offset 8; ret"
        )),
        &format!("+10 emulated pushq %rbx: {FIRST}"),
    );
}

#[test]
fn a_jump_table_that_leads_behind_the_entry_forbids_the_site() {
    let table = ".section .rodata\n.Ltable:\n.long .Lin-.Ltable\n.long .Lout-.Ltable\n";
    let own = function(
        "mov %rdi,%rax; .Lin: push %rbx; pop %rbx; lea .Ltable(%rip),%rdx; movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax; .Lout: ret",
    );
    check(
        &format!("{own}{table}"),
        "+0 stepped movq %rdi, %rax: no cheaper site: the address",
    );
}

#[test]
fn a_jump_table_elsewhere_in_the_function_allows_the_site() {
    let table =
        ".section .rodata\n.Ltable:\n.long .Lone-.Ltable\n.long .Lout-.Ltable\n.long 0x40000000\n";
    let own = function(
        "mov %rdi,%rax; push %rbx; pop %rbx; lea .Ltable(%rip),%rdx; movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax; .Lone: inc %rax; .Lout: ret",
    );
    check(
        &format!("{own}{table}"),
        &format!("+3 emulated pushq %rbx: {FIRST}"),
    );
}

#[test]
fn a_computed_jump_without_table_keeps_the_probe_at_the_entry() {
    check(
        &function("mov %rdi,%rax; push %rbx; pop %rbx; add %rdx,%rax; jmp *%rax"),
        "+0 stepped movq %rdi, %rax: no cheaper site: an indirect jump of the function could land behind the entry",
    );
}

#[test]
fn a_framed_computed_jump_cannot_land_where_there_is_no_frame() {
    check(
        &function(
            "mov %rdi,%rax; push %rbx; .cfi_def_cfa_offset 16; add %rdx,%rax; jmp *%rax; pop %rbx; .cfi_def_cfa_offset 8; ret",
        ),
        &format!("+3 emulated pushq %rbx: {FIRST}"),
    );
}

#[test]
fn a_label_whose_address_is_stored_forbids_the_site() {
    let data = ".data\n.quad .Lin\n";
    let own = function(
        "mov %rdi,%rax; .Lin: push %rbx; .cfi_def_cfa_offset 16; pop %rbx; .cfi_def_cfa_offset 8; ret",
    );
    check(
        &format!("{own}{data}"),
        "+0 stepped movq %rdi, %rax: no cheaper site: the address",
    );
}

#[test]
fn the_unwind_table_has_the_last_word_about_the_stack() {
    check(
        &function("mov %rdi,%rax; .cfi_def_cfa_offset 24; push %rbx; pop %rbx; ret"),
        "+0 stepped movq %rdi, %rax: no cheaper site: the unwind table says that rsp has moved at",
    );
}

#[test]
fn without_unwind_table_the_instructions_are_the_proof() {
    let bare =
        ".text\n.globl f\n.type f,@function\nf: endbr64\npush %rbx\npop %rbx\nret\n.size f,.-f\n";
    check(bare, &format!("+4 emulated pushq %rbx: {FIRST}"));
}

#[test]
fn a_refused_first_instruction_moves_the_probe_on() {
    check(
        &function(
            "lock incl (%rdi); push %rbx; .cfi_def_cfa_offset 16; pop %rbx; .cfi_def_cfa_offset 8; ret",
        ),
        &format!("+3 emulated pushq %rbx: {FIRST}"),
    );
    check(
        &function("ud2"),
        "no instruction of the entry block can be probed: it only traps",
    );
}

#[test]
fn slow_instructions_and_uses_of_the_return_address_end_the_search() {
    let rest = "push %rbx; .cfi_def_cfa_offset 16; pop %rbx; .cfi_def_cfa_offset 8; ret";
    check(
        &function(&format!("div %rsi; {rest}")),
        "+0 stepped divq %rsi: no cheaper site: a slow or trapping instruction at",
    );
    check(
        &function(&format!("rep stosb; {rest}")),
        "+0 stepped rep stosb %al, (%rdi): no cheaper site: a slow or trapping instruction at",
    );
    check(
        &function(&format!("mov (%rsp),%rax; {rest}")),
        "+0 stepped movq (%rsp), %rax: no cheaper site: the return address is used at",
    );
}

#[test]
fn an_entry_that_falls_into_the_next_symbol_is_probed_at_itself() {
    let pair = ".text\n.globl f\n.type f,@function\nf: .cfi_startproc\nmov $1,%eax\n.cfi_endproc\n.size f,.-f\n";
    check(
        &format!("{pair}{}", named("g", "ret")),
        "+0 stepped movl $1, %eax: no cheaper site: no emulated instruction in the entry block",
    );
}

#[test]
fn a_function_inside_another_has_its_own_site() {
    let nested = function(
        "mov %rdi,%rax; push %rbx; .cfi_def_cfa_offset 16; .globl inner; .type inner,@function; inner: pop %rbx; .cfi_def_cfa_offset 8; ret; .size inner,.-inner",
    );
    check(&nested, &format!("+3 emulated pushq %rbx: {FIRST}"));
    let (plan, _) = plan(&nested, "inner");
    assert_eq!(plan.site.unwrap().delta, 0);
    assert_eq!(
        plan.exit.reason.to_string(),
        "the return address is not at [rsp] at its entry"
    );
}

#[test]
fn cold_parts_are_no_entries() {
    let cold = ".section .text.unlikely,\"ax\"\n.type f.cold,@function\nf.cold:\n.cfi_startproc\n.cfi_def_cfa_offset 16\nud2\n.cfi_endproc\n.size f.cold,.-f.cold\n";
    let (plan, _) = plan(&format!("{}{cold}", function("ret")), "f.cold");
    assert_eq!(
        plan.site_reason(),
        "a cold part of another function: jumps enter it, not calls"
    );
}
