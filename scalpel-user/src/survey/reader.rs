//! Names for the symbolizer from the same reader that chose the probes, so that a function has one name whether it was
//! probed or sampled.

use std::fs::File;
use std::path::Path;

use super::chosen::{describe, read};
use crate::function::{ExitStrategy, FunctionInfo, Language};
use crate::image::{Image, NoDebugFiles, display_name};
use crate::symbol::FunctionReader;

/// Reads files with `image`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImageReader;

impl FunctionReader for ImageReader {
    fn functions(&self, path: &Path, file: &File) -> Option<Vec<FunctionInfo>> {
        let bytes = read(file).ok()?;
        let image = Image::parse(&bytes, &path.to_string_lossy(), &NoDebugFiles).ok()?;
        let build_id = image.build_id();
        let described = |function| FunctionInfo {
            exit: ExitStrategy::None,
            ..describe(path, &build_id, function)
        };
        Some(image.functions().iter().map(described).collect())
    }

    fn display(&self, raw_name: &str) -> (String, Language) {
        display_name(raw_name)
    }
}
