//! What there is to probe in a target: its images opened, functions chosen, sites and exits decided.
//!
//! Serves `record` and `list`. Attaches nothing and must not know how attaching works.

mod apart;
mod chosen;
mod libraries;
mod reader;
pub mod runtimes;
mod unmapped;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::image::{
    DebugFiles, Image, ImageError, KernelRelease, Pattern, ProcessFacts, SelectError, near_misses,
};
use crate::plan::words;
use crate::plan::{Choice, Exits};
use crate::rooted;
use crate::sandbox::Sandbox;
use crate::target::{MappedImage, Process, TargetError};

pub use apart::serve;
pub use chosen::{Chosen, Surveyed, left_out_by};
pub use libraries::needed_by;
pub use reader::ImageReader;

/// Nothing could be chosen.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The process ended, or may not be looked at.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A pattern does not compile.
    #[error(transparent)]
    Pattern(#[from] SelectError),
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file, as the target sees it.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file is not an ELF file with code.
    #[error("cannot probe {}", path.display())]
    Image {
        /// The file, as the target sees it.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ImageError,
    },
    /// What else is wrong with a file or a pattern, as a confined process told it.
    #[error("{0}")]
    Unreadable(String),
    /// The confined process that reads executables gave no answer.
    #[error(
        "the process that reads the executables ended before it was done ({0}): one of them may be made to break their \
         readers. Nothing was attached; --lib chooses other files"
    )]
    Reader(String),
    /// No mapped file matches `--lib`.
    #[error(
        "--lib {glob}: no mapped file matches; mapped are: {mapped}. A file that is mapped later is watched by its path: --lib \
         /path/to/it"
    )]
    NoLibrary {
        /// The glob.
        glob: String,
        /// The files there are.
        mapped: String,
    },
    /// No function matches a pattern.
    #[error("-f {pattern}: no function of {place} matches{hint}")]
    NoFunction {
        /// The pattern.
        pattern: String,
        /// The images that were searched.
        place: String,
        /// Near misses, or what else to do.
        hint: String,
    },
}

/// An executable file, held open.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Path as the target sees it.
    pub path: PathBuf,
    /// The file.
    pub file: Arc<File>,
    /// It is the program itself: files private to the target are watched without a pid filter.
    pub main: bool,
    /// The `--lib` that named it, before anything has mapped it.
    pub asked: Option<String>,
}

/// What was decided for a target.
#[derive(Debug, Default)]
pub struct Survey {
    /// The images that have chosen functions.
    pub images: Vec<Surveyed>,
    /// Mapped files that could not be read, with the reason: they are not probed, and not known not to throw.
    pub unread: Vec<(PathBuf, String)>,
    /// Facts on which the exit decisions rest.
    pub facts: ProcessFacts,
    /// The files were read with all rights of this process: why not by one without.
    pub unconfined: Option<String>,
}

impl Survey {
    /// What is to be known of how the files were read.
    pub fn notes(&self) -> Vec<String> {
        let text = "executables were read with all rights of the recorder, and not apart";
        let unconfined = self.unconfined.iter();
        let unconfined = unconfined.map(|reason| format!("{text}: {reason}"));
        unconfined
            .chain(self.unread.iter().map(unread_note))
            .collect()
    }

    /// Functions chosen in all images.
    pub fn functions(&self) -> usize {
        self.images.iter().map(|image| image.chosen.len()).sum()
    }
}

/// A file that could not be looked at: what is in it is not probed, and may throw.
pub fn unread_note((path, reason): &(PathBuf, String)) -> String {
    format!(
        "{} could not be read and was not probed: {reason}",
        path.display()
    )
}

/// What is asked of a survey.
#[derive(Debug)]
pub struct Question<'a> {
    /// Which functions.
    pub choice: &'a Choice,
    /// How ends are to be seen.
    pub exits: Exits,
    /// The running kernel.
    pub kernel: KernelRelease,
    /// Most functions of a file that are to be decided about, and the name of that limit.
    pub most: Option<(usize, &'a str)>,
}

/// Surveys a running process.
pub fn of_process(process: &Process, question: &Question<'_>) -> Result<Survey, SurveyError> {
    let status = process.status()?;
    let facts = ProcessFacts {
        seccomp: status.seccomp != 0,
        shadow_stack: status.shadow_stack,
        kernel: question.kernel,
        ..ProcessFacts::default()
    };
    let mut survey = Survey {
        facts,
        ..Survey::default()
    };
    let mut candidates = held(process.images()?, &mut survey.unread);
    unmapped::add(
        &mut candidates,
        &question.choice.libs,
        &process.proc_path("root"),
    );
    let debug = DebugUnder {
        root: process.proc_path("root"),
    };
    read(&mut survey, &candidates, question, &debug)?;
    Ok(survey)
}

