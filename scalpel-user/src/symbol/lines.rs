//! File and line of a function's start, and what is inlined at an address, from debug information where there is any.

use std::path::Path;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Sym, Symbolizer};

/// Where a function begins in its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) file: String,
    pub(super) line: Option<u32>,
}

/// Reads debug information, each file's once.
#[derive(Default)]
pub(super) struct Lines {
    symbolizer: Option<Symbolizer>,
}

impl Lines {
    /// `file_offset`: of the function's first instruction.
    pub(super) fn of(&mut self, path: &Path, file_offset: u64) -> Option<Line> {
        line_of(&self.ask(path, file_offset)?)
    }

    /// The same of many functions of one file: looking whether it is still the same takes longer than an answer.
    pub(super) fn of_many(&mut self, path: &Path, file_offsets: &[u64]) -> Vec<Option<Line>> {
        let source = Source::Elf(Elf::new(path));
        let answers = self.symbolizer();
        let answers = answers.symbolize(&source, Input::FileOffset(file_offsets));
        let answers = answers.unwrap_or_default();
        answers
            .into_iter()
            .map(|answer| line_of(&answer.into_sym()?))
            .collect()
    }

    /// Names, as debug information has them, of the functions that are inlined at an address, the outermost first.
    pub(super) fn inlined(&mut self, path: &Path, file_offset: u64) -> Vec<String> {
        let symbol = self.ask(path, file_offset);
        let inlined = symbol.iter().flat_map(|symbol| &symbol.inlined);
        let names = inlined.map(|function| function.name.to_string());
        names.filter(|name| !name.is_empty()).collect()
    }

    fn ask(&mut self, path: &Path, file_offset: u64) -> Option<Sym<'_>> {
        let source = Source::Elf(Elf::new(path));
        let symbolizer = self.symbolizer();
        let answer = symbolizer.symbolize_single(&source, Input::FileOffset(file_offset));
        answer.ok()?.into_sym()
    }

    fn symbolizer(&mut self) -> &mut Symbolizer {
        // With inlined functions, for the first instruction may be an inlined function's: the outer one's line is its own.
        self.symbolizer.get_or_insert_with(|| {
            Symbolizer::builder()
                .enable_code_info(true)
                .enable_inlined_fns(true)
                .enable_demangling(false)
                .build()
        })
    }
}

fn line_of(symbol: &Sym<'_>) -> Option<Line> {
    let info = symbol.code_info.as_ref()?;
    Some(Line {
        file: info.to_path().to_string_lossy().into_owned(),
        line: info.line,
    })
}
