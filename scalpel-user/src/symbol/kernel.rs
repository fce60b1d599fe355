//! The kernel's functions, from `/proc/kallsyms`.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use super::Named;
use crate::function::{ExitStrategy, FunctionInfo, Language, SourcePlace, UnknownReason};

/// Where the kernel's symbols are.
const KALLSYMS: &str = "/proc/kallsyms";

/// The kernel's symbols, read at the first question.
#[derive(Default)]
pub(super) struct KernelSymbols {
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Unread,
    Hidden,
    Shown(Box<Symbolizer>, Source<'static>),
}

impl KernelSymbols {
    pub(super) fn look_up(&mut self, address: u64) -> Named {
        if matches!(self.state, State::Unread) {
            self.state = open();
        }
        let State::Shown(symbolizer, source) = &self.state else {
            return Err(UnknownReason::KernelHidden);
        };
        match symbolizer.symbolize_single(source, Input::AbsAddr(address)) {
            Ok(Symbolized::Sym(symbol)) => Ok(Arc::new(info(
                &symbol.name,
                symbol.addr,
                symbol.size.unwrap_or(0) as u64,
            ))),
            Ok(Symbolized::Unknown(_)) => Err(UnknownReason::NoSymbol),
            Err(error) => Err(UnknownReason::BadFile(format!("{KALLSYMS}: {error}"))),
        }
    }
}

/// Only `kallsyms`: it is the running kernel's for certain, a `vmlinux` somewhere on the disk is not.
fn open() -> State {
    if addresses_hidden() {
        return State::Hidden;
    }
    let kernel = Kernel {
        vmlinux: MaybeDefault::None,
        debug_syms: false,
        ..Kernel::default()
    };
    let symbolizer = Symbolizer::builder()
        .enable_code_info(false)
        .enable_inlined_fns(false)
        .build();
    State::Shown(Box::new(symbolizer), Source::Kernel(kernel))
}

/// `kernel.kptr_restrict` turns all addresses into zeros.
fn addresses_hidden() -> bool {
    let mut head = [0; 16];
    let read = File::open(KALLSYMS).and_then(|mut file| file.read_exact(&mut head));
    read.is_err() || head.iter().all(|&byte| byte == b'0')
}

fn info(name: &str, address: u64, size: u64) -> FunctionInfo {
    FunctionInfo {
        name: name.to_owned(),
        raw_name: name.to_owned(),
        module: "[kernel]".into(),
        path: "[kernel]".into(),
        file: None,
        line: None,
        language: Language::Kernel,
        build_id: String::new(),
        // There is no file: the address tells functions of one name apart.
        file_offset: address,
        size,
        site_delta: 0,
        exit: ExitStrategy::None,
        exit_reason: String::new(),
        unknown: None,
        ordinal: 0,
        place: SourcePlace::default(),
    }
}
