//! The functions around a few places of an image, as [`Image::parse`] would find them, at a fraction of its cost.
//!
//! Whoever names samples asks for some dozens of the hundreds of thousands of functions of a large file. Here names are
//! read of the symbols next to those places only, and frame rules nowhere else. Must find the very same functions: a function
//! has one name whether it was probed or sampled.

use super::debug_files::{self, NoDebugFiles};
use super::dynamic::Dynamic;
use super::elf::ElfFile;
use super::error::ImageError;
use super::functions::{self, ImageFunction, NameOrigin};
use super::symbols::{self, RawSymbol, SymbolType};
use super::unwind::Unwind;
use super::{Image, language, read_symbols};

/// Some functions of an image.
#[derive(Debug, Default)]
pub struct Around {
    /// They, by rising address.
    pub functions: Vec<ImageFunction>,
    /// As [`Image::build_id`].
    pub build_id: String,
    /// The image has no function at all.
    pub is_stripped: bool,
}

impl Around {
    /// For each offset of the file the function that begins there or last before it.
    pub fn parse(data: &[u8], path: &str, offsets: &[u64]) -> Result<Self, ImageError> {
        let elf = ElfFile::parse(data)?;
        // Go's own table has what symbols do not tell.
        if language::is_go(&elf, &[]) || !elf.segments.iter().any(|segment| segment.executable) {
            let image = Image::parse(data, path, &NoDebugFiles)?;
            return Ok(Self {
                build_id: image.build_id(),
                is_stripped: image.functions.is_empty(),
                functions: before(image.functions, offsets),
            });
        }
        let mut wanted: Vec<u64> = offsets.iter().filter_map(|at| address(&elf, *at)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut unwind = Unwind::parse_at(&elf, &wanted);
        let mut dynamic = Dynamic::without_slots(&elf);
        let (starts, symbols) = near(&elf, &dynamic, &unwind, path, &wanted);
        let is_stripped = starts.is_none() && unwind.fdes.is_empty();
        let starts = starts.unwrap_or_default();
        let kept = around(&unwind, &wanted);
        unwind.fdes.retain(|fde| {
            kept.binary_search(&fde.start).is_ok() || starts.binary_search(&fde.start).is_ok()
        });
        if unwind
            .fdes
            .iter()
            .any(|fde| starts.binary_search(&fde.start).is_err())
        {
            // What has no symbol may be an import stub.
            dynamic = Dynamic::parse(&elf);
        }
        let module = path.rsplit('/').next().unwrap_or(path);
        let language = language::of_file(&elf, false);
        let found = functions::collect(&elf, &dynamic, symbols, &unwind, module, language);
        Ok(Self {
            functions: before(found, offsets),
            build_id: elf.build_id().map(debug_files::hex).unwrap_or_default(),
            is_stripped,
        })
    }
}

/// Link-time address of an offset of the file.
fn address(elf: &ElfFile<'_>, offset: u64) -> Option<u64> {
    elf.segments
        .iter()
        .filter(|segment| segment.executable)
        .find_map(|segment| {
            let vaddr = segment
                .vaddr
                .checked_add(offset.checked_sub(segment.offset)?)?;
            segment.holds(vaddr).then_some(vaddr)
        })
}

/// Symbols next to the wanted addresses, and next to the unwind entries around these; with the addresses of the symbols,
/// sorted, `None` = the image has none.
fn near(
    elf: &ElfFile<'_>,
    dynamic: &Dynamic<'_>,
    unwind: &Unwind,
    path: &str,
    wanted: &[u64],
) -> (Option<Vec<u64>>, Vec<RawSymbol>) {
    let is_function = |vaddr: u64, kind: SymbolType| {
        let begins = || {
            unwind
                .fdes
                .binary_search_by_key(&vaddr, |fde| fde.start)
                .is_ok()
        };
        elf.is_code(vaddr) && (kind != SymbolType::Untyped || begins())
    };
    let has_symtab = symbols::has_symtab(elf);
    // What is packed or elsewhere is read once, and whole: it is small.
    let mut whole = Vec::new();
    let mut all: Vec<u64> = if has_symtab {
        let both = symbols::addresses(elf)
            .chain(dynamic.raw_symbols().iter().filter_map(symbols::address));
        both.filter(|(vaddr, kind)| is_function(*vaddr, *kind))
            .map(|(vaddr, _)| vaddr)
            .collect()
    } else {
        whole = read_symbols(elf, dynamic, path, &NoDebugFiles);
        let functions = whole
            .iter()
            .filter(|symbol| is_function(symbol.vaddr, symbol.kind));
        functions.map(|symbol| symbol.vaddr).collect()
    };
    all.sort_unstable();
    all.dedup();
    let mut needed = Vec::new();
    for anchor in wanted.iter().copied().chain(around(unwind, wanted)) {
        let after = all.partition_point(|vaddr| *vaddr <= anchor);
        needed.extend(after.checked_sub(1).and_then(|at| all.get(at)));
        needed.extend(all.get(after));
    }
    needed.sort_unstable();
    needed.dedup();
    let is_needed = |vaddr: u64| needed.binary_search(&vaddr).is_ok();
    let symbols = if has_symtab {
        let mut found = Vec::new();
        symbols::read_symtab(elf, NameOrigin::Symtab, &is_needed, &mut found);
        symbols::read_dynsym(elf, dynamic, &is_needed, &mut found);
        found
    } else {
        whole.retain(|symbol| is_needed(symbol.vaddr));
        whole
    };
    ((!all.is_empty()).then_some(needed), symbols)
}

/// Where the unwind entries begin that cover the wanted addresses, and the next ones; sorted.
fn around(unwind: &Unwind, wanted: &[u64]) -> Vec<u64> {
    let mut starts = Vec::new();
    for vaddr in wanted {
        let after = unwind.fdes.partition_point(|fde| fde.start <= *vaddr);
        let last = after.checked_sub(1).and_then(|at| unwind.fdes.get(at));
        starts.extend(
            last.into_iter()
                .chain(unwind.fdes.get(after))
                .map(|fde| fde.start),
        );
    }
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// Of functions those that begin last before one of the offsets.
fn before(functions: Vec<ImageFunction>, offsets: &[u64]) -> Vec<ImageFunction> {
    let mut starts: Vec<(u64, usize)> = functions
        .iter()
        .enumerate()
        .map(|(index, function)| (function.file_offset, index))
        .collect();
    starts.sort_unstable();
    starts.dedup_by_key(|(start, _)| *start);
    let mut is_one = vec![false; functions.len()];
    for offset in offsets {
        let after = starts.partition_point(|(start, _)| start <= offset);
        let last = after.checked_sub(1).and_then(|at| starts.get(at));
        if let Some(is_one) = last.and_then(|(_, index)| is_one.get_mut(*index)) {
            *is_one = true;
        }
    }
    let kept = functions.into_iter().zip(is_one);
    kept.filter(|(_, is_one)| *is_one)
        .map(|(function, _)| function)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{Language, UnknownReason};

    type Told = (String, u64, u64, Option<UnknownReason>, Language);

    fn told(functions: &[ImageFunction], offset: u64) -> Option<Told> {
        let after = functions.partition_point(|one| one.file_offset <= offset);
        let one = functions.get(after.checked_sub(1)?)?;
        let name = one.name().to_owned();
        let is_it = offset - one.file_offset < one.size;
        is_it.then(|| {
            (
                name,
                one.file_offset,
                one.size,
                one.unknown.clone(),
                one.language,
            )
        })
    }

    /// Of some functions, in their middle; around nothing; and of all.
    fn check(path: &str) {
        let data = std::fs::read(path).unwrap();
        let image = Image::parse(&data, path, &NoDebugFiles).unwrap();
        let mut all = image.into_functions();
        all.sort_by_key(|one| one.file_offset);
        all.dedup_by_key(|one| one.file_offset);
        for (step, first) in [(97, 5), (3, 0), (1, 0)] {
            let some = all.iter().skip(first).step_by(step).take(5_000);
            let mut offsets: Vec<u64> = some.map(|one| one.file_offset + one.size / 2).collect();
            offsets.extend([0, u64::MAX]);
            let mut few = Around::parse(&data, path, &offsets).unwrap();
            few.functions.sort_by_key(|one| one.file_offset);
            assert!(!few.is_stripped);
            for offset in offsets {
                let expect = told(&all, offset);
                assert_eq!(told(&few.functions, offset), expect, "{path} {offset:#x}");
            }
        }
    }

    #[test]
    fn a_few_functions_are_the_same_as_all() {
        check(&std::env::current_exe().unwrap().to_string_lossy());
        // With symbols, stripped, static, assembly: whatever this host has.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut libraries: Vec<&str> = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .collect();
        libraries.retain(|path| path.contains(".so"));
        libraries.dedup();
        assert!(!libraries.is_empty());
        for path in libraries.into_iter().chain(["/bin/sh", "/bin/ls"]) {
            check(path);
        }
    }
}
