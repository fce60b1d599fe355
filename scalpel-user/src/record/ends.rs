//! Options that name functions of which more than the beginning has to be seen.

use anyhow::{Result, bail};

use super::probes::Probes;
use crate::function::{ExitStrategy, FunctionInfo, FunctionTable};
use crate::image::Pattern;
use crate::plan::Exits;

/// Such an option.
pub(super) struct Ends {
    /// As it was typed.
    pub(super) option: String,
    pub(super) pattern: Pattern,
    /// What cannot be seen of a function whose end is not watched.
    pub(super) unseen: &'static str,
    /// What the option does not do for such a function.
    pub(super) leaves_out: &'static str,
    /// How ends are watched.
    pub(super) exits: Exits,
    /// A function of that name may still come.
    pub(super) may_come: bool,
}

impl Ends {
    /// Refuses the option if it is of no use for any function; says for which of several it is not.
    pub(super) fn check(
        &self,
        probes: &Probes,
        functions: &FunctionTable,
    ) -> Result<Option<String>> {
        let meant = |info: &&FunctionInfo| self.pattern.matches_recorded(info);
        let all = functions.iter().map(|(_, info)| &**info).filter(meant);
        let unprobed = probes
            .bounds
            .iter()
            .filter_map(|bound| Some((functions.get(bound.func)?, &bound.reason)))
            .filter(|(info, _)| self.pattern.matches_recorded(info))
            .map(|(info, reason)| format!("{}: {reason}", info.name));
        let endless = probes
            .requests
            .iter()
            .filter(|request| !sees_ends(request.exit))
            .filter_map(|request| functions.get(request.func))
            .filter(|info| self.pattern.matches_recorded(info))
            .map(|info| format!("{}: {}", info.name, info.exit_reason));
        let refused: Vec<String> = unprobed.chain(endless).collect();
        let option = &self.option;
        match (all.count(), refused.len()) {
            (0, _) if self.may_come => Ok(None),
            (0, _) => bail!(
                "{option}: no function matches; `scalpel-ebpf list functions` shows what there is, --lib chooses other files"
            ),
            (_, 0) => Ok(None),
            (all, refused_count) if all == refused_count => bail!(
                "{option}: {} cannot be seen of {}; {}`scalpel-ebpf list sites` shows what each function allows",
                self.unseen,
                some_of(&refused),
                another_way(self.exits)
            ),
            _ => Ok(Some(format!(
                "{option} {} functions whose ends are not watched: {}",
                self.leaves_out,
                some_of(&refused)
            ))),
        }
    }
}

/// What somebody who has tried it already is not told to try.
const fn another_way(exits: Exits) -> &'static str {
    match exits {
        Exits::Ret => "",
        Exits::Default | Exits::None => {
            "--exits ret watches `ret` instructions instead, where there are any, and "
        }
    }
}

const fn sees_ends(exit: ExitStrategy) -> bool {
    matches!(exit, ExitStrategy::Return | ExitStrategy::RetOffsets)
}

/// The first few, and how many more there are.
fn some_of(refused: &[String]) -> String {
    const SHOWN: usize = 3;
    let mut text = refused
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    if refused.len() > SHOWN {
        text.push_str(&format!("; and {} more", refused.len() - SHOWN));
    }
    text
}
