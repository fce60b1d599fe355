//! The first pass over a `perf.data`: which traces it holds, and everything that tells whose they are.
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use super::bytes::{Bytes, Record};
use super::layout::{Attr, Layout, build_id};
use super::pieces::Pieces;
use super::records::{self, Ending, Raw, Records, SampleId};
use super::sample::{self, Sample};
use crate::decode::clock::Conversion;
use crate::decode::files::Identity;
use crate::decode::tasks::{Change, Mapping};
use crate::pt::Processor;
use crate::trace::Reasons;

/// What `perf` says of Intel PT in `AUXTRACE_INFO`.
const INTEL_PT: u32 = 1;
/// A record of code: what is not code has the flag of data.
const MISC_DATA: u16 = 1 << 13;
const MISC_BUILD_ID: u16 = 1 << 14;
const MISC_EXEC: u16 = 1 << 13;
const MISC_SWITCH_OUT: u16 = 1 << 13;
const PROT_EXEC: u32 = 4;
const AUX_TRUNCATED: u64 = 1;
const NOBODY: u32 = u32::MAX;
/// The word of `AUXTRACE_INFO` that tells whether buffers are of processors.
const PER_CPU: usize = 9;

/// A piece of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) raw: Raw,
    /// Its place in the stream that the buffer saw.
    pub(super) offset: u64,
}

/// One buffer's trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) tid: Option<u32>,
    pub(super) cpu: Option<u32>,
    pub(super) chunks: Vec<Chunk>,
    /// Its chunks are pieces that samples hold.
    pub(super) sampled: bool,
}

/// A place where the kernel dropped trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drop {
    pub(super) tid: Option<u32>,
    pub(super) cpu: Option<u32>,
    pub(super) offset: u64,
}

/// What the first pass found.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) file: RefCell<File>,
    pub(super) layout: Layout,
    /// By the number of the buffer, 32 bits in the file; pieces of samples have numbers behind those.
    pub(super) traces: BTreeMap<u64, Trace>,
    pub(super) drops: Vec<Drop>,
    /// In the order of time, in ns.
    pub(super) changes: Vec<(u64, Change)>,
    /// By processor: time in ns, thread.
    pub(super) switches: HashMap<u32, Vec<(u64, u32)>>,
    pub(super) conversion: Option<Conversion>,
    /// Words of `AUXTRACE_INFO`.
    pub(super) info: Vec<u64>,
    pub(super) kind: Option<u32>,
    pub(super) reasons: Reasons,
    samples: u64,
    pieces: Pieces,
}

impl Scan {
    /// Reads all records but the traces themselves.
    pub(super) fn of(file: File, layout: Layout) -> Result<Self, String> {
        let own = file.try_clone().map_err(|error| error.to_string())?;
        let records = Records::new(file, layout.records).map_err(|error| error.to_string())?;
        let mut scan = Self {
            file: RefCell::new(own),
            layout,
            traces: BTreeMap::new(),
            drops: Vec::new(),
            changes: Vec::new(),
            switches: HashMap::new(),
            conversion: None,
            info: Vec::new(),
            kind: None,
            reasons: Reasons::NONE,
            samples: 0,
            pieces: Pieces::default(),
        };
        let mut records = records;
        if records.each(|record, raw| scan.see(record, raw))? == Ending::Cut {
            scan.reasons = scan.reasons.with(Reasons::BUFFER_FULL);
        }
        let free = scan.traces.keys().max().map_or(0, |last| last + 1);
        let pieces = std::mem::take(&mut scan.pieces);
        scan.traces.extend((free..).zip(pieces.traces()));
        // Stable: of records of one time the first comes first.
        scan.changes.sort_by_key(|(time, _)| *time);
        Ok(scan)
    }

    pub(super) fn is_intel_pt(&self) -> bool {
        self.kind == Some(INTEL_PT) && !self.traces.is_empty()
    }

    pub(super) fn has_branches(&self) -> bool {
        let branches = |attr: &Attr| attr.sample_type & sample::BRANCH_STACK != 0;
        self.samples > 0 && self.layout.attrs.iter().any(branches)
    }

    /// Appends bytes of the file.
    pub(super) fn read(&self, at: u64, len: u64, to: &mut Vec<u8>) -> Result<(), String> {
        let mut file = self.file.borrow_mut();
        let read = file
            .seek(SeekFrom::Start(at))
            .and_then(|_| file.by_ref().take(len).read_to_end(to));
        read.map(|_| ()).map_err(|error| error.to_string())
    }

