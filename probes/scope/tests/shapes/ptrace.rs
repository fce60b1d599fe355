//! An independent stepper: a forked child runs routines, its parent steps it by ptrace and notes where it was.
use crate::code::Routine;

/// Where each routine was while the child ran it: the addresses in order.
pub(crate) fn truth(routines: &[(Routine, [u64; 6])]) -> Vec<Vec<u64>> {
    pin();
    let child = unsafe { libc::fork() };
    if child == 0 {
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            for (routine, args) in routines {
                libc::raise(libc::SIGSTOP);
                crate::programs::clean(args);
                routine.run(*args);
            }
            libc::_exit(0);
        }
    }
    let truth = routines
        .iter()
        .map(|(routine, _)| one(child, *routine))
        .collect();
    assert_eq!(wait(child) & 0x7f, 0, "the child ends well");
    truth
}

fn one(child: i32, routine: Routine) -> Vec<u64> {
    let status = wait(child);
    assert_eq!((status >> 8) & 0xff, libc::SIGSTOP, "{status:x}");
    // Run to the routine's entry by a breakpoint in the child's own copy of the page.
    let entry = routine.at as *mut libc::c_void;
    let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, child, entry, 0) };
    unsafe {
        libc::ptrace(libc::PTRACE_POKETEXT, child, entry, word & !0xff | 0xcc);
        libc::ptrace(libc::PTRACE_CONT, child, 0, 0);
    }
    assert_eq!((wait(child) >> 8) & 0xff, libc::SIGTRAP);
    let mut registers = get(child);
    registers.rip -= 1;
    unsafe {
        libc::ptrace(libc::PTRACE_POKETEXT, child, entry, word);
        libc::ptrace(libc::PTRACE_SETREGS, child, 0, &raw const registers);
    }
    let inside = routine.at as u64..(routine.at + routine.len) as u64;
    let mut seen = Vec::new();
    let mut rip = registers.rip;
    while inside.contains(&rip) {
        seen.push(rip);
        let pushes = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, child, rip, 0) } & 0xff == 0x9c;
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) };
        assert_eq!((wait(child) >> 8) & 0xff, libc::SIGTRAP);
        let registers = get(child);
        if pushes {
            // PUSHF shows the trap flag of the tracer, and programs here branch on what they pushed.
            let flags = unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, child, registers.rsp, 0) };
            unsafe { libc::ptrace(libc::PTRACE_POKEDATA, child, registers.rsp, flags & !0x100) };
        }
        rip = registers.rip;
    }
    // Flags that were pushed while stepping bring the trap flag back by POPF.
    let mut registers = get(child);
    registers.eflags &= !0x100;
    unsafe { libc::ptrace(libc::PTRACE_SETREGS, child, 0, &raw const registers) };
    unsafe { libc::ptrace(libc::PTRACE_CONT, child, 0, 0) };
    seen
}

fn wait(child: i32) -> i32 {
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

fn get(child: i32) -> libc::user_regs_struct {
    let mut registers = unsafe { std::mem::zeroed() };
    unsafe { libc::ptrace(libc::PTRACE_GETREGS, child, 0, &raw mut registers) };
    registers
}

/// Tracer and tracee on one processor: waking another one costs more than the step.
fn pin() {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
