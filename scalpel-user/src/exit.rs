//! How the program ends: every exit code is decided here, in one match.
//!
//! The codes are a promise to scripts: 0 done, 1 a finding, 2 usage or trouble, 3 not permitted,
//! 4 no such target, 5 partial; with `record -- CMD` the code of CMD itself.

use std::io;

use anyhow::Error;

use crate::caps::{Blocker, Gate};
use crate::kernel::KernelError;
use crate::plan::PlanError;
use crate::scope::ScopeError;
use crate::survey::SurveyError;
use crate::target::TargetError;

/// How a command ended that could do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// What was asked for is so: a blocked host, a difference.
    Finding,
    /// There is a result, but part of it is missing.
    Partial,
    /// The command that was recorded ended with this code (128 + N if signal N killed it).
    Child(u8),
}

/// Why a command could not do its work, as far as the exit code tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A capability, sysctl or other gate forbids it.
    NotPermitted,
    /// The process or command is not there, or cannot be one to watch.
    NoTarget,
    /// The reader of our output left: no trouble at all.
    NobodyReads,
    /// Anything else.
    Other,
}

/// The exit code.
pub fn code(result: &Result<Outcome, Error>) -> u8 {
    match result.as_ref().map_err(trouble) {
        Ok(Outcome::Done) | Err(Trouble::NobodyReads) => 0,
        Ok(Outcome::Finding) => 1,
        Err(Trouble::Other) => 2,
        Err(Trouble::NotPermitted) => 3,
        Err(Trouble::NoTarget) => 4,
        Ok(Outcome::Partial) => 5,
        Ok(Outcome::Child(code)) => *code,
    }
}

/// What kind of trouble an error is: the outermost error in its chain that knows decides.
pub fn trouble(error: &Error) -> Trouble {
    error.chain().find_map(classify).unwrap_or(Trouble::Other)
}

fn classify(error: &(dyn std::error::Error + 'static)) -> Option<Trouble> {
    if error.is::<PlanError>() {
        return Some(Trouble::Other);
    }
    if let Some(error) = error.downcast_ref::<TargetError>() {
        return Some(if error.is_not_permitted() {
            Trouble::NotPermitted
        } else {
            Trouble::NoTarget
        });
    }
    if let Some(SurveyError::Target(error)) = error.downcast_ref::<SurveyError>() {
        return classify(error);
    }
    if let Some(error) = error.downcast_ref::<ScopeError>() {
        return Some(match error {
            ScopeError::Tier(_) | ScopeError::NotPermitted(_) => Trouble::NotPermitted,
            ScopeError::NoFunction { .. } | ScopeError::Gone(_) => Trouble::NoTarget,
            ScopeError::Several { .. } | ScopeError::Impossible(_) | ScopeError::NoGuardian => {
                Trouble::Other
            }
        });
    }
    if let Some(blocker) = error.downcast_ref::<Blocker>() {
        return Some(match blocker.gate {
            Gate::Permission => Trouble::NotPermitted,
            Gate::System => Trouble::Other,
        });
    }
    if let Some(error) = error.downcast_ref::<KernelError>() {
        return matches!(error, KernelError::ProcessGone(_)).then_some(Trouble::NoTarget);
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return match error.kind() {
            io::ErrorKind::BrokenPipe => Some(Trouble::NobodyReads),
            io::ErrorKind::PermissionDenied => Some(Trouble::NotPermitted),
            _ => None,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;
    use crate::event::Pid;

    #[test]
    fn codes_are_as_promised() {
        let check = |result: Result<Outcome, Error>, expect: u8| {
            assert_eq!(code(&result), expect, "{result:?}")
        };
        let io = |kind: io::ErrorKind| {
            Err::<Outcome, _>(Error::new(io::Error::from(kind)).context("outer"))
        };
        check(Ok(Outcome::Done), 0);
        check(Ok(Outcome::Finding), 1);
        check(Ok(Outcome::Partial), 5);
        check(Ok(Outcome::Child(137)), 137);
        check(Err(PlanError::Missing("x".into()).into()), 2);
        check(io(io::ErrorKind::NotFound), 2);
        check(io(io::ErrorKind::PermissionDenied), 3);
        check(io(io::ErrorKind::BrokenPipe).context("more"), 0);
        check(Err(Error::msg("anything")), 2);
        check(Err(TargetError::NoSuchProcess { pid: Pid(1) }.into()), 4);
        check(
            Err(SurveyError::Target(TargetError::Gone { pid: Pid(1) }).into()),
            4,
        );
        let what = || "maps".into();
        check(
            Err(TargetError::NotPermitted {
                pid: Pid(1),
                uid: 0,
                what: what(),
            }
            .into()),
            3,
        );
        check(
            Err(Error::new(KernelError::ProcessGone(1)).context("attaching")),
            4,
        );
    }
}
