//! Surveys by a confined process (`sandbox`): the files are opened here, read there, and the answer is judged here.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::chosen::{self, Chosen, Surveyed};
use super::reader::{functions_around, functions_of};
use super::{Candidate, Question, Survey, SurveyError};
use crate::function::FunctionInfo;
use crate::image::{DebugFiles, KernelRelease, ProcessFacts};
use crate::plan::{Choice, Exits};
use crate::sandbox::{Channel, Message, Sandbox};
use crate::symbol::Few;

/// Paths are bytes, whatever they spell.
type PathBytes = Vec<u8>;

/// What is asked; the files come with it, in order.
#[derive(Serialize, Deserialize)]
enum Ask {
    Survey {
        facts: ProcessFacts,
        choice: Choice,
        exits: Exits,
        kernel: KernelRelease,
        most: Option<(usize, String)>,
        candidates: Vec<CandidateWords>,
    },
    Functions(PathBytes),
    /// Around these offsets of the file.
    FunctionsAt(PathBytes, Vec<u64>),
}

/// A candidate without its file.
#[derive(Serialize, Deserialize)]
struct CandidateWords {
    path: PathBytes,
    main: bool,
    asked: Option<String>,
}

/// What comes back.
#[derive(Serialize, Deserialize)]
enum Say {
    /// A question: the content of this file, which comes with the next message if it is there.
    DebugFile(String),
    Surveyed(Answer),
    Functions(Option<Vec<FunctionInfo>>),
    FunctionsAt(Option<Few>),
    Refused(Refused),
}

#[derive(Serialize, Deserialize)]
struct Answer {
    images: Vec<ImageAnswer>,
    unread: Vec<(PathBytes, String)>,
    facts: ProcessFacts,
}

/// An image with its chosen functions: which candidate it is instead of its file.
#[derive(Serialize, Deserialize)]
struct ImageAnswer {
    candidate: usize,
    functions: usize,
    unnamed: usize,
    go: bool,
    chosen: Vec<Chosen>,
}

/// Why nothing could be chosen: what callers tell apart, and the rest as it is shown.
#[derive(Serialize, Deserialize)]
enum Refused {
    NoLibrary {
        glob: String,
        mapped: String,
    },
    NoFunction {
        pattern: String,
        place: String,
        hint: String,
    },
    Other(String),
}

/// [`chosen::survey`], there.
pub(super) fn survey(
    mut sandbox: Sandbox,
    survey: &mut Survey,
    candidates: &[Candidate],
    question: &Question<'_>,
    debug: &dyn Fn(&str) -> Option<File>,
) -> Result<(), SurveyError> {
    let words = |candidate: &Candidate| CandidateWords {
        path: candidate.path.as_os_str().as_bytes().to_vec(),
        main: candidate.main,
        asked: candidate.asked.clone(),
    };
    let ask = Ask::Survey {
        facts: survey.facts.clone(),
        choice: question.choice.clone(),
        exits: question.exits,
        kernel: question.kernel,
        most: question.most.map(|(most, limit)| (most, limit.to_owned())),
        candidates: candidates.iter().map(words).collect(),
    };
    let files: Vec<&File> = candidates.iter().map(|it| &*it.file).collect();
    match answer(&mut sandbox, &ask, &files, debug) {
        Ok(Say::Surveyed(answer)) => {
            take(survey, answer, candidates)?;
            ended(sandbox);
            Ok(())
        }
        Ok(Say::Refused(refused)) => {
            ended(sandbox);
            Err(refused.into())
        }
        Ok(_) => Err(SurveyError::Reader("it gave another answer".into())),
        Err(error) => Err(died(sandbox, &error)),
    }
}

/// All functions of a file, there; `None` = it is none with functions.
pub(super) fn functions(
    mut sandbox: Sandbox,
    path: &Path,
    file: &File,
) -> Result<Option<Vec<FunctionInfo>>, SurveyError> {
    let ask = Ask::Functions(path.as_os_str().as_bytes().to_vec());
    match answer(&mut sandbox, &ask, &[file], &|_path| None) {
        Ok(Say::Functions(functions)) => {
            ended(sandbox);
            Ok(functions)
        }
        Ok(_) => Err(SurveyError::Reader("it gave another answer".into())),
        Err(error) => Err(died(sandbox, &error)),
    }
}

/// Those around a few offsets of a file, there.
pub(super) fn functions_at(
    mut sandbox: Sandbox,
    path: &Path,
    file: &File,
    offsets: &[u64],
) -> Result<Option<Few>, SurveyError> {
    let ask = Ask::FunctionsAt(path.as_os_str().as_bytes().to_vec(), offsets.to_vec());
    match answer(&mut sandbox, &ask, &[file], &|_path| None) {
        Ok(Say::FunctionsAt(few)) => {
            ended(sandbox);
            Ok(few)
        }
        Ok(_) => Err(SurveyError::Reader("it gave another answer".into())),
        Err(error) => Err(died(sandbox, &error)),
    }
}

/// Asks, hands over the separate debug files that are wanted, and gives the answer.
fn answer(
    sandbox: &mut Sandbox,
    ask: &Ask,
    files: &[&File],
    debug: &dyn Fn(&str) -> Option<File>,
) -> io::Result<Say> {
    let channel = sandbox.channel();
    let bytes = postcard::to_stdvec(ask).map_err(io::Error::other)?;
    let held: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    channel.send(&bytes, &held)?;
    loop {
        let Some(message) = channel.receive()? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let said = postcard::from_bytes(&message.bytes).map_err(io::Error::other)?;
        let Say::DebugFile(path) = said else {
            return Ok(said);
        };
        let file = debug(&path);
        let held: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        channel.send(&[], &held)?;
    }
}

