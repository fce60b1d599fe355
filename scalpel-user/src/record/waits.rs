//! Where threads waited: what the kernel kept of a waiting thread's stack becomes return addresses, and the bytes are dropped.
//!
//! It is done while the recording runs: of the stack's bytes nothing is ever written. Code is known from what the process has
//! mapped and from files that are held open, so that it does not matter whether the process still is.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::names::Names;
use crate::event::{Control, Event, Pid, Sample, StackCopy, flags};
use crate::symbol::MappedCode;
use crate::unwind::{At, End, Unwinder};

/// Largest executable file that is read for its unwind information, in bytes.
const LARGEST: u64 = 1 << 30;

/// Turns copies of stacks into frames.
#[derive(Default)]
pub(super) struct Waits {
    /// Of processes that have waited since their mappings changed.
    unwinders: FxHashMap<Pid, Unwinder>,
    /// By device and inode; `None` = it cannot be read.
    images: FxHashMap<(u64, u64), Option<Arc<[u8]>>>,
}

impl Waits {
    /// Keeps up with the processes.
    pub(super) fn control(&mut self, control: &Control) {
        match control {
            Control::Map { pid, .. }
            | Control::Exec { pid, .. }
            | Control::Exit {
                pid,
                process_ended: Some(_),
                ..
            } => drop(self.unwinders.remove(pid)),
            Control::Fork { .. } | Control::Exit { .. } => {}
        }
    }

    /// The sample with its frames, and a sample that stands for the waits that are only told by their sum.
    pub(super) fn unwound(&mut self, mut sample: Sample, names: &Names) -> Vec<Sample> {
        let Some(copy) = sample.copy.take() else {
            return vec![sample];
        };
        let mut told = Vec::new();
        if copy.short_waits > 0 {
            told.push(untold(&sample.event, &copy));
        }
        if sample.event.value > 0 {
            self.unwind(&mut sample, &copy, names);
            told.push(sample);
        }
        told
    }

    fn unwind(&mut self, sample: &mut Sample, copy: &StackCopy, names: &Names) {
        let pid = Pid(sample.event.pid);
        let images = &mut self.images;
        let unwinder = self
            .unwinders
            .entry(pid)
            .or_insert_with(|| unwinder(&names.code(pid), images));
        let at = At {
            ip: sample.event.site,
            sp: sample.event.frame,
            bp: copy.bp,
        };
        let walk = unwinder.walk(at, &mut |address| word(copy, at.sp, address));
        if walk.end != End::Root {
            sample.event.flags |= flags::STACK_CUT;
        }
        sample.user = walk.frames.iter().map(|frame| frame.address).collect();
    }
}

/// Waits that are told by their sum have no place.
fn untold(event: &Event, copy: &StackCopy) -> Sample {
    Sample {
        event: Event {
            value: copy.short_ns,
            seq: copy.short_waits,
            flags: flags::UNTOLD,
            site: 0,
            frame: 0,
            ..*event
        },
        user: Vec::new(),
        kernel: Vec::new(),
        copy: None,
    }
}

/// The 8 bytes at an address of the stack, if they were copied.
fn word(copy: &StackCopy, sp: u64, address: u64) -> Option<u64> {
    let at = usize::try_from(address.checked_sub(sp)?).ok()?;
    let bytes = copy.bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

fn unwinder(
    code: &[MappedCode],
    images: &mut FxHashMap<(u64, u64), Option<Arc<[u8]>>>,
) -> Unwinder {
    let mut unwinder = Unwinder::new();
    for mapped in code {
        let Ok(meta) = mapped.file.metadata() else {
            continue;
        };
        let image = images
            .entry((meta.dev(), meta.ino()))
            .or_insert_with(|| whole(&mapped.file, meta.len()));
        // What cannot be read is walked by frame pointers.
        if let Some(image) = image {
            let _by_frame_pointers = unwinder.add(&mapped.name, image, mapped.start, mapped.offset);
        }
    }
    unwinder
}

fn whole(file: &File, length: u64) -> Option<Arc<[u8]>> {
    let length = usize::try_from(length).ok()?;
    let mut bytes = vec![0; (length as u64 <= LARGEST).then_some(length)?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(value: u64, short_waits: u32) -> Sample {
        Sample {
            event: Event {
                time: 100,
                value,
                site: 0x1000,
                frame: 0x7000,
                ..Event::default()
            },
            user: vec![0x1000],
            kernel: Vec::new(),
            copy: Some(Box::new(StackCopy {
                // Nothing is known behind it.
                bp: 0x7f00,
                short_ns: 30,
                short_waits,
                bytes: vec![1; 16],
            })),
        }
    }

    #[test]
    fn short_waits_become_a_sample_without_a_place_and_no_byte_of_the_stack_stays() {
        let mut waits = Waits::default();
        let told = waits.unwound(wait(50, 2), &Names::new());
        assert!(told.iter().all(|sample| sample.copy.is_none()));
        let seen: Vec<_> = told
            .iter()
            .map(|sample| (sample.event.value, sample.event.seq, sample.user.clone()))
            .collect();
        assert_eq!(seen, [(30, 2, vec![]), (50, 0, vec![0x1000])]);
        assert_eq!(told[0].event.flags, flags::UNTOLD);
        assert_eq!(
            told[1].event.flags,
            flags::STACK_CUT,
            "nobody knows its code"
        );
        assert_eq!(waits.unwound(wait(50, 0), &Names::new()).len(), 1);
        assert_eq!(waits.unwound(wait(0, 2), &Names::new()).len(), 1);
    }

    #[test]
    fn words_outside_of_the_copy_are_not_known() {
        let copy = *wait(1, 0).copy.unwrap();
        assert_eq!(
            word(&copy, 0x7000, 0x7008),
            Some(u64::from_ne_bytes([1; 8]))
        );
        for address in [0x6fff, 0x7009, u64::MAX] {
            assert_eq!(word(&copy, 0x7000, address), None);
        }
    }
}
