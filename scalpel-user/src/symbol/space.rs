//! The address space of one process: which region an address lies in.

use std::collections::BTreeMap;

use super::modules::ModuleId;

/// What lies in a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// A file; its offset at the region's *original* start.
    File { module: ModuleId, offset: u64 },
    /// Memory without a file.
    Anonymous,
    /// The `[vdso]`.
    Vdso,
}

/// Regions that do not overlap, by first address.
#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    regions: BTreeMap<u64, (u64, Region)>,
}

impl Space {
    /// Maps `region` over `start..end`; what was there is cut back.
    pub(super) fn map(&mut self, start: u64, end: u64, region: Region) {
        if start >= end {
            return;
        }
        self.unmap(start, end);
        self.regions.insert(start, (end, region));
    }

    /// The region around `address`, and its first address.
    pub(super) fn at(&self, address: u64) -> Option<(u64, &Region)> {
        let (&start, (end, region)) = self.regions.range(..=address).next_back()?;
        (address < *end).then_some((start, region))
    }

    /// First address, file and offset of every region that has a file behind it.
    pub(super) fn files(&self) -> impl Iterator<Item = (u64, ModuleId, u64)> {
        self.regions
            .iter()
            .filter_map(|(&start, (_, region))| match *region {
                Region::File { module, offset } => Some((start, module, offset)),
                Region::Anonymous | Region::Vdso => None,
            })
    }

    fn unmap(&mut self, start: u64, end: u64) {
        let overlapping: Vec<u64> = self
            .regions
            .range(..end)
            .rev()
            .take_while(|(_, (region_end, _))| *region_end > start)
            .map(|(&region_start, _)| region_start)
            .collect();
        for region_start in overlapping {
            let Some((region_end, region)) = self.regions.remove(&region_start) else {
                continue;
            };
            if region_end > end {
                self.regions
                    .insert(end, (region_end, moved(&region, end - region_start)));
            }
            if region_start < start {
                self.regions.insert(region_start, (start, region));
            }
        }
    }
}

/// The same region, beginning `by` bytes later.
fn moved(region: &Region, by: u64) -> Region {
    match region {
        Region::File { module, offset } => Region::File {
            module: *module,
            offset: offset.wrapping_add(by),
        },
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(offset: u64) -> Region {
        Region::File {
            module: ModuleId(0),
            offset,
        }
    }

    fn check(space: &Space, address: u64, expect: Option<(u64, Region)>) {
        let found = space
            .at(address)
            .map(|(start, region)| (start, region.clone()));
        assert_eq!(found, expect, "{address:#x}");
    }

    #[test]
    fn a_later_mapping_cuts_earlier_ones_back() {
        let mut space = Space::default();
        space.map(0x1000, 0x5000, file(0));
        space.map(0x2000, 0x3000, Region::Anonymous);
        check(&space, 0xfff, None);
        check(&space, 0x1fff, Some((0x1000, file(0))));
        check(&space, 0x2000, Some((0x2000, Region::Anonymous)));
        check(&space, 0x3000, Some((0x3000, file(0x2000))));
        check(&space, 0x4fff, Some((0x3000, file(0x2000))));
        check(&space, 0x5000, None);
        space.map(0x0, 0x10000, Region::Vdso);
        check(&space, 0x2000, Some((0, Region::Vdso)));
        space.map(0x20, 0x20, file(0));
        check(&space, 0x20, Some((0, Region::Vdso)));
    }
}
