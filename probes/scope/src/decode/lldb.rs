//! LLDB's trace bundles: a folder whose `trace.json` names the packets, the modules with their addresses, and for traces
//! of processors the context switches.
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Deserialize;
use serde_json::Value;

use super::clock::Conversion;
use super::files::{Files, Identity};
use super::tasks::{Follower, Switch, Tasks, Track};
use super::{DecodeError, Request, Told, raw};
use crate::pt::{Clock, Flows, Processor, Stream, Summary};
use crate::sink::Sink;
use crate::trace::Reasons;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    r#type: String,
    cpu_info: Option<CpuInfo>,
    #[serde(default)]
    processes: Vec<Process>,
    #[serde(default)]
    cpus: Vec<CpuTrace>,
    tsc_perf_zero_conversion: Option<Zero>,
}

#[derive(Debug, Deserialize)]
struct CpuInfo {
    family: u16,
    model: u8,
    stepping: u8,
}

#[derive(Debug, Deserialize)]
struct Process {
    pid: u32,
    #[serde(default)]
    threads: Vec<Thread>,
    #[serde(default)]
    modules: Vec<Module>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    tid: u32,
    ipt_trace: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Module {
    file: Option<PathBuf>,
    system_path: Option<PathBuf>,
    load_address: Value,
    uuid: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CpuTrace {
    ipt_trace: PathBuf,
    context_switch_trace: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Zero {
    time_mult: Value,
    time_shift: Value,
    time_zero: Value,
}

/// A number, or text that is one.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        },
        _ => None,
    }
}

impl Zero {
    fn conversion(&self) -> Option<Conversion> {
        Some(Conversion {
            shift: number(&self.time_shift)?,
            multiplier: number(&self.time_mult)?,
            zero: number(&self.time_zero)?,
        })
    }
}

/// Decodes a bundle.
pub(super) fn decode(
    request: &Request,
    sink: &mut dyn Sink,
    told: &mut Told<'_>,
) -> Result<Summary, DecodeError> {
    let (folder, file) = if request.trace.is_dir() {
        (request.trace.clone(), request.trace.join("trace.json"))
    } else {
        let folder = request.trace.parent().unwrap_or(Path::new("."));
        (folder.to_owned(), request.trace.clone())
    };
    let text = std::fs::read(&file).map_err(|source| DecodeError::io(&file, source))?;
    let bundle: Bundle =
        serde_json::from_slice(&text).map_err(|error| DecodeError::damaged(&file, &error))?;
    if bundle.r#type != "intel-pt" {
        let why = format!(
            "traces of the type `{}` are not decoded, only intel-pt",
            bundle.r#type
        );
        return Err(DecodeError::damaged(&file, &why));
    }
    let mut folders = request.folders.clone();
    folders.push(folder.clone());
    let mut files = Files::new(&folders);
    let mut flows = Flows::new(sink);
    let opened = Opened {
        processor: bundle.cpu_info.as_ref().map(CpuInfo::processor),
        bundle,
        folder,
        only: request.thread,
    };
    opened.decode(&mut files, &mut flows, told)?;
    told.complaints(files.complaints());
    Ok(flows.finish())
}

struct Opened {
    bundle: Bundle,
    folder: PathBuf,
    processor: Option<Processor>,
    only: Option<u32>,
}

impl Opened {
    fn decode(
        &self,
        files: &mut Files,
        flows: &mut Flows<'_>,
        told: &mut Told<'_>,
    ) -> Result<(), DecodeError> {
        let mut tasks =
            Tasks::new(files, Rc::from([]), self.only, false).map_err(DecodeError::Library)?;
        for process in &self.bundle.processes {
            for thread in &process.threads {
                tasks.thread(process.pid, thread.tid);
            }
            for module in &process.modules {
                module.map(process.pid, &mut tasks)?;
            }
        }
        let threads = self
            .bundle
            .processes
            .iter()
            .flat_map(|process| &process.threads);
        for thread in threads {
            if let Some(trace) = &thread.ipt_trace {
                let track = Track::of_thread(thread.tid);
                self.follow(trace, track, false, &mut tasks, flows, told)?;
            }
        }
        let zero = self.bundle.tsc_perf_zero_conversion.as_ref();
        let conversion = zero.and_then(Zero::conversion);
        for cpu in &self.bundle.cpus {
            let path = self.folder.join(&cpu.context_switch_trace);
            let bytes = std::fs::read(&path).map_err(|source| DecodeError::io(&path, source))?;
            let switches = switches(&bytes, conversion);
            if conversion.is_none() || switches.is_empty() {
                flows.doubt(Reasons::SIDEBAND);
            }
            let track = Track::of_cpu(switches);
            self.follow(&cpu.ipt_trace, track, true, &mut tasks, flows, told)?;
        }
        Ok(())
    }

    fn follow(
        &self,
        trace: &Path,
        mut track: Track,
        timed: bool,
        tasks: &mut Tasks<'_>,
        flows: &mut Flows<'_>,
        told: &mut Told<'_>,
    ) -> Result<(), DecodeError> {
        let mut failed = None;
        let mut guide = Follower {
            tasks,
            track: &mut track,
            yields: false,
            failed: &mut failed,
            timed,
        };
        guide.resume(flows);
        let mut stream = Stream::new(self.processor, Clock::default());
        raw::feed(
            &self.folder.join(trace),
            &mut stream,
            &mut guide,
            flows,
            told,
        )?;
        failed.map_or(Ok(()), |why| Err(DecodeError::Library(why)))
    }
}

impl CpuInfo {
    fn processor(&self) -> Processor {
        Processor {
            family: self.family,
            model: self.model,
            stepping: self.stepping,
        }
    }
}

impl Module {
    fn map(&self, pid: u32, tasks: &mut Tasks<'_>) -> Result<(), DecodeError> {
        let Some(path) = self.file.as_ref().or(self.system_path.as_ref()) else {
            return Ok(());
        };
        let identity = Identity {
            build_id: self.uuid.as_deref().and_then(build_id),
            inode: None,
        };
        match number(&self.load_address) {
            Some(base) => tasks
                .module(pid, path, &identity, base)
                .map_err(DecodeError::Library),
            None => Err(DecodeError::damaged(path, &"its loadAddress is no number")),
        }
    }
}

/// The threads that came onto a processor: 32 bytes for each switch, as the kernel wrote them.
fn switches(bytes: &[u8], conversion: Option<Conversion>) -> Vec<Switch> {
    const SWITCH_CPU_WIDE: u32 = 15;
    const OUT: u32 = 1 << 13;
    let mut all = Vec::new();
    for record in bytes.chunks_exact(32) {
        let word = |at: usize| {
            let bytes = record
                .get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok());
            u32::from_le_bytes(bytes.unwrap_or_default())
        };
        if word(0) == SWITCH_CPU_WIDE && word(4) & OUT == 0 {
            let time = u64::from(word(24)) | u64::from(word(28)) << 32;
            all.push(Switch {
                tsc: conversion.map_or(0, |conversion| conversion.tsc(time)),
                tid: word(20),
            });
        }
    }
    all
}

/// LLDB's UUID is the build-id where the file has one.
fn build_id(uuid: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = uuid.bytes().filter(|byte| *byte != b'-').collect();
    let text = String::from_utf8(digits).ok()?;
    let bytes: Option<Vec<u8>> = (0..text.len() / 2)
        .map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok())
        .collect();
    bytes.filter(|bytes| bytes.len() == 20)
}