/// A process that gave its answer and does not end as it should has done what it was for.
fn ended(sandbox: Sandbox) {
    drop(sandbox.end());
}

fn died(sandbox: Sandbox, error: &io::Error) -> SurveyError {
    let cause = match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => sandbox.cause_of_death(),
        _ => error.to_string(),
    };
    SurveyError::Reader(cause)
}

/// Believes what can be checked.
fn take(survey: &mut Survey, answer: Answer, candidates: &[Candidate]) -> Result<(), SurveyError> {
    for image in answer.images {
        let Some(candidate) = candidates.get(image.candidate) else {
            return Err(SurveyError::Reader(
                "it spoke of a file that is none".into(),
            ));
        };
        survey.images.push(Surveyed {
            path: candidate.path.clone(),
            file: Arc::clone(&candidate.file),
            main: candidate.main,
            functions: image.functions,
            unnamed: image.unnamed,
            go: image.go,
            chosen: image.chosen,
        });
    }
    let unread = answer.unread.into_iter();
    survey
        .unread
        .extend(unread.map(|(path, why)| (path_of(path), why)));
    survey.facts = answer.facts;
    Ok(())
}

fn path_of(bytes: PathBytes) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// The other side: answers what comes over `channel` until it ends.
pub fn serve(channel: Channel) -> io::Result<()> {
    let channel = Mutex::new(channel);
    let lock = || channel.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some(Message { bytes, files }) = lock().receive()? else {
            return Ok(());
        };
        let ask: Ask = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
        let said = match ask {
            Ask::Functions(path) => {
                let file = files.into_iter().next().map(File::from);
                Say::Functions(file.and_then(|file| functions_of(&path_of(path), &file)))
            }
            Ask::FunctionsAt(path, offsets) => {
                let file = files.into_iter().next().map(File::from);
                let around = |file: File| functions_around(&path_of(path), &file, &offsets);
                Say::FunctionsAt(file.and_then(around))
            }
            Ask::Survey {
                facts,
                choice,
                exits,
                kernel,
                most,
                candidates,
            } => {
                let question = Question {
                    choice: &choice,
                    exits,
                    kernel,
                    most: most.as_ref().map(|(most, limit)| (*most, limit.as_str())),
                };
                let candidates = joined(candidates, files);
                let mut survey = Survey {
                    facts,
                    ..Survey::default()
                };
                let debug = AskedFor(&channel);
                match chosen::survey(&mut survey, &candidates, &question, &debug) {
                    Ok(()) => Say::Surveyed(told(survey, &candidates)),
                    Err(error) => Say::Refused(error.into()),
                }
            }
        };
        let bytes = postcard::to_stdvec(&said).map_err(io::Error::other)?;
        lock().send(&bytes, &[])?;
    }
}

fn joined(candidates: Vec<CandidateWords>, files: Vec<OwnedFd>) -> Vec<Candidate> {
    let join = |(words, file): (CandidateWords, OwnedFd)| Candidate {
        path: path_of(words.path),
        file: Arc::new(File::from(file)),
        main: words.main,
        asked: words.asked,
    };
    candidates.into_iter().zip(files).map(join).collect()
}

fn told(survey: Survey, candidates: &[Candidate]) -> Answer {
    let image = |image: Surveyed| {
        let is_it = |candidate: &Candidate| Arc::ptr_eq(&candidate.file, &image.file);
        Some(ImageAnswer {
            candidate: candidates.iter().position(is_it)?,
            functions: image.functions,
            unnamed: image.unnamed,
            go: image.go,
            chosen: image.chosen,
        })
    };
    let bytes = |(path, why): (PathBuf, String)| (path.into_os_string().into_vec(), why);
    Answer {
        images: survey.images.into_iter().filter_map(image).collect(),
        unread: survey.unread.into_iter().map(bytes).collect(),
        facts: survey.facts,
    }
}

/// Separate debug files, which the other side opens.
struct AskedFor<'a>(&'a Mutex<Channel>);

impl DebugFiles for AskedFor<'_> {
    fn open(&self, path: &str) -> Option<Box<dyn AsRef<[u8]>>> {
        let mut channel = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = postcard::to_stdvec(&Say::DebugFile(path.to_owned())).ok()?;
        channel.send(&ask, &[]).ok()?;
        let file = channel.receive().ok()??.files.into_iter().next()?;
        drop(channel);
        let bytes = chosen::read_at_most(&File::from(file), super::LARGEST_DEBUG_FILE).ok()?;
        Some(Box::new(bytes))
    }
}

impl From<SurveyError> for Refused {
    fn from(error: SurveyError) -> Self {
        match error {
            SurveyError::NoLibrary { glob, mapped } => Self::NoLibrary { glob, mapped },
            SurveyError::NoFunction {
                pattern,
                place,
                hint,
            } => Self::NoFunction {
                pattern,
                place,
                hint,
            },
            // With its causes, as it would be shown.
            other => Self::Other(format!("{:#}", anyhow::Error::from(other))),
        }
    }
}

impl From<Refused> for SurveyError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoLibrary { glob, mapped } => Self::NoLibrary { glob, mapped },
            Refused::NoFunction {
                pattern,
                place,
                hint,
            } => Self::NoFunction {
                pattern,
                place,
                hint,
            },
            Refused::Other(text) => Self::Unreadable(text),
        }
    }
}
