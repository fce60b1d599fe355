//! The BPF object that is built into the collector.

/// The object: `$SCALPEL_BPF_OBJECT` of the build, else the committed one.
pub const OBJECT: &[u8] = aya::include_bytes_aligned!(env!("SCALPEL_BPF_OBJECT_FILE"));

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use aya_obj::generated::bpf_insn;
    use aya_obj::{Function, Object, ProgramSection};

    use super::OBJECT;

    /// `BPF_PRIV_STACK_MIN_SIZE`, against which the kernel holds each function's stack, rounded up to 16.
    const PRIVATE_STACK: i32 = 64;

    /// How far below the frame pointer (r10) an instruction reaches, or may: whatever a negative number is added to
    /// counts as an address.
    fn reach(insn: &bpf_insn) -> i32 {
        const LDX: u8 = 1;
        const ST: u8 = 2;
        const STX: u8 = 3;
        const ADD_NUMBER: u8 = 0x07;
        let below = match (insn.code, insn.code & 7) {
            (ADD_NUMBER, _) if insn.imm >= -512 => insn.imm,
            (_, LDX) if insn.src_reg() == 10 => i32::from(insn.off),
            (_, ST | STX) if insn.dst_reg() == 10 => i32::from(insn.off),
            _ => 0,
        };
        -below
    }

    fn stack(function: &Function) -> i32 {
        let deepest = function.instructions.iter().map(reach).max().unwrap_or(0);
        (deepest.max(0) + 15) / 16 * 16
    }

    /// What runs at a probe: the call programs, and every function that any program calls.
    fn at_probes(object: &Object) -> BTreeMap<&str, i32> {
        let others: Vec<_> = object
            .programs
            .values()
            .filter(|program| !matches!(program.section, ProgramSection::UProbe { .. }))
            .map(aya_obj::Program::function_key)
            .collect();
        object
            .functions
            .iter()
            .filter(|(key, _)| !others.contains(key))
            .map(|(_, function)| (function.name.as_str(), stack(function)))
            .collect()
    }

    #[test]
    fn no_function_of_a_call_program_takes_so_much_stack_that_the_kernel_makes_it_private() {
        let object = Object::parse(OBJECT).unwrap();
        let stacks = at_probes(&object);
        for program in [
            "call_session",
            "call_entry",
            "call_enter",
            "call_ret",
            "call_return",
            "call_complete",
            "count_session",
            "count_entry",
            "count_enter",
            "count_ret",
            "count_return",
        ] {
            assert!(stacks.contains_key(program), "{program} in {stacks:?}");
        }
        let deepest = stacks.values().max().unwrap();
        assert!(*deepest > 0, "nothing was measured: {stacks:?}");
        assert!(*deepest < PRIVATE_STACK, "{stacks:?}");
    }
}