    /// The processor that recorded it: its errata are worked around.
    pub(super) fn processor(&self) -> Option<Processor> {
        let mut words = self.layout.cpuid.as_deref()?.split(',');
        (words.next()? == "GenuineIntel").then_some(())?;
        Some(Processor {
            family: words.next()?.parse().ok()?,
            model: words.next()?.parse().ok()?,
            stepping: words.next()?.parse().ok()?,
        })
    }

    fn see(&mut self, record: Record<'_>, raw: Raw) -> Result<(), String> {
        let body = record.body;
        match record.kind {
            records::SAMPLE => self.sample(body, raw)?,
            records::MMAP => self.mmap(record).unwrap_or_default(),
            records::MMAP2 => self.mmap2(record).unwrap_or_default(),
            records::COMM => self.comm(record).unwrap_or_default(),
            records::FORK => self.fork(body).unwrap_or_default(),
            records::ITRACE_START => self.started(body).unwrap_or_default(),
            records::SWITCH_CPU_WIDE => self.switch(record),
            records::AUX => self.aux(body).unwrap_or_default(),
            records::LOST | records::LOST_SAMPLES => {
                self.reasons = self.reasons.with(Reasons::SIDEBAND);
            }
            records::AUXTRACE_INFO => self.auxtrace_info(body).unwrap_or_default(),
            records::AUXTRACE => self.auxtrace(body, raw).unwrap_or_default(),
            records::TIME_CONV => self.time_conv(body).unwrap_or_default(),
            records::HEADER_ATTR => self.attr(body).unwrap_or_default(),
            records::BUILD_ID => {
                self.layout.build_ids.extend(build_id(record.misc, body));
            }
            _ => {}
        }
        Ok(())
    }

    /// A sample may hold a piece of the trace.
    fn sample(&mut self, body: Bytes<'_>, raw: Raw) -> Result<(), String> {
        self.samples += 1;
        let attr = sample::attr(&self.layout.attrs, body);
        let Some(attr) = attr.filter(|attr| attr.sample_type & sample::AUX != 0) else {
            return Ok(());
        };
        let Some(sample) = Sample::read(attr, body) else {
            self.reasons = self.reasons.with(Reasons::DECODE);
            return Ok(());
        };
        let Some((len, left)) = sample.aux.filter(|(len, _)| *len > 0) else {
            return Ok(());
        };
        self.reasons = self.reasons.with(Reasons::SAMPLED);
        if raw == Raw::NOWHERE {
            // Its bytes are not in the file as they are.
            self.reasons = self.reasons.with(Reasons::GAP);
            return Ok(());
        }
        let of_cpu = self.info.get(PER_CPU).copied().unwrap_or(0) != 0;
        let owner = if of_cpu {
            (Some(sample.cpu), None)
        } else {
            (None, Some(sample.tid))
        };
        let at = raw.at.saturating_sub(left);
        let mut bytes = Vec::new();
        self.read(at, len, &mut bytes)?;
        self.pieces.add(owner, Raw { at, len }, bytes);
        Ok(())
    }

    fn id(&self, body: Bytes<'_>) -> SampleId {
        let attr = self.layout.attrs.first();
        attr.map_or_else(SampleId::default, |attr| SampleId::read(attr, body))
    }

    fn change(&mut self, body: Bytes<'_>, change: Change) {
        let time = self.id(body).time.unwrap_or(0);
        self.changes.push((time, change));
    }

    fn mmap(&mut self, record: Record<'_>) -> Option<()> {
        let mut body = record.body;
        let (pid, _) = (body.u32()?, body.u32()?);
        let (addr, len, offset) = (body.u64()?, body.u64()?, body.u64()?);
        let path = PathBuf::from(body.text());
        if record.misc & MISC_DATA == 0 {
            self.mapped(
                record.body,
                pid,
                (addr, len, offset),
                path,
                Identity::default(),
            );
        }
        Some(())
    }

    fn mmap2(&mut self, record: Record<'_>) -> Option<()> {
        let mut body = record.body;
        let (pid, _) = (body.u32()?, body.u32()?);
        let (addr, len, offset) = (body.u64()?, body.u64()?, body.u64()?);
        let mut identity = Identity::default();
        let who = body.take(24)?;
        let mut words = Bytes::new(who);
        if record.misc & MISC_BUILD_ID != 0 {
            let len = usize::from(*who.first()?).min(20);
            identity.build_id = Some(who.get(4..4 + len)?.to_vec());
        } else {
            identity.inode = Some((words.u32()?, words.u32()?, words.u64()?));
        }
        let (access, _) = (body.u32()?, body.u32()?);
        if access & PROT_EXEC != 0 {
            let path = PathBuf::from(body.text());
            self.mapped(record.body, pid, (addr, len, offset), path, identity);
        }
        Some(())
    }