/// Surveys a program that has not been started: itself and the libraries that its loader will map.
pub fn of_program(programs: &[PathBuf], question: &Question<'_>) -> Result<Survey, SurveyError> {
    let mut survey = Survey {
        facts: ProcessFacts {
            kernel: question.kernel,
            ..ProcessFacts::default()
        },
        ..Survey::default()
    };
    let mut candidates = Vec::new();
    if let Some(main) = programs.last() {
        candidates.push(open(main, true)?);
        for library in needed_by(main) {
            match open(&library, false) {
                Ok(candidate) => candidates.push(candidate),
                Err(error) => survey.unread.push((library, error.to_string())),
            }
        }
        unmapped::add(&mut candidates, &question.choice.libs, Path::new("/"));
    }
    let debug = DebugUnder {
        root: PathBuf::from("/"),
    };
    read(&mut survey, &candidates, question, &debug)?;
    Ok(survey)
}

/// Surveys one file, as `list FILE` does: its own facts only.
pub fn of_file(path: &Path, question: &Question<'_>) -> Result<Survey, SurveyError> {
    let mut survey = Survey {
        facts: ProcessFacts {
            kernel: question.kernel,
            ..ProcessFacts::default()
        },
        ..Survey::default()
    };
    let debug = DebugUnder {
        root: PathBuf::from("/"),
    };
    read(&mut survey, &[open(path, true)?], question, &debug)?;
    Ok(survey)
}

/// Reads the candidates: apart, if this process has rights to lose.
fn read(
    survey: &mut Survey,
    candidates: &[Candidate],
    question: &Question<'_>,
    debug: &DebugUnder,
) -> Result<(), SurveyError> {
    match Sandbox::start_if_wanted() {
        None => chosen::survey(survey, candidates, question, debug),
        Some(Ok(sandbox)) => {
            let file = |path: &str| rooted::open(&debug.root, Path::new(path)).ok();
            apart::survey(sandbox, survey, candidates, question, &file)
        }
        Some(Err(error)) => {
            survey.unconfined = Some(error.to_string());
            chosen::survey(survey, candidates, question, debug)
        }
    }
}

fn open(path: &Path, main: bool) -> Result<Candidate, SurveyError> {
    let file = File::open(path).map_err(|source| SurveyError::Read {
        path: path.to_owned(),
        source,
    })?;
    // The kernel will name its mappings by the real path, and a function is one by path and offset.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_unnamed| path.to_owned());
    Ok(Candidate {
        path,
        file: Arc::new(file),
        main,
        asked: None,
    })
}

fn held(images: Vec<MappedImage>, unread: &mut Vec<(PathBuf, String)>) -> Vec<Candidate> {
    let mut candidates = Vec::with_capacity(images.len());
    for image in images {
        match image.file {
            Ok(file) => candidates.push(Candidate {
                path: image.path,
                file,
                main: image.main,
                asked: None,
            }),
            Err(error) => unread.push((image.path, error.to_string())),
        }
    }
    candidates
}

/// Most bytes of a separate debug file: the largest browsers have some 2 GB.
const LARGEST_DEBUG_FILE: u64 = 4 << 30;

/// Separate debug files as the target sees them, through its root.
struct DebugUnder {
    root: PathBuf,
}

impl DebugFiles for DebugUnder {
    fn open(&self, path: &str) -> Option<Box<dyn AsRef<[u8]>>> {
        let bytes = rooted::read(&self.root, Path::new(path), LARGEST_DEBUG_FILE).ok()?;
        Some(Box::new(bytes))
    }
}

fn compiled(patterns: &[words::Pattern]) -> Result<Vec<Pattern>, SelectError> {
    patterns
        .iter()
        .map(|pattern| Pattern::parse(&pattern.to_string()))
        .collect()
}

fn hint(images: &[(&Candidate, Image<'_>)], pattern: &str) -> String {
    let near: Vec<String> = images
        .iter()
        .flat_map(|(_, image)| near_misses(image, pattern, 3))
        .take(5)
        .collect();
    if near.is_empty() {
        "; `scalpel-ebpf list functions` shows what there is, --lib chooses other files".into()
    } else {
        format!("; did you mean {}?", near.join(", "))
    }
}

#[cfg(test)]
mod tests;
