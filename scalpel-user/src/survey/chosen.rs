//! From images to chosen functions: the decisions of `image`, with everything a recording needs of each function.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::Glob;
use serde::{Deserialize, Serialize};

use super::{Candidate, Question, Survey, SurveyError, compiled, hint};
use crate::function::{ExitStrategy, FunctionInfo, SourcePlace};
use crate::image::{
    DebugFiles, Disassembler, ExitPolicy, ExitReason, ExitRequest, Image, ImageError,
    ImageFunction, Pattern, SiteCost, SitePlan, plan_sites, select,
};
use crate::plan::Exits;

/// One image with its chosen functions.
#[derive(Debug)]
pub struct Surveyed {
    /// Path as the target sees it.
    pub path: PathBuf,
    /// The file, held open.
    pub file: Arc<File>,
    /// It is the program itself.
    pub main: bool,
    /// Functions the image has.
    pub functions: usize,
    /// Functions whose names are known only as `module+0xOFF`.
    pub unnamed: usize,
    /// Whether Go linked it.
    pub go: bool,
    /// The chosen functions, by rising address.
    pub chosen: Vec<Chosen>,
}

/// One chosen function: what it is, where and how it will be probed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// What is known of it.
    pub info: FunctionInfo,
    /// Other names of the same address.
    pub aliases: Vec<String>,
    /// Link-time address.
    pub vaddr: u64,
    /// File offset of the probed instruction, or why there is none.
    pub site: Result<ChosenSite, String>,
    /// File offsets of its `ret` instructions, if they are to be probed.
    pub ret_offsets: Vec<u64>,
    /// Its return probe is safe only as long as nothing that throws is mapped.
    pub rests_on_nothing_thrown: bool,
    /// How often it is likely to be called.
    pub heat: u8,
}

/// Where a function will be probed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenSite {
    /// File offset of the probed instruction, in bytes.
    pub offset: u64,
    /// What a hit costs.
    pub cost: SiteCost,
    /// Why this instruction.
    pub reason: String,
    /// The instruction, for people.
    pub instruction: String,
}

/// Fills `survey` from the candidates: all of them are looked at for exceptions and Go, the wanted ones are searched.
pub(super) fn survey(
    survey: &mut Survey,
    candidates: &[Candidate],
    question: &Question<'_>,
    debug: &dyn DebugFiles,
) -> Result<(), SurveyError> {
    let wanted = wanted(candidates, &question.choice.libs)?;
    let contents: Vec<(usize, Vec<u8>)> = read_all(candidates, &wanted, survey)?;
    let mut images = Vec::new();
    for (index, bytes) in &contents {
        let Some(candidate) = candidates.get(*index) else {
            continue;
        };
        match Image::parse(bytes, &candidate.path.to_string_lossy(), debug) {
            Ok(image) => images.push((candidate, image)),
            Err(ImageError::NoCode) if !wanted.contains(index) => {}
            Err(source) if wanted.contains(index) => {
                return Err(SurveyError::Image {
                    path: candidate.path.clone(),
                    source,
                });
            }
            Err(error) => survey
                .unread
                .push((candidate.path.clone(), error.to_string())),
        }
    }
    survey.facts.go = images.iter().any(|(_, image)| image.is_go());
    survey.facts.switches_stacks = images
        .iter()
        .any(|(candidate, image)| candidate.main && image.makes_stacks().is_some());
    let throwing: Vec<String> = images
        .iter()
        .filter(|(_, image)| image.can_throw())
        .map(|(candidate, _)| name_of(candidate))
        .collect();
    // A file that cannot be read may throw: it counts as one that does.
    let unread = survey
        .unread
        .iter()
        .map(|(path, _)| path.display().to_string());
    survey.facts.throwing_images = throwing.into_iter().chain(unread).collect();
    images.retain(|(candidate, _)| {
        wanted
            .iter()
            .any(|&index| same(candidates.get(index), candidate))
    });
    choose(survey, &images, question)
}

