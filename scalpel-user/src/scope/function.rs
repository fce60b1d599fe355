//! Where the function is in the memory of a process: in a mapped file, or in code that a runtime compiled.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use scalpel_scope::outside::message::Arm;

use super::ScopeError;
use crate::cli::FollowArg;
use crate::function::FunctionInfo;
use crate::image::{KernelRelease, Pattern};
use crate::plan::{Choice, Exits, LivePlan};
use crate::survey::{self, ImageReader, Question, Survey, SurveyError};
use crate::symbol::{FunctionReader, jit_functions};
use crate::target::{MappedImage, Mapping, Process, Spawned};

/// Most places of one function: the processor has four breakpoints, and a recording needs two.
const MOST_ENTRIES: usize = 2;
/// Most instructions of one call.
const MOST_STEPS: u64 = 1_000_000;

/// A function in a process.
#[derive(Clone, Debug)]
pub struct Located {
    /// What is known of it.
    pub info: FunctionInfo,
    /// Its addresses.
    entries: Vec<u64>,
    /// Its own code.
    own: Vec<(u64, u64)>,
    /// The code of its file.
    known: Vec<(u64, u64)>,
    go: bool,
}

impl Located {
    /// What the guardian has to know.
    pub(super) fn arm(&self, plan: &LivePlan) -> Arm {
        Arm {
            entries: self.entries.clone(),
            followed: match plan.follow {
                FollowArg::None => self.own.clone(),
                FollowArg::Known => self.known.clone(),
                FollowArg::All => Vec::new(),
            },
            calls: plan.calls,
            go: self.go,
            budget_ns: u64::try_from(plan.budget.as_nanos()).unwrap_or(u64::MAX),
            budget_steps: MOST_STEPS,
            hardware: None,
        }
    }
}

/// Looks into a command's files before it is started: what is not there need not be started.
pub(super) fn is_in_program(spawned: &Spawned, plan: &LivePlan) -> Result<()> {
    let choice = choice(plan);
    match survey::of_program(spawned.programs(), &question(&choice)) {
        Err(SurveyError::NoFunction {
            pattern,
            place,
            hint,
        }) => Err(no_function(pattern, &place, &hint).into()),
        other => Ok(other.map(drop)?),
    }
}

fn choice(plan: &LivePlan) -> Choice {
    Choice {
        include: vec![plan.func.clone()],
        exclude: Vec::new(),
        libs: plan.libs.clone(),
        max_probes: None,
        awaited: Vec::new(),
    }
}

fn question(choice: &Choice) -> Question<'_> {
    let release = rustix::system::uname();
    Question {
        choice,
        exits: Exits::None,
        kernel: KernelRelease::parse(&release.release().to_string_lossy()),
        most: None,
    }
}

fn no_function(pattern: String, place: &str, hint: &str) -> ScopeError {
    ScopeError::NoFunction {
        pattern,
        why: format!("no function of {place} matches{hint}"),
    }
}

/// Finds the function of the plan in a process.
pub(super) fn locate(process: &Process, plan: &LivePlan) -> Result<Located> {
    let choice = choice(plan);
    match survey::of_process(process, &question(&choice)) {
        Ok(survey) => in_files(process, plan, &survey),
        Err(SurveyError::NoFunction {
            pattern,
            place,
            hint,
        }) => match compiled(process, plan)? {
            Some(located) => Ok(located),
            None => Err(no_function(pattern, &place, &hint).into()),
        },
        Err(error) => Err(error.into()),
    }
}