    fn mapped(
        &mut self,
        body: Bytes<'_>,
        pid: u32,
        (addr, len, offset): (u64, u64, u64),
        path: PathBuf,
        mut identity: Identity,
    ) {
        if identity.build_id.is_none() {
            identity.build_id = self.layout.build_ids.get(&path).cloned();
        }
        let mapping = Mapping {
            pid,
            addr,
            len,
            offset,
            path,
            identity,
        };
        self.change(body, Change::Map(mapping));
    }

    fn comm(&mut self, record: Record<'_>) -> Option<()> {
        let mut body = record.body;
        let (pid, tid) = (body.u32()?, body.u32()?);
        if record.misc & MISC_EXEC != 0 {
            self.change(record.body, Change::Exec(pid));
        }
        self.change(record.body, Change::Thread(pid, tid));
        Some(())
    }

    fn fork(&mut self, whole: Bytes<'_>) -> Option<()> {
        let mut body = whole;
        let (pid, parent, tid, _) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
        let time = body.u64()?;
        self.changes.push((time, Change::Fork(parent, pid, tid)));
        Some(())
    }

    fn started(&mut self, whole: Bytes<'_>) -> Option<()> {
        let mut body = whole;
        let (pid, tid) = (body.u32()?, body.u32()?);
        self.change(whole, Change::Thread(pid, tid));
        let id = self.id(whole);
        if let Some(cpu) = id.cpu {
            let switches = self.switches.entry(cpu).or_default();
            switches.push((id.time.unwrap_or(0), tid));
        }
        Some(())
    }

    fn switch(&mut self, record: Record<'_>) {
        let id = self.id(record.body);
        if record.misc & MISC_SWITCH_OUT == 0
            && let (Some(cpu), Some(tid)) = (id.cpu, id.tid)
        {
            let switches = self.switches.entry(cpu).or_default();
            switches.push((id.time.unwrap_or(0), tid));
            if let Some(pid) = id.pid.filter(|pid| *pid != NOBODY) {
                self.change(record.body, Change::Thread(pid, tid));
            }
        }
    }

    fn aux(&mut self, whole: Bytes<'_>) -> Option<()> {
        let mut body = whole;
        let (offset, size, flags) = (body.u64()?, body.u64()?, body.u64()?);
        if flags & AUX_TRUNCATED != 0 {
            let id = self.id(whole);
            self.reasons = self.reasons.with(Reasons::BUFFER_FULL);
            self.drops.push(Drop {
                tid: id.tid,
                cpu: id.cpu,
                offset: offset.saturating_add(size),
            });
        }
        Some(())
    }

    fn auxtrace_info(&mut self, mut body: Bytes<'_>) -> Option<()> {
        self.kind = Some(body.u32()?);
        body.u32()?;
        while let Some(word) = body.u64() {
            self.info.push(word);
        }
        if self.kind == Some(INTEL_PT)
            && let [_, shift, multiplier, zero, ..] = *self.info.as_slice()
        {
            self.conversion = Some(Conversion {
                shift,
                multiplier,
                zero,
            });
        }
        Some(())
    }

    fn auxtrace(&mut self, mut body: Bytes<'_>, raw: Raw) -> Option<()> {
        body.u64()?;
        let (offset, _) = (body.u64()?, body.u64()?);
        let (index, tid, cpu) = (body.u32()?, body.u32()?, body.u32()?);
        let some = |number: u32| Some(number).filter(|number| *number != NOBODY);
        // More than the file has may be claimed: that it is cut is told at its end.
        let left = self.layout.records.1.saturating_sub(raw.at);
        let raw = Raw {
            len: raw.len.min(left),
            ..raw
        };
        let trace = self.traces.entry(u64::from(index)).or_default();
        trace.tid = some(tid);
        trace.cpu = some(cpu);
        trace.chunks.push(Chunk { raw, offset });
        Some(())
    }

    fn time_conv(&mut self, mut body: Bytes<'_>) -> Option<()> {
        let (shift, multiplier, zero) = (body.u64()?, body.u64()?, body.u64()?);
        self.conversion.get_or_insert(Conversion {
            shift,
            multiplier,
            zero,
        });
        Some(())
    }

    fn attr(&mut self, mut body: Bytes<'_>) -> Option<()> {
        let mut head = body;
        head.u32()?;
        let size = usize::try_from(head.u32()?).ok()?;
        let bytes = body.take(size)?;
        let mut attr = Attr::read(Bytes::new(bytes))?;
        while let Some(id) = body.u64() {
            attr.ids.push(id);
        }
        self.layout.attrs.push(attr);
        Some(())
    }
}
