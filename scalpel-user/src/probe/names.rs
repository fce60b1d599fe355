//! Name records, as probes write them: foreign bytes -> what is known of a function. Pure, and never a panic.

use scalpel_common::segment::{NOT_KNOWN, NameHead, name_flags};

use crate::event::Source;
use crate::function::{ExitStrategy, FunctionInfo, Language, SourcePlace, UnknownReason};

/// Size of the fixed part of a record.
pub(super) const HEAD: u64 = size_of::<NameHead>() as u64;

/// Longest record that is read: names of generated code may be long, but no source has one of this size.
pub(super) const LONGEST: u64 = 64 << 10;

/// Version of the record.
const RECORD: u8 = 1;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRecord {
    /// Process-local id.
    pub func: u32,
    /// A source number: of its probe.
    pub source: u8,
    /// What is known of the function.
    pub info: FunctionInfo,
}

/// Reads one record, which may be followed by other bytes. `None` = it makes no sense.
pub fn parse(bytes: &[u8]) -> Option<NameRecord> {
    let mut get = Get(bytes);
    let len = usize::try_from(get.u32()?).ok()?;
    let (version, source, flags) = (get.u8()?, get.u8()?, get.u16()?);
    let func = get.u32()?;
    let (line, end_line, column) = (get.u32()?, get.u32()?, get.u32()?);
    let (start, end) = (get.u32()?, get.u32()?);
    let (name_len, file_len, owner_len) = (get.u32()?, get.u32()?, get.u32()?);
    let _reserved = get.u32()?;
    let (body_hash, text_hash) = (get.u64()?, get.u64()?);
    let texts = u64::from(name_len) + u64::from(file_len) + u64::from(owner_len);
    if version != RECORD || len as u64 != HEAD + texts || len > bytes.len() {
        return None;
    }
    let source = Source::from_u8(source).filter(|&source| is_probe(source))?;
    let parts = Parts {
        name: get.text(name_len)?,
        file: get.text(file_len)?,
        owner: get.text(owner_len)?,
        line,
        end_line,
        column,
        start,
        end,
        flags,
        body_hash,
        text_hash,
    };
    Some(NameRecord {
        func,
        source: source as u8,
        info: parts.info(source),
    })
}

/// Length of the record at the head of `bytes`, if it says one that can be.
pub(super) fn length(bytes: &[u8]) -> Option<u64> {
    let len = u64::from(Get(bytes).u32()?);
    (HEAD..=LONGEST).contains(&len).then_some(len)
}

/// Whether events of this source come from within a process.
pub(super) const fn is_probe(source: Source) -> bool {
    source as u8 >= Source::Python as u8
}

/// A function of which only the number is known.
pub(super) fn nameless(source: u8, func: u32) -> FunctionInfo {
    let source = Source::from_u8(source).filter(|&source| is_probe(source));
    let language = source.map_or(Language::Native, language);
    FunctionInfo {
        name: format!("<{} function {func}>", language.word()),
        file_offset: u64::from(func),
        unknown: Some(UnknownReason::NameLost),
        ..blank(language)
    }
}

fn blank(language: Language) -> FunctionInfo {
    FunctionInfo {
        name: String::new(),
        raw_name: String::new(),
        module: "?".into(),
        path: String::new(),
        file: None,
        line: None,
        language,
        build_id: String::new(),
        file_offset: 0,
        size: 0,
        site_delta: 0,
        exit: ExitStrategy::Probe,
        exit_reason: "told by the probe in the process".into(),
        unknown: None,
        ordinal: 0,
        place: SourcePlace::default(),
    }
}

/// The language of a probe.
pub(super) const fn language(source: Source) -> Language {
    match source {
        Source::Python => Language::Python,
        Source::Node => Language::JavaScript,
        Source::Ruby => Language::Ruby,
        Source::Php => Language::Php,
        Source::Java => Language::Java,
        Source::Go => Language::Go,
        Source::Rust => Language::Rust,
        Source::Dotnet => Language::Dotnet,
        Source::Lua => Language::Lua,
        Source::C => Language::C,
        Source::Uprobe | Source::Sched | Source::Sampler => Language::Native,
    }
}

struct Parts {
    name: String,
    file: String,
    owner: String,
    line: u32,
    end_line: u32,
    column: u32,
    start: u32,
    end: u32,
    flags: u16,
    body_hash: u64,
    text_hash: u64,
}

impl Parts {
    fn info(self, source: Source) -> FunctionInfo {
        let file_name = self.file.rsplit('/').next().unwrap_or_default();
        let module = [&*self.owner, file_name, "?"]
            .into_iter()
            .find(|text| !text.is_empty())
            .unwrap_or_default()
            .to_owned();
        let place = self.source_place();
        let is_nameless = self.name.is_empty();
        let name = if is_nameless {
            format!("<anonymous {}>", self.place(file_name))
        } else {
            self.name.clone()
        };
        FunctionInfo {
            name,
            raw_name: self.name,
            module,
            file: (!self.file.is_empty()).then(|| self.file.clone()),
            path: self.file,
            line: (self.line > 0).then_some(self.line),
            build_id: hash(self.text_hash)
                .or_else(|| hash(self.body_hash))
                .unwrap_or_default(),
            file_offset: u64::from(if self.start == NOT_KNOWN {
                self.line
            } else {
                self.start
            }),
            size: extent(self.start, self.end).unwrap_or(0),
            unknown: is_nameless.then_some(UnknownReason::Nameless),
            place,
            ..blank(language(source))
        }
    }

