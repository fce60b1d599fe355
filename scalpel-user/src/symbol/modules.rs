//! The files that are mapped anywhere, each once, with their functions by file offset.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Reason, Symbolized, Symbolizer};
use rustc_hash::FxHashMap;

use super::{FunctionReader, Named};
use crate::function::{ExitStrategy, FunctionInfo, SourcePlace, UnknownReason};

/// A file, by the order in which it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ModuleId(pub(super) usize);

#[derive(Debug)]
struct Module {
    path: PathBuf,
    file: Result<Arc<File>, UnknownReason>,
    /// Where the file can be opened from, now and later.
    readable: Option<PathBuf>,
    functions: Functions,
}

#[derive(Debug)]
enum Functions {
    Unread,
    /// By file offset, no two alike.
    Known(Vec<Arc<FunctionInfo>>),
    Few(Around),
    Unreadable(UnknownReason),
    /// The reader could not read the file: blazesym is asked.
    Foreign {
        build_id: String,
    },
}

/// The functions around a few offsets.
#[derive(Debug)]
struct Around {
    /// By rising number.
    offsets: Vec<u64>,
    /// As those of all.
    functions: Vec<Arc<FunctionInfo>>,
    is_stripped: bool,
}

impl Around {
    /// `None` = nobody asked for that one.
    fn look_up(&self, file_offset: u64) -> Option<Named> {
        match around(&self.functions, file_offset) {
            Ok(function) => Some(Ok(function)),
            Err(_) if self.is_stripped => Some(Err(UnknownReason::Stripped)),
            Err(_) => {
                let asked = self.offsets.binary_search(&file_offset).is_ok();
                asked.then_some(Err(UnknownReason::NoSymbol))
            }
        }
    }
}

/// Identity of a module: device and inode, or the path where there is no file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    File(u64, u64),
    Path(PathBuf),
}

/// All modules.
#[derive(Default)]
pub(super) struct Modules {
    modules: Vec<Module>,
    by_key: FxHashMap<Key, ModuleId>,
    foreign: Option<Symbolizer>,
}

impl Modules {
    /// The module of this file.
    pub(super) fn add(
        &mut self,
        path: PathBuf,
        file: Result<Arc<File>, UnknownReason>,
    ) -> ModuleId {
        let meta = file.as_ref().ok().and_then(|file| file.metadata().ok());
        let key = meta.map_or_else(
            || Key::Path(path.clone()),
            |meta| Key::File(meta.dev(), meta.ino()),
        );
        *self.by_key.entry(key).or_insert_with(|| {
            let readable = file.as_deref().ok().map(|file| readable_path(&path, file));
            self.modules.push(Module {
                path,
                file,
                readable,
                functions: Functions::Unread,
            });
            ModuleId(self.modules.len() - 1)
        })
    }

    /// Path and file of a module that could be opened.
    pub(super) fn file(&self, module: ModuleId) -> Option<(&Path, &Arc<File>)> {
        let module = self.modules.get(module.0)?;
        Some((&module.path, module.file.as_ref().ok()?))
    }

    /// Where the module can be opened.
    pub(super) fn readable_path(&self, module: ModuleId) -> Option<&Path> {
        self.modules.get(module.0)?.readable.as_deref()
    }

    /// Reads no more of a file that was not read yet than what is around these offsets, which rise.
    pub(super) fn read_around(
        &mut self,
        id: ModuleId,
        offsets: Vec<u64>,
        reader: &dyn FunctionReader,
    ) {
        let Some(module) = self.modules.get_mut(id.0) else {
            return;
        };
        let (Ok(file), Functions::Unread) = (&module.file, &module.functions) else {
            return;
        };
        module.functions = match reader.functions_at(&module.path, file, &offsets) {
            Ok(Some(few)) => Functions::Few(Around {
                offsets,
                functions: by_offset(few.functions),
                is_stripped: few.is_stripped,
            }),
            Ok(None) => foreign(module.readable.as_deref()),
            Err(reason) => Functions::Unreadable(reason),
        };
    }

    /// The function around an offset of the file.
    pub(super) fn look_up(
        &mut self,
        id: ModuleId,
        file_offset: u64,
        reader: &dyn FunctionReader,
    ) -> Named {
        let module = self.modules.get_mut(id.0).ok_or(UnknownReason::Unmapped)?;
        let file = module.file.as_ref().map_err(Clone::clone)?;
        if let Functions::Few(few) = &module.functions
            && let Some(named) = few.look_up(file_offset)
        {
            return named;
        }
        if matches!(module.functions, Functions::Unread | Functions::Few(_)) {
            module.functions = read(&module.path, file, module.readable.as_deref(), reader);
        }
        match &module.functions {
            Functions::Known(functions) => around(functions, file_offset),
            Functions::Foreign { build_id } => {
                let foreign = self.foreign.get_or_insert_with(without_lines);
                ask(foreign, module, build_id, file_offset, reader)
            }
            Functions::Unreadable(reason) => Err(reason.clone()),
            Functions::Unread | Functions::Few(_) => Err(UnknownReason::NoSymbol),
        }
    }

