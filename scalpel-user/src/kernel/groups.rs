//! Which sites share a link: a few links, and the likely hot sites in small ones.
//!
//! A link cannot drop one of its sites: it is closed as a whole (about 60 ms) and attached anew. So the sites that
//! the breaker will probably drop stand in small groups, and all the others in few large ones. Pure.

use std::collections::BTreeMap;

/// Groups smaller than this are not split further for their heat: attaching costs more than it saves.
pub const SMALLEST_SPLIT: usize = 64;

/// Sites that can share a link: same file, programs and process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<K> {
    /// What its members have in common.
    pub key: K,
    /// Highest guess of heat among the members.
    pub heat: u8,
    /// Indices of the members.
    pub members: Vec<usize>,
}

/// Shares out `items` (key and guess of heat) into about `limit` groups, coldest group first.
///
/// Every item is in exactly one group, and a group has one key. There are at most `limit` groups, unless there are
/// more keys than that: then each key has one.
pub fn share_out<K: Ord + Clone>(items: &[(K, u8)], limit: usize) -> Vec<Group<K>> {
    let mut by_key: BTreeMap<&K, Vec<usize>> = BTreeMap::new();
    for (index, (key, _)) in items.iter().enumerate() {
        by_key.entry(key).or_default().push(index);
    }
    let sizes: Vec<usize> = by_key.values().map(Vec::len).collect();
    let mut groups: Vec<Group<K>> = by_key
        .into_iter()
        .zip(parts_per_key(&sizes, limit))
        .flat_map(|((key, members), parts)| split(key, members, parts, items))
        .collect();
    // Stable: groups of a key whose hottest members are alike stay in the order of their coldest.
    groups.sort_by_key(|group| group.heat);
    groups
}

/// How many groups each key gets: one, and its share of what is left.
fn parts_per_key(sizes: &[usize], limit: usize) -> Vec<usize> {
    let spare = limit.saturating_sub(sizes.len());
    let total: usize = sizes.iter().sum::<usize>().max(1);
    sizes
        .iter()
        .map(|&size| {
            (1 + spare * size / total)
                .min(size.div_ceil(SMALLEST_SPLIT))
                .max(1)
        })
        .collect()
}

/// Splits the members of one key, coldest first, into parts whose sizes fall linearly: with 8 parts the coldest
/// holds 8/36 of the members and the hottest 1/36.
fn split<K: Clone>(
    key: &K,
    mut members: Vec<usize>,
    parts: usize,
    items: &[(K, u8)],
) -> Vec<Group<K>> {
    let heat_of = |index: &usize| items.get(*index).map_or(0, |(_, heat)| *heat);
    members.sort_by_key(|index| heat_of(index));
    let weights = parts * (parts + 1) / 2;
    let total = members.len();
    let mut groups = Vec::with_capacity(parts);
    for (weight, left) in (1..=parts).rev().zip((0..parts).rev()) {
        let wanted = if left == 0 {
            members.len()
        } else {
            (total * weight / weights).min(members.len())
        };
        let rest = members.split_off(wanted);
        let heat = members.iter().map(heat_of).max().unwrap_or(0);
        let part = std::mem::replace(&mut members, rest);
        if !part.is_empty() {
            groups.push(Group {
                key: key.clone(),
                heat,
                members: part,
            });
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_site_is_in_exactly_one_group_and_bounds_hold(
            items in proptest::collection::vec((0u8..5, 0u8..=255), 0..3000),
            limit in 0usize..40,
        ) {
            let groups = share_out(&items, limit);
            let mut seen: Vec<usize> = groups.iter().flat_map(|group| group.members.clone()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..items.len()).collect::<Vec<_>>());
            let keys = items.iter().map(|(key, _)| key).collect::<std::collections::BTreeSet<_>>().len();
            prop_assert!(groups.len() <= limit.max(keys));
            for group in &groups {
                prop_assert!(!group.members.is_empty());
                for &member in &group.members {
                    prop_assert_eq!(items[member].0, group.key);
                    prop_assert!(items[member].1 <= group.heat);
                }
            }
            prop_assert!(groups.is_sorted_by_key(|group| group.heat));
        }

        #[test]
        fn within_a_key_no_colder_group_holds_a_hotter_site(
            heats in proptest::collection::vec(0u8..=255, 1..3000), limit in 1usize..40,
        ) {
            let items: Vec<((), u8)> = heats.iter().map(|&heat| ((), heat)).collect();
            let groups = share_out(&items, limit);
            for pair in groups.windows(2) {
                let coldest_of_next = pair[1].members.iter().map(|&member| heats[member]).min().unwrap();
                prop_assert!(pair[0].heat <= coldest_of_next);
            }
        }
    }

    #[test]
    fn a_large_image_gets_all_groups_and_the_hottest_is_the_smallest() {
        let items: Vec<((), u8)> = (0..78_000).map(|index| ((), (index % 200) as u8)).collect();
        let groups = share_out(&items, 32);
        assert_eq!(groups.len(), 32);
        assert!(groups[0].members.len() > 4_000);
        assert!(groups[31].members.len() < 500);
    }

    #[test]
    fn a_few_sites_share_one_link() {
        assert_eq!(share_out(&[((), 1), ((), 200), ((), 3)], 32).len(), 1);
    }
}
