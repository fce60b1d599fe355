//! Random programs: natively, by ptrace, by steps, from copies, and from the packets of Intel PT.
use scalpel_scope::Trace;
use scalpel_scope::pt::{self, encode};
use scalpel_scope::trace::{Fact, Reasons};

use crate::code::{self, Routine};
use crate::{packets, programs, ptrace};

pub(crate) fn a_path_is_decoded_from_its_packets() {
    let mut dice = programs::Dice(5);
    let routine = programs::random(&mut dice, code::memory());
    let (_, stepped) = routine.trace([code::memory() as u64, 7, 0, 0, 0, 0]);
    for number in 0..8 {
        decoded(&stepped, number);
    }
}

/// In four processes: a site of scopes has its budget.
pub(crate) fn random_programs_of_spring() {
    are_as_ptrace_sees_them_stepped_and_copied(1);
}

pub(crate) fn random_programs_of_summer() {
    are_as_ptrace_sees_them_stepped_and_copied(2);
}

pub(crate) fn random_programs_of_autumn() {
    are_as_ptrace_sees_them_stepped_and_copied(3);
}

pub(crate) fn random_programs_of_winter() {
    are_as_ptrace_sees_them_stepped_and_copied(4);
}

fn are_as_ptrace_sees_them_stepped_and_copied(seed: u64) {
    let mut dice = programs::Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (mut steps, mut copied) = (0, 0);
    for _ in 0..PROGRAMS / BATCH {
        let (more, of_them) = batch(&mut dice);
        steps += more;
        copied += of_them;
    }
    assert!(steps > 10 * PROGRAMS, "{steps}");
    // A program that begins with what is stepped may have nothing to copy.
    assert!(copied > PROGRAMS * 9 / 10, "{copied}");
}

fn batch(dice: &mut programs::Dice) -> (usize, usize) {
    let (mut steps, mut copied) = (0, 0);
    with_truth(dice, |number, routine, args, truth| {
        let shown = one(routine, args, truth, number);
        steps += truth.len();
        copied += usize::from(shown.assumed.contains(&Fact::RanFromCopies));
    });
    (steps, copied)
}

/// A batch of programs, each with what ptrace sees of it.
pub(crate) fn with_truth(
    dice: &mut programs::Dice,
    mut see: impl FnMut(usize, Routine, [u64; 6], &[u64]),
) {
    let buffer = code::memory() as u64;
    let memory = code::memory();
    let mut routines = Vec::new();
    for place in 0..BATCH {
        let at = memory + place * (code::PAGES / BATCH);
        let routine = programs::random(dice, at);
        routines.push((routine, [buffer, dice.roll(1 << 50), 0, 0, 0, 0]));
    }
    Routine {
        at: memory,
        len: code::PAGES,
    }
    .seal();
    let truth = ptrace::truth(&routines);
    for (number, ((routine, args), truth)) in routines.iter().zip(truth).enumerate() {
        see(number, *routine, *args, &truth);
    }
    for at in [buffer, memory as u64] {
        unsafe { libc::munmap(at as *mut libc::c_void, code::PAGES) };
    }
}

/// Natively, by steps, from copies and from packets: the same result, and the same trace to the last byte.
fn one(routine: Routine, args: [u64; 6], truth: &[u64], number: usize) -> Trace {
    programs::clean(&args);
    let native = routine.run(args);
    programs::clean(&args);
    let (result, stepped) = routine.trace(args);
    let seen: Vec<_> = stepped.addresses().collect();
    assert_eq!(seen, truth, "{:x?} {}", routine.at, stepped.reasons);
    assert!(stepped.is_complete(), "{}", stepped.reasons);
    assert_eq!(result, native);
    programs::clean(&args);
    let (result, copied) = routine.trace_copied(args);
    same(&copied, &stepped);
    assert_eq!(result, native);
    if pt::available().is_ok() {
        decoded(&stepped, number);
    }
    copied
}

/// The packets of a path, written in one of the shapes, tell the same path.
fn decoded(stepped: &Trace, number: usize) {
    let shape = packets::shapes().nth(number % 8).unwrap();
    let written = encode::path(stepped, shape).unwrap();
    let (summary, path) = packets::decode(stepped, &written, 1 << 20);
    assert_eq!(path, packets::path(stepped), "{shape:?}");
    assert_eq!(summary.reasons, Reasons::NONE, "{shape:?}");
    assert_eq!(summary.ends, stepped.begin.zip(stepped.end));
}

/// Whether two traces are the same but for how they were seen.
pub(crate) fn same(one: &Trace, other: &Trace) {
    let (seen, truth): (Vec<_>, Vec<_>) = (one.addresses().collect(), other.addresses().collect());
    let differs = seen
        .iter()
        .zip(&truth)
        .position(|(one, other)| one != other);
    let (lengths, reasons) = ((seen.len(), truth.len()), one.reasons);
    assert!(
        differs.is_none() && lengths.0 == lengths.1,
        "differs at {differs:?} of {lengths:?}, {:x?}, {reasons}",
        differs.map(|place| (&seen[place - 3..place + 2], &truth[place - 3..place + 2])),
    );
    assert_eq!((&one.steps, &one.code), (&other.steps, &other.code));
    assert_eq!(
        (one.begin, one.end, one.counted),
        (other.begin, other.end, other.counted)
    );
    assert_eq!(one.reasons, other.reasons);
}

/// Of each of the four.
const PROGRAMS: usize = 2_500;
const BATCH: usize = 100;