fn choose(
    survey: &mut Survey,
    images: &[(&Candidate, Image<'_>)],
    question: &Question<'_>,
) -> Result<(), SurveyError> {
    let mut include = compiled(&question.choice.include)?;
    let exclude = compiled(&question.choice.exclude)?;
    for pattern in &include {
        let matches = |(_, image): &(&Candidate, Image<'_>)| {
            image.functions().iter().any(|f| pattern.matches(f))
        };
        if !images.iter().any(matches) {
            let place = images
                .iter()
                .map(|(candidate, _)| name_of(candidate))
                .collect::<Vec<_>>()
                .join(", ");
            let pattern = pattern.text().to_owned();
            return Err(SurveyError::NoFunction {
                hint: hint(images, &pattern),
                pattern,
                place,
            });
        }
    }
    include.extend(compiled(&question.choice.awaited)?);
    for (candidate, image) in images {
        let surveyed = one_image(candidate, image, &include, &exclude, question, survey);
        survey.images.push(surveyed);
    }
    Ok(())
}

fn one_image(
    candidate: &Candidate,
    image: &Image<'_>,
    include: &[Pattern],
    exclude: &[Pattern],
    question: &Question<'_>,
    survey: &Survey,
) -> Surveyed {
    let indices = select(image, include, exclude);
    let mut process = survey.facts.clone();
    process
        .throwing_images
        .retain(|name| *name != name_of(candidate));
    let policy = ExitPolicy {
        requested: request(question.exits),
        process,
    };
    let disassembler = Disassembler::new();
    let build_id = image.build_id();
    let (plans, left_out) = within(image, indices, &policy, question.most);
    let decided = plans.iter().filter_map(|plan| {
        let function = image.functions().get(plan.function)?;
        Some(chosen(
            candidate,
            image,
            &build_id,
            function,
            plan,
            &disassembler,
        ))
    });
    let limit = question.most.map_or("", |(_, limit)| limit);
    let others = left_out.iter().filter_map(|&index| {
        let function = image.functions().get(index)?;
        Some(undecided(&candidate.path, &build_id, function, limit))
    });
    let mut chosen: Vec<Chosen> = decided.chain(others).collect();
    chosen.sort_by_key(|chosen| chosen.vaddr);
    Surveyed {
        path: candidate.path.clone(),
        file: Arc::clone(&candidate.file),
        main: candidate.main,
        functions: image.functions().len(),
        unnamed: image
            .functions()
            .iter()
            .filter(|function| function.unknown.is_some())
            .count(),
        go: image.is_go(),
        chosen,
    }
}

/// Decides about functions until as many as allowed can be probed, the largest first: they say most about a program and
/// are called least. The others are told apart, by index, and nothing is decided about them.
fn within(
    image: &Image<'_>,
    mut indices: Vec<usize>,
    policy: &ExitPolicy,
    most: Option<(usize, &str)>,
) -> (Vec<SitePlan>, Vec<usize>) {
    let most = most.map_or(usize::MAX, |(most, _)| most);
    if indices.len() > most {
        indices.sort_by_key(|&index| image.functions().get(index).map(heat));
    }
    let mut plans = Vec::new();
    let mut wanted = most;
    while wanted > 0 && !indices.is_empty() {
        let rest = indices.split_off(wanted.min(indices.len()));
        plans.extend(plan_sites(image, &indices, policy));
        indices = rest;
        wanted = most - plans.iter().filter(|plan| plan.site.is_ok()).count();
    }
    (plans, indices)
}

/// Small functions are called most, as a rule; what only runs once is cold.
fn heat(function: &ImageFunction) -> u8 {
    if matches!(
        function.raw_name.as_str(),
        "main" | "_start" | "_init" | "_fini"
    ) {
        return 0;
    }
    let log2 = u64::BITS - function.size.max(1).leading_zeros();
    u8::try_from(240u32.saturating_sub(12 * log2)).unwrap_or(0)
}

/// A function that a limit leaves out.
fn undecided(path: &Path, build_id: &str, function: &ImageFunction, limit: &str) -> Chosen {
    Chosen {
        info: describe(path, build_id, function),
        aliases: function.aliases.clone(),
        vaddr: function.vaddr,
        site: Err(left_out_by(limit)),
        ret_offsets: Vec::new(),
        rests_on_nothing_thrown: false,
        heat: heat(function),
    }
}

/// Why a function is not watched that could be.
pub fn left_out_by(limit: &str) -> String {
    format!("left out by {limit}")
}

fn chosen(
    candidate: &Candidate,
    image: &Image<'_>,
    build_id: &str,
    function: &ImageFunction,
    plan: &SitePlan,
    disassembler: &Disassembler,
) -> Chosen {
    let site = plan.site.as_ref().map(|site| ChosenSite {
        offset: site.offset,
        cost: site.cost,
        reason: plan.site_reason(),
        instruction: plan.instruction(image, disassembler),
    });
    let info = FunctionInfo {
        site_delta: plan.site.as_ref().map_or(0, |site| site.delta),
        exit: if plan.site.is_ok() {
            plan.exit.strategy
        } else {
            ExitStrategy::None
        },
        exit_reason: plan.exit.reason.to_string(),
        ..describe(&candidate.path, build_id, function)
    };
    Chosen {
        info,
        aliases: function.aliases.clone(),
        vaddr: function.vaddr,
        site: site.map_err(ToString::to_string),
        ret_offsets: plan.exit.ret_offsets.clone(),
        rests_on_nothing_thrown: plan.exit.reason == ExitReason::NothingThrows,
        heat: heat(function),
    }
}

/// What a file says about one of its functions. How it is probed is not in it.
pub(super) fn describe(path: &Path, build_id: &str, function: &ImageFunction) -> FunctionInfo {
    let declared = function.declared.as_ref();
    FunctionInfo {
        name: function.name().to_owned(),
        raw_name: function.raw_name.clone(),
        module: file_name(path),
        path: path.to_string_lossy().into_owned(),
        file: declared.map(|declared| declared.file.to_string()),
        line: declared.map(|declared| declared.line),
        language: function.language,
        build_id: build_id.to_owned(),
        file_offset: function.file_offset,
        size: function.size,
        site_delta: 0,
        exit: ExitStrategy::None,
        exit_reason: String::new(),
        unknown: function.unknown.clone(),
        ordinal: 0,
        place: SourcePlace::default(),
    }
}

const fn request(exits: Exits) -> ExitRequest {
    match exits {
        Exits::Default => ExitRequest::Default,
        Exits::Ret => ExitRequest::Ret,
        Exits::None => ExitRequest::None,
    }
}

/// Indices of the candidates to search: those that match a glob, else the main program.
fn wanted(candidates: &[Candidate], globs: &[String]) -> Result<Vec<usize>, SurveyError> {
    let all = candidates.iter().enumerate();
    if globs.is_empty() {
        return Ok(all
            .filter(|(_, candidate)| candidate.main)
            .map(|(index, _)| index)
            .collect());
    }
    let mut wanted = Vec::new();
    for glob in globs {
        let matcher = Glob::new(glob).map(|glob| glob.compile_matcher());
        let matches = |candidate: &Candidate| {
            let by = |text: &str| matcher.as_ref().is_ok_and(|matcher| matcher.is_match(text));
            let name = name_of(candidate);
            candidate.asked.as_ref() == Some(glob)
                || by(&name)
                || by(&candidate.path.to_string_lossy())
                || stem(&name) == glob
        };
        let found: Vec<usize> = all
            .clone()
            .filter(|(_, candidate)| matches(candidate))
            .map(|(index, _)| index)
            .collect();
        if found.is_empty() {
            let mapped = candidates
                .iter()
                .map(name_of)
                .collect::<Vec<_>>()
                .join(", ");
            return Err(SurveyError::NoLibrary {
                glob: glob.clone(),
                mapped,
            });
        }
        wanted.extend(found);
    }
    wanted.sort_unstable();
    wanted.dedup();
    Ok(wanted)
}

/// `libz` of `libz.so.1.2`: what people type.
fn stem(name: &str) -> &str {
    name.split_once(".so").map_or(name, |(stem, _)| stem)
}

fn name_of(candidate: &Candidate) -> String {
    file_name(&candidate.path)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

fn same(a: Option<&Candidate>, b: &Candidate) -> bool {
    a.is_some_and(|a| std::ptr::eq(a, b))
}

/// Files are read, not mapped: a file that is cut while it is mapped would kill us with SIGBUS.
fn read_all(
    candidates: &[Candidate],
    wanted: &[usize],
    survey: &mut Survey,
) -> Result<Vec<(usize, Vec<u8>)>, SurveyError> {
    let mut contents = Vec::with_capacity(candidates.len());
    for (index, candidate) in candidates.iter().enumerate() {
        match read(&candidate.file) {
            Ok(bytes) => contents.push((index, bytes)),
            Err(source) if wanted.contains(&index) => {
                return Err(SurveyError::Read {
                    path: candidate.path.clone(),
                    source,
                });
            }
            Err(error) => survey
                .unread
                .push((candidate.path.clone(), error.to_string())),
        }
    }
    Ok(contents)
}

/// The same, unless it is larger than `most` bytes.
pub(super) fn read_at_most(file: &File, most: u64) -> std::io::Result<Vec<u8>> {
    if file.metadata()?.len() > most {
        return Err(std::io::Error::other("too large"));
    }
    read(file)
}

pub(super) fn read(mut file: &File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