fn in_files(process: &Process, plan: &LivePlan, survey: &Survey) -> Result<Located> {
    let images = process.images()?;
    let go = survey.images.iter().any(|image| image.go);
    let mut found: Vec<(FunctionInfo, u64, &MappedImage)> = Vec::new();
    for surveyed in &survey.images {
        let Some(image) = images.iter().find(|image| image.path == surveyed.path) else {
            continue;
        };
        for chosen in &surveyed.chosen {
            if let Some(address) = address(image, chosen.info.file_offset) {
                found.push((chosen.info.clone(), address, image));
            }
        }
    }
    let names: Vec<&str> = found.iter().map(|(info, ..)| info.name.as_str()).collect();
    few_enough(plan, &names)?;
    let Some((info, ..)) = found.first() else {
        let why = "it is in a file that is not mapped executable".to_owned();
        let pattern = plan.func.to_string();
        return Err(ScopeError::NoFunction { pattern, why }.into());
    };
    let mut located = Located {
        info: info.clone(),
        entries: found.iter().map(|(_, address, _)| *address).collect(),
        own: Vec::new(),
        known: Vec::new(),
        go,
    };
    for (info, address, image) in &found {
        located.own.push((*address, address + info.size.max(1)));
        located.own.extend(cold_parts(image, info));
        let code = |map: &Mapping| (map.start.0, map.end.0);
        located.known.extend(image.mappings.iter().map(code));
    }
    Ok(located)
}

fn few_enough(plan: &LivePlan, names: &[&str]) -> Result<(), ScopeError> {
    if names.len() <= MOST_ENTRIES {
        return Ok(());
    }
    Err(ScopeError::Several {
        pattern: plan.func.to_string(),
        count: names.len(),
        some: names.iter().take(3).copied().collect::<Vec<_>>().join(", "),
    })
}

fn address(image: &MappedImage, file_offset: u64) -> Option<u64> {
    image.mappings.iter().find_map(|map| {
        let inside = file_offset.checked_sub(map.offset)?;
        let address = map.start.0 + inside;
        (address < map.end.0).then_some(address)
    })
}

/// Where compilers put what a function rarely runs: `NAME.cold`.
fn cold_parts(image: &MappedImage, info: &FunctionInfo) -> Vec<(u64, u64)> {
    let file: Option<&Arc<File>> = image.file.as_ref().ok();
    let path: &Path = &image.path;
    let functions = file.and_then(|file| ImageReader.functions(path, file));
    let cold = format!("{}.cold", info.raw_name);
    functions
        .into_iter()
        .flatten()
        .filter(|other| other.raw_name == cold)
        .filter_map(|other| {
            let start = address(image, other.file_offset)?;
            Some((start, start + other.size))
        })
        .collect()
}

/// The jitdump that a process keeps mapped, as perf's convention has it.
pub(super) fn jitdump(process: &Process, maps: &[Mapping]) -> Option<Vec<u8>> {
    let is_dump = |map: &&Mapping| {
        let name = map.path().and_then(Path::file_name);
        name.is_some_and(|name| {
            let name = name.to_string_lossy();
            name.starts_with("jit-") && name.ends_with(".dump")
        })
    };
    let map = maps.iter().find(is_dump)?;
    let path = process.proc_path("map_files").join(map.map_file_name());
    std::fs::read(path).ok()
}

/// In code that a runtime compiled into memory, by the map or the dump that it writes.
fn compiled(process: &Process, plan: &LivePlan) -> Result<Option<Located>> {
    let pattern = Pattern::parse(&plan.func.to_string())?;
    let inner = process.status()?.namespace_pids.last().copied();
    let inner = inner.map_or(process.pid(), crate::event::Pid);
    let maps = process.maps()?;
    let dump = jitdump(process, &maps);
    let mut found: Vec<_> = jit_functions(process.pid(), inner, dump.as_deref())
        .into_iter()
        .filter(|function| pattern.matches_recorded(&function.info))
        .collect();
    // The newest code of a function is what runs.
    found.sort_by_key(|function| std::cmp::Reverse(function.written));
    found.truncate(MOST_ENTRIES);
    let Some(first) = found.first() else {
        return Ok(None);
    };
    let around = |address: u64| maps.iter().find(move |map| map.contains(address));
    let known = found.iter().filter_map(|function| around(function.start));
    Ok(Some(Located {
        info: (*first.info).clone(),
        entries: found.iter().map(|function| function.start).collect(),
        own: found.iter().map(|f| (f.start, f.end)).collect(),
        known: known.map(|map| (map.start.0, map.end.0)).collect(),
        go: false,
    }))
}
