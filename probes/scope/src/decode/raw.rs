//! Raw Intel PT: packets and nothing else; the code is given by hand.
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use super::files::{Files, Names, placed};
use super::{DecodeError, Request, Told};
use crate::pt::{Clock, CodeBytes, Flows, Image, Single, State, Stream};
use crate::sink::Sink;

/// Decodes a raw trace.
pub(super) fn decode(
    request: &Request,
    sink: &mut dyn Sink,
    told: &mut Told<'_>,
) -> Result<crate::pt::Summary, DecodeError> {
    let image = Image::new().map_err(DecodeError::Library)?;
    let mut names = Names::default();
    let mut files = Files::new(&request.folders);
    for (path, at) in &request.images {
        place(&image, &mut names, &mut files, path, *at)?;
    }
    if request.images.is_empty() {
        return Err(DecodeError::NoImage(request.trace.clone()));
    }
    let mut guide = Single::new(image, &mut names);
    let mut flows = Flows::new(sink);
    let mut stream = Stream::new(request.processor, Clock::default());
    feed(&request.trace, &mut stream, &mut guide, &mut flows, told)?;
    Ok(flows.finish())
}

/// The bytes of a file, as the stream takes them.
pub(super) fn feed(
    path: &Path,
    stream: &mut Stream,
    guide: &mut dyn crate::pt::Guide,
    flows: &mut Flows<'_>,
    told: &mut Told<'_>,
) -> Result<(), DecodeError> {
    let io = |source| DecodeError::io(path, source);
    let mut file = File::open(path).map_err(io)?;
    let total = file.metadata().map_err(io)?.len();
    let mut part = Vec::new();
    let mut done = 0;
    loop {
        part.clear();
        let wanted = stream.appetite() as u64;
        let read = file
            .by_ref()
            .take(wanted)
            .read_to_end(&mut part)
            .map_err(io)?;
        done += read as u64;
        stream.push(&part);
        while stream
            .run(read == 0, guide, flows)
            .map_err(DecodeError::Library)?
            == State::Paused
        {}
        told.progress(done, total);
        if read == 0 {
            return Ok(());
        }
    }
}

/// Maps an ELF file, or plain bytes, at an address.
fn place(
    image: &Image,
    names: &mut Names,
    files: &mut Files,
    path: &Path,
    at: Option<u64>,
) -> Result<(), DecodeError> {
    let bytes = std::fs::read(path).map_err(|source| DecodeError::io(path, source))?;
    if !bytes.starts_with(b"\x7fELF") {
        let at = at.ok_or_else(|| DecodeError::NoAddress(path.to_owned()))?;
        let len = bytes.len() as u64;
        let code = CodeBytes::new(bytes).map_err(|source| DecodeError::io(path, source))?;
        return image.map(at, &code, 0, len).map_err(DecodeError::Library);
    }
    let elf = crate::elf::ElfFile::read(path).map_err(DecodeError::Image)?;
    let elf = Rc::new(elf);
    for part in placed(&elf, at) {
        files.map(image, &elf, part).map_err(DecodeError::Library)?;
        names.map(&elf, part);
    }
    Ok(())
}
