//! Names for the symbolizer from the same reader that chose the probes, so that a function has one name whether it was
//! probed or sampled.

use std::fs::File;
use std::path::Path;

use super::apart;
use super::chosen::{describe, read};
use crate::function::{ExitStrategy, FunctionInfo, Language, UnknownReason};
use crate::image::{Around, Image, NoDebugFiles, display_name};
use crate::sandbox::Sandbox;
use crate::symbol::{Few, FunctionReader};

/// Reads files with `image`, apart where this process has rights to lose.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImageReader;

/// All functions of a file, read here.
pub(super) fn functions_of(path: &Path, file: &File) -> Option<Vec<FunctionInfo>> {
    let bytes = read(file).ok()?;
    let image = Image::parse(&bytes, &path.to_string_lossy(), &NoDebugFiles).ok()?;
    let build_id = image.build_id();
    let described = |function| FunctionInfo {
        exit: ExitStrategy::None,
        ..describe(path, &build_id, function)
    };
    Some(image.functions().iter().map(described).collect())
}

/// Those around a few offsets of the file, read here.
pub(super) fn functions_around(path: &Path, file: &File, offsets: &[u64]) -> Option<Few> {
    let bytes = read(file).ok()?;
    let around = Around::parse(&bytes, &path.to_string_lossy(), offsets).ok()?;
    let described = |function| describe(path, &around.build_id, function);
    Some(Few {
        functions: around.functions.iter().map(described).collect(),
        is_stripped: around.is_stripped,
    })
}

impl FunctionReader for ImageReader {
    fn functions(&self, path: &Path, file: &File) -> Option<Vec<FunctionInfo>> {
        match Sandbox::start_if_wanted() {
            Some(Ok(sandbox)) => match apart::functions(sandbox, path, file) {
                Ok(functions) => functions,
                // Whatever killed the reader is not read by anything else.
                Err(_died) => Some(Vec::new()),
            },
            Some(Err(_)) | None => functions_of(path, file),
        }
    }

    fn functions_at(
        &self,
        path: &Path,
        file: &File,
        offsets: &[u64],
    ) -> Result<Option<Few>, UnknownReason> {
        match Sandbox::start_if_wanted() {
            Some(Ok(sandbox)) => apart::functions_at(sandbox, path, file, offsets)
                .map_err(|error| UnknownReason::BadFile(error.to_string())),
            Some(Err(_)) | None => Ok(functions_around(path, file, offsets)),
        }
    }

    fn display(&self, raw_name: &str) -> (String, Language) {
        display_name(raw_name)
    }
}
