//! Functions of the vdso. Every process of a kernel has the same one: our own answers for those that have ended.

use std::sync::Arc;

use blazesym::Pid;
use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use super::Named;
use crate::function::{ExitStrategy, FunctionInfo, Language, SourcePlace, UnknownReason};

/// Our own vdso.
#[derive(Default)]
pub(super) struct Vdso {
    symbolizer: Option<Symbolizer>,
    start: Option<u64>,
}

impl Vdso {
    /// The function at `offset` from the vdso's first address.
    pub(super) fn look_up(&mut self, offset: u64) -> Named {
        if self.start.is_none() {
            self.start = our_start();
        }
        let start = self.start.ok_or(UnknownReason::NoSymbol)?;
        let symbolizer = self.symbolizer.get_or_insert_with(Symbolizer::new);
        let mut process = Process::new(Pid::Slf);
        (process.debug_syms, process.perf_map, process.map_files) = (false, false, false);
        match symbolizer.symbolize_single(&Source::Process(process), Input::AbsAddr(start + offset))
        {
            // The vdso's version name `LINUX_2.6` is a symbol too, without size.
            Ok(Symbolized::Sym(symbol)) if symbol.size.is_some_and(|size| size > 0) => {
                let begin = offset.saturating_sub(symbol.offset as u64);
                Ok(Arc::new(info(
                    &symbol.name,
                    begin,
                    symbol.size.unwrap_or(0) as u64,
                )))
            }
            _ => Err(UnknownReason::NoSymbol),
        }
    }
}

pub(super) fn our_start() -> Option<u64> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    u64::from_str_radix(line.split('-').next()?, 16).ok()
}

fn info(name: &str, offset: u64, size: u64) -> FunctionInfo {
    FunctionInfo {
        name: name.to_owned(),
        raw_name: name.to_owned(),
        module: "[vdso]".into(),
        path: "[vdso]".into(),
        file: None,
        line: None,
        language: Language::C,
        build_id: String::new(),
        file_offset: offset,
        size,
        site_delta: 0,
        exit: ExitStrategy::None,
        exit_reason: String::new(),
        unknown: None,
        ordinal: 0,
        place: SourcePlace::default(),
    }
}
