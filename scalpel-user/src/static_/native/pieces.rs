//! Which code belongs to which function: its own, parts that were split off, further ranges, and inlined copies.

use rustc_hash::FxHashMap;

use super::Adding;
use super::dwarf::{Debug, Told};
use crate::catalog::{DefId, FoundBy, Kind, Native, Piece, PieceKind};
use crate::image::{ImageFunction, Part};

impl Adding<'_, '_> {
    /// All functions, those first that are no part of another.
    pub(super) fn functions(&mut self, debug: &Debug) {
        let mut by_name: FxHashMap<&str, DefId> = FxHashMap::default();
        let image = self.image;
        let ranges: FxHashMap<u64, u64> = debug
            .ranges
            .iter()
            .map(|&(start, _, first)| (start, first))
            .collect();
        let jumped_to = image.parts();
        let is_part = |index: usize, function: &ImageFunction| {
            let named = function.part == Part::Cold && !function.raw_name.is_empty();
            let unnamed = function.raw_name.is_empty()
                && (ranges.contains_key(&function.vaddr) || jumped_to.contains_key(&index));
            named || unnamed
        };
        for (index, function) in image.functions().iter().enumerate() {
            if is_part(index, function) {
                self.by_index.push(None);
                continue;
            }
            let id = self.function(function, debug);
            by_name.insert(&function.raw_name, id);
            self.by_address.insert(function.vaddr, id);
            self.by_index.push(Some(id));
        }
        for (index, function) in image.functions().iter().enumerate() {
            if self.by_index.get(index) != Some(&None) {
                continue;
            }
            let named = function.raw_name.split(".cold").next();
            let named = named.filter(|name| !name.is_empty());
            let told = ranges.get(&function.vaddr);
            let whole = named
                .and_then(|name| by_name.get(name).copied())
                .or_else(|| self.by_address.get(told?).copied())
                .or_else(|| {
                    let owner = jumped_to.get(&index)?;
                    self.by_index.get(*owner).copied().flatten()
                });
            let id = match whole {
                Some(whole) => {
                    self.part(whole, function);
                    whole
                }
                // Its function has another name, or none.
                None => self.function(function, debug),
            };
            if let Some(slot) = self.by_index.get_mut(index) {
                *slot = Some(id);
            }
        }
        self.ranges(debug);
    }

    fn part(&mut self, whole: DefId, function: &ImageFunction) {
        let kind = match function.part {
            Part::Cold => PieceKind::Cold,
            _ => PieceKind::Range,
        };
        self.piece(whole, kind, function.vaddr, function.end(), None);
    }

    fn piece(&mut self, of: DefId, kind: PieceKind, start: u64, end: u64, host: Option<DefId>) {
        self.catalog.piece(Piece {
            of,
            kind,
            address: start,
            file_offset: self.image.file_offset(start).unwrap_or_default(),
            size: end.saturating_sub(start),
            host,
        });
    }

    /// Further ranges at which no symbol and no unwind entry begins.
    fn ranges(&mut self, debug: &Debug) {
        for &(start, end, first) in &debug.ranges {
            let at = self.image.function_at(start);
            let begins = at.and_then(|at| self.image.functions().get(at));
            let of = self.by_address.get(&first).copied();
            if let Some(of) = of.filter(|_| begins.is_none_or(|it| it.vaddr != start)) {
                self.piece(of, PieceKind::Range, start, end, None);
            }
        }
    }

    /// Copies that the compiler put into other functions.
    pub(super) fn inlined(&mut self, debug: &Debug) {
        for copy in &debug.inlined {
            let own = copy.address.and_then(|at| self.by_address.get(&at));
            let of = match own {
                Some(&own) => own,
                None => self.only_inlined(&copy.told),
            };
            let host = self
                .image
                .function_at(copy.start)
                .and_then(|at| self.by_index.get(at).copied().flatten());
            self.piece(of, PieceKind::Inlined, copy.start, copy.end, host);
        }
    }

    fn only_inlined(&mut self, told: &Told) -> DefId {
        if let Some(&known) = self.inlined.get(told) {
            return known;
        }
        let (shown, _) = crate::image::display_name(&told.name);
        let native = Native {
            raw_name: told.name.to_string(),
            source: told.source.as_deref().map(str::to_owned),
            line: told.line,
            column: told.column,
            found_by: FoundBy::Dwarf,
            ..Native::default()
        };
        let id = self.definition(&shown, Kind::Native, native);
        self.inlined.insert(told.clone(), id);
        id
    }
}
