//! Programs that careless probes kill, under every mechanism and exit strategy that the exit table allows for them:
//! unchanged results and exact entry counts.

use anyhow::ensure;
use scalpel_tests::catalog;
use scalpel_tests::fixture::Fixture;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_user::event::Kind;
use scalpel_user::function::ExitStrategy::{self, EntryOnly, RetOffsets, Return};
use scalpel_user::kernel::Mechanism::{self, Multi, Perf, Session};
use scalpel_user::kernel::attach::AttachOptions;

use crate::subject::Probes;

/// A fixture, the argument it is given, its functions, and where return probes may be put.
struct Case {
    fixture: Fixture,
    scenario: &'static [&'static str],
    functions: &'static [&'static str],
    returns: Returns,
    exit_code: i32,
}

/// Where return probes may be put on a fixture.
enum Returns {
    /// They kill it.
    Never,
    /// Where the stack guard can refuse single returns: in sessions.
    Guarded,
    /// Everywhere.
    Always,
}

const COROUTINES: &[&str] = &["step", "give_way", "body", "resume", "work"];

const CASES: &[(&str, Case)] = &[
    (
        "an_ordinary_program",
        Case {
            fixture: catalog::CALLS,
            scenario: &[],
            functions: &["leaf", "middle", "left", "right", "fib"],
            returns: Returns::Always,
            exit_code: 3,
        },
    ),
    (
        "a_cpp_program_that_throws",
        Case {
            fixture: catalog::THROWS,
            scenario: &[],
            functions: &["thrower(int)", "second(int)", "first(int)", "catcher(int)"],
            returns: Returns::Never,
            exit_code: 0,
        },
    ),
    (
        "a_rust_program_that_panics_and_catches",
        Case {
            fixture: catalog::PANICS,
            scenario: &[],
            functions: &[
                "panics::thrower",
                "panics::second",
                "panics::first",
                "panics::catcher",
            ],
            returns: Returns::Never,
            exit_code: 0,
        },
    ),
    (
        "a_handler_on_an_alternate_stack",
        Case {
            fixture: catalog::ALTSTACK,
            scenario: &[],
            functions: &["in_handler", "handler", "interrupted", "around", "work"],
            returns: Returns::Guarded,
            exit_code: 0,
        },
    ),
    (
        "coroutines_on_the_heap",
        Case {
            fixture: catalog::COROUTINES,
            scenario: &["heap"],
            functions: COROUTINES,
            returns: Returns::Guarded,
            exit_code: 0,
        },
    ),
    (
        "goroutines_whose_stacks_move",
        Case {
            fixture: catalog::GOROUTINES,
            scenario: &[],
            functions: &["main.leaf", "main.grow", "main.worker"],
            returns: Returns::Never,
            exit_code: 5,
        },
    ),
];

/// Adds a test for each case, mechanism and strategy.
pub(crate) fn add(suite: &mut Suite) {
    for (name, case) in CASES {
        for mechanism in [Session, Multi, Perf] {
            for exit in [EntryOnly, RetOffsets] {
                add_one(suite, name, case, mechanism, exit);
            }
        }
        let with_return: &[Mechanism] = match case.returns {
            Returns::Never => &[],
            Returns::Guarded => &[Session],
            Returns::Always => &[Session, Multi, Perf],
        };
        for &mechanism in with_return {
            add_one(suite, name, case, mechanism, Return);
        }
    }
}

fn add_one(
    suite: &mut Suite,
    name: &str,
    case: &'static Case,
    mechanism: Mechanism,
    exit: ExitStrategy,
) {
    let sentence = format!("{name}_survives_{}_by_{mechanism:?}", exit.word()).to_lowercase();
    suite.test("harm", &sentence, move || survives(case, mechanism, exit));
}

fn survives(case: &Case, mechanism: Mechanism, exit: ExitStrategy) -> Outcome {
    let copy = case.fixture.copy()?;
    let mut target = Target::start(copy.path(), case.scenario)?;
    let mut probes = Probes::new(
        copy.path(),
        case.functions,
        mechanism,
        exit,
        AttachOptions::default(),
    )?;
    probes.attach()?;
    let truth = target.work()?;
    for (name, count) in probes.hits() {
        ensure!(
            count == truth.calls(&name)?,
            "{name}: {count} entries seen, {} made",
            truth.calls(&name)?
        );
    }
    let counts = probes.finish()?;
    for (id, name) in (1..).zip(case.functions) {
        let (made, exits) = (truth.calls(name)?, counts.of(id, Kind::Exit));
        let entries = counts.of(id, Kind::Enter);
        ensure!(entries == made, "{name}: {entries} ENTER of {made} calls");
        let all_return = matches!(case.returns, Returns::Always) && exit != EntryOnly;
        ensure!(
            if all_return {
                exits == made
            } else {
                exits <= made
            },
            "{name}: {exits} EXIT of {made} calls"
        );
        ensure!(
            exit != EntryOnly || exits == 0,
            "{name}: an EXIT without a probe"
        );
    }
    let ended = target.finish()?;
    ended.expect_code(case.exit_code)?;
    Ok(())
}