    fn source_place(&self) -> SourcePlace {
        let known = |number: u32| (number != NOT_KNOWN).then_some(number);
        SourcePlace {
            end_line: (self.end_line > 0).then_some(self.end_line),
            column: known(self.column),
            range: known(self.start).zip(known(self.end)),
            body_hash: self.body_hash,
            text_hash: self.text_hash,
            flags: self.flags,
        }
    }

    fn place(&self, file_name: &str) -> String {
        let lines = if self.end_line > self.line {
            format!("-{}", self.end_line)
        } else {
            String::new()
        };
        let column = if self.column == NOT_KNOWN {
            String::new()
        } else {
            format!(":{}", self.column)
        };
        let generated = if self.flags & name_flags::GENERATED != 0 {
            " generated"
        } else {
            ""
        };
        format!("{file_name}:{}{lines}{column}{generated}", self.line)
    }
}

fn hash(number: u64) -> Option<String> {
    (number != 0).then(|| format!("{number:016x}"))
}

fn extent(start: u32, end: u32) -> Option<u64> {
    if start == NOT_KNOWN || end == NOT_KNOWN {
        return None;
    }
    end.checked_sub(start).map(u64::from)
}

/// Text from a stranger, fit to be shown: what is no UTF-8, and what a terminal would act on, is replaced.
pub(super) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.contains(char::is_control) {
        return text.into_owned();
    }
    text.chars()
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// Reads little-endian numbers off the front.
pub(super) struct Get<'a>(pub(super) &'a [u8]);

impl<'a> Get<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self, len: u32) -> Option<String> {
        self.take(usize::try_from(len).ok()?).map(clean)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record as a probe writes it.
    pub(in super::super) fn record(
        func: u32,
        source: Source,
        name: &str,
        file: &str,
        owner: &str,
        line: u32,
    ) -> Vec<u8> {
        let len = HEAD as usize + name.len() + file.len() + owner.len();
        let mut bytes = Vec::new();
        bytes.extend((len as u32).to_le_bytes());
        bytes.extend([RECORD, source as u8, 0, 0]);
        for number in [func, line, 0, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN] {
            bytes.extend(number.to_le_bytes());
        }
        for text in [name, file, owner] {
            bytes.extend((text.len() as u32).to_le_bytes());
        }
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(7u64.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        assert_eq!(bytes.len() as u64, HEAD);
        [name, file, owner]
            .iter()
            .for_each(|text| bytes.extend(text.as_bytes()));
        bytes
    }

    #[test]
    fn a_record_becomes_a_function_with_its_place() {
        let bytes = record(3, Source::Python, "A.f", "/app/a.py", "a", 12);
        let NameRecord { func, info, .. } = parse(&bytes).unwrap();
        assert_eq!(func, 3);
        assert_eq!(info.key(), "python:a:A.f");
        assert_eq!(
            (info.file.as_deref(), info.line),
            (Some("/app/a.py"), Some(12))
        );
        assert_eq!(
            (info.exit, info.unknown, &*info.build_id),
            (ExitStrategy::Probe, None, "0000000000000007")
        );
    }

    #[test]
    fn a_function_without_a_name_is_unknown_and_has_a_place() {
        let info = parse(&record(3, Source::Node, "", "/app/a.js", "", 12))
            .unwrap()
            .info;
        assert_eq!(
            (&*info.name, &*info.module),
            ("<anonymous a.js:12>", "a.js")
        );
        assert_eq!(info.unknown, Some(UnknownReason::Nameless));
    }

    #[test]
    fn records_that_make_no_sense_are_refused() {
        let good = record(3, Source::Python, "f", "g", "h", 1);
        assert!(parse(&good).is_some());
        for cut in 0..good.len() {
            assert_eq!(parse(&good[..cut]), None, "{cut}");
        }
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            parse(&bytes)
        };
        assert_eq!(changed(0, 200), None, "longer than it is");
        assert_eq!(changed(4, 2), None, "another version");
        assert_eq!(changed(5, Source::Uprobe as u8), None, "not a probe");
        assert_eq!(changed(35, 255), None, "texts of 4 GB");
    }

    #[test]
    fn what_a_terminal_would_act_on_is_replaced() {
        let info = parse(&record(1, Source::Python, "f\x1b[2J\n", "x", "", 1))
            .unwrap()
            .info;
        assert_eq!(info.name, "f\u{fffd}[2J\u{fffd}");
        assert_eq!(clean(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }
}