    /// The function of this symbol, if the module has one and only one.
    pub(super) fn named(&self, id: ModuleId, raw_name: &str) -> Option<Arc<FunctionInfo>> {
        let Functions::Known(functions) = &self.modules.get(id.0)?.functions else {
            return None;
        };
        let mut all = functions
            .iter()
            .filter(|function| function.raw_name == raw_name);
        all.next().filter(|_| all.next().is_none()).map(Arc::clone)
    }

    /// Puts a function in the place of the one with its offset, for the next question.
    pub(super) fn replace(&mut self, id: ModuleId, info: FunctionInfo) -> Arc<FunctionInfo> {
        let info = Arc::new(info);
        if let Some(Module {
            functions: Functions::Known(functions),
            ..
        }) = self.modules.get_mut(id.0)
            && let Ok(at) =
                functions.binary_search_by_key(&info.file_offset, |known| known.file_offset)
            && let Some(slot) = functions.get_mut(at)
        {
            *slot = Arc::clone(&info);
        }
        info
    }
}

/// The path itself where it still leads to the file (debug files are looked for beside it), else our descriptor.
fn readable_path(path: &Path, file: &File) -> PathBuf {
    let id = |meta: fs::Metadata| (meta.dev(), meta.ino());
    match (fs::metadata(path).map(id), file.metadata().map(id)) {
        (Ok(ours), Ok(theirs)) if ours == theirs => path.to_owned(),
        _ => format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
    }
}

fn read(
    path: &Path,
    file: &File,
    readable: Option<&Path>,
    reader: &dyn FunctionReader,
) -> Functions {
    match reader.functions(path, file) {
        Some(functions) => Functions::Known(by_offset(functions)),
        None => foreign(readable),
    }
}

fn by_offset(functions: Vec<FunctionInfo>) -> Vec<Arc<FunctionInfo>> {
    let mut functions: Vec<_> = functions.into_iter().map(Arc::new).collect();
    functions.sort_by_key(|function| function.file_offset);
    functions.dedup_by_key(|function| function.file_offset);
    functions
}

fn foreign(readable: Option<&Path>) -> Functions {
    let build_id = readable.and_then(|path| read_elf_build_id(path).ok().flatten());
    Functions::Foreign {
        build_id: build_id.map(|id| hex(&id)).unwrap_or_default(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn around(functions: &[Arc<FunctionInfo>], file_offset: u64) -> Named {
    let after = functions.partition_point(|function| function.file_offset <= file_offset);
    let last = after.checked_sub(1).and_then(|at| functions.get(at));
    match last {
        Some(function)
            if function.size == 0 || file_offset - function.file_offset < function.size =>
        {
            Ok(Arc::clone(function))
        }
        _ if functions.is_empty() => Err(UnknownReason::Stripped),
        _ => Err(UnknownReason::NoSymbol),
    }
}

fn without_lines() -> Symbolizer {
    Symbolizer::builder()
        .enable_code_info(false)
        .enable_inlined_fns(false)
        .enable_demangling(false)
        .build()
}

fn ask(
    symbolizer: &Symbolizer,
    module: &Module,
    build_id: &str,
    file_offset: u64,
    reader: &dyn FunctionReader,
) -> Named {
    let path = module.readable.as_deref().unwrap_or(&module.path);
    let mut elf = Elf::new(path);
    elf.debug_syms = false;
    let answer = symbolizer
        .symbolize_single(&Source::Elf(elf), Input::FileOffset(file_offset))
        .map_err(|error| UnknownReason::BadFile(error.to_string()))?;
    let symbol = match answer {
        Symbolized::Sym(symbol) => symbol,
        Symbolized::Unknown(Reason::MissingSyms) => return Err(UnknownReason::Stripped),
        Symbolized::Unknown(_) => return Err(UnknownReason::NoSymbol),
    };
    let (name, language) = reader.display(&symbol.name);
    Ok(Arc::new(FunctionInfo {
        name,
        raw_name: symbol.name.into_owned(),
        module: module
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        path: module.path.to_string_lossy().into_owned(),
        file: None,
        line: None,
        language,
        build_id: build_id.to_owned(),
        file_offset: file_offset.saturating_sub(symbol.offset as u64),
        size: symbol.size.unwrap_or(0) as u64,
        site_delta: 0,
        exit: ExitStrategy::None,
        exit_reason: String::new(),
        unknown: None,
        ordinal: 0,
        place: SourcePlace::default(),
    }))
}
