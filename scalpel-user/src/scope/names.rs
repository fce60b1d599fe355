//! Names for the instructions that ran: functions and lines of mapped files, compiled functions, the vDSO.

use std::collections::BTreeMap;
use std::path::PathBuf;

use scalpel_scope::symbol::{Resolver, Symbol};

use super::function::jitdump;
use crate::event::Pid;
use crate::function::{FunctionInfo, UnknownReason};
use crate::survey::ImageReader;
use crate::symbol::{self, JitFunction, Symbolizer, jit_functions};
use crate::target::{Backing, MappedImage, Mapping, Process};

/// What is mapped in the process, with the files held open: so that names are found when it has ended.
pub(super) struct Names {
    symbolizer: Symbolizer,
    pid: Pid,
    maps: Vec<Mapping>,
    images: Vec<MappedImage>,
    jit: BTreeMap<u64, JitFunction>,
}

impl Names {
    pub(super) fn new(process: &Process) -> Self {
        Self {
            symbolizer: Symbolizer::new(Box::new(ImageReader)),
            pid: process.pid(),
            maps: Vec::new(),
            images: Vec::new(),
            jit: BTreeMap::new(),
        }
    }

    /// Takes over what the process has mapped now, if it still has anything.
    pub(super) fn refresh(&mut self, process: &Process) {
        let maps = process.maps().unwrap_or_default();
        if maps.is_empty() {
            return;
        }
        if maps != self.maps {
            self.images = process.images().unwrap_or_default();
            self.symbolizer.exec(self.pid);
            for map in maps.iter().filter(|map| map.executable) {
                let mapping = self.mapping(map);
                self.symbolizer.map(self.pid, mapping);
            }
        }
        let inner = process.status().unwrap_or_default().namespace_pids;
        let inner = inner.last().copied().map_or(self.pid, Pid);
        let dump = jitdump(process, &maps);
        for function in jit_functions(self.pid, inner, dump.as_deref()) {
            self.jit.insert(function.start, function);
        }
        self.maps = maps;
    }

    fn mapping(&self, map: &Mapping) -> symbol::Mapping {
        let backing = match &map.backing {
            Backing::File { path, id, .. } => {
                let image = self.images.iter().find(|image| image.id == *id);
                let file = image.map(|image| image.file.clone());
                let gone = |error: String| UnknownReason::FileGone(error);
                let file = match file {
                    Some(Ok(file)) => Ok(file),
                    Some(Err(error)) => Err(gone(error.to_string())),
                    None => Err(gone(String::new())),
                };
                symbol::Backing::File(path.clone(), file)
            }
            Backing::Kernel { name } if name == "[vdso]" => symbol::Backing::Vdso,
            Backing::Kernel { .. } | Backing::Anonymous { .. } => symbol::Backing::Anonymous,
        };
        symbol::Mapping {
            start: map.start.0,
            end: map.end.0,
            offset: map.offset,
            backing,
        }
    }

    fn map_of(&self, addr: u64) -> Option<&Mapping> {
        self.maps.iter().find(|map| map.contains(addr))
    }

    fn compiled(&self, addr: u64) -> Option<Symbol> {
        let (_, function) = self.jit.range(..=addr).next_back()?;
        (addr < function.end).then(|| Symbol {
            name: function.info.name.clone(),
            offset: addr - function.start,
            size: function.end - function.start,
            line: place(&function.info),
        })
    }

    /// The source line of one instruction.
    fn line(&mut self, file_offset: u64, map: &Mapping) -> Option<String> {
        let Backing::File { id, .. } = &map.backing else {
            return None;
        };
        let image = self.images.iter().find(|image| image.id == *id)?;
        let path: PathBuf = image.held_path()?;
        let (file, line) = self.symbolizer.line(&path, file_offset)?;
        Some(line.map_or_else(|| file.clone(), |line| format!("{file}:{line}")))
    }
}

impl Resolver for Names {
    fn resolve(&mut self, addr: u64) -> Option<Symbol> {
        let map = self.map_of(addr)?.clone();
        let is_file = matches!(map.backing, Backing::File { .. });
        if !is_file && let Some(symbol) = self.compiled(addr) {
            return Some(symbol);
        }
        let named = self.symbolizer.resolve(self.pid, &[addr]).pop()?;
        let info = named.ok()?;
        let file_offset = addr - map.start.0 + map.offset;
        let offset = if is_file {
            file_offset.saturating_sub(info.file_offset)
        } else {
            0
        };
        Some(Symbol {
            name: info.name.clone(),
            offset,
            size: info.size,
            line: self.line(file_offset, &map).or_else(|| place(&info)),
        })
    }
}

fn place(info: &FunctionInfo) -> Option<String> {
    let file = info.file.as_ref()?;
    Some(
        info.line
            .map_or_else(|| file.clone(), |line| format!("{file}:{line}")),
    )
}
