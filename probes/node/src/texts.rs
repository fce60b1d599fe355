//! Every text that was loaded in this process: which ids its functions have, and how its columns find back.
//!
//! One for all isolates: a module that ten workers load, or that a test runner evaluates in a hundred contexts, is one set
//! of functions.
use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use globset::{Glob, GlobSet, GlobSetBuilder};
use scalpel::{NOTE_TEXT, Name, Segment, Source as Language, name_flags, note_kind, unseen};

use crate::rewrite::{self, Edits, Found, Function, Ids, Kind, Left, Mode, Source};

/// A text as a hook hands it over.
#[derive(Clone, Copy, Debug)]
pub struct Loaded<'a> {
    /// The text, how to read it.
    pub source: Source<'a>,
    /// Path or URL, as V8 gives it in stack traces.
    pub file: &'a str,
    /// Lines and columns that its host has put before it.
    pub offset: (i32, i32),
    /// Whether the helper is looked up in each outermost function.
    pub alias: bool,
}

/// What becomes of a loaded text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The text to run; `None` = the original.
    pub text: Option<String>,
    /// Function id of the text's own top level, where whoever runs the text has to tell of it; 0 = nowhere.
    pub module: u32,
    /// Whether it holds `import(...)`.
    pub imports: bool,
}

/// What a recording wants.
#[derive(Debug)]
pub struct Wanted {
    /// What is inserted; `None` = nothing, functions are only listed (V8 counts).
    pub mode: Option<Mode>,
    /// Most ids that counters have room for.
    pub most: u32,
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
}

impl Seen {
    fn counts(&self) -> [(u8, u64, &'static str); 5] {
        use scalpel::note_kind::{BLIND_SPOT, EXCLUDED, REFUSAL};
        [
            (EXCLUDED, self.excluded, "files left out by a filter"),
            (
                REFUSAL,
                self.refused,
                "texts that were run as they are: they could not be read, or not be rewritten",
            ),
            (
                BLIND_SPOT,
                self.functions_left,
                "functions that are only counted: they hold `with`, or declare a name twice",
            ),
            (BLIND_SPOT, self.without_id, "functions that got no id"),
            (
                BLIND_SPOT,
                self.evals,
                "places that make functions of text (eval, Function), which are not seen",
            ),
        ]
    }

    /// Leaves a note for each count that has grown since `before`: each time while it is small, then each time that it has
    /// doubled, so that what a killed process leaves is of the right size.
    fn tell(&self, before: &Self, segment: &Segment) {
        for ((kind, now, text), (_, then, _)) in self.counts().into_iter().zip(before.counts()) {
            let doubled = now.checked_ilog2() != then.checked_ilog2();
            if now != then && (now < 8 || doubled) {
                segment.note(kind, Language::Node, now, text);
            }
        }
    }
}

impl Wanted {
    /// `include` and `exclude` are globs over paths, separated by commas; one that cannot be read is answered.
    pub fn new(
        mode: Option<Mode>,
        include: Option<&str>,
        exclude: Option<&str>,
    ) -> Result<Self, String> {
        Ok(Self {
            mode,
            most: u32::MAX,
            include: include.map(globs).transpose()?,
            exclude: exclude.map(globs).transpose()?,
        })
    }

    /// Whether functions of this file are recorded.
    pub fn wants(&self, file: &str) -> bool {
        let path = file.strip_prefix("file://").unwrap_or(file);
        let matches = |set: &GlobSet| set.is_match(path);
        self.include.as_ref().is_none_or(matches) && !self.exclude.as_ref().is_some_and(matches)
    }
}

fn globs(list: &str) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in list.split(',').filter(|pattern| !pattern.is_empty()) {
        set.add(Glob::new(pattern).map_err(|error| error.to_string())?);
    }
    set.build().map_err(|error| error.to_string())
}

/// What was seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Texts whose functions are recorded.
    pub texts: u64,
    /// Texts that a filter left out.
    pub excluded: u64,
    /// Texts that were run as they are, because they cannot be read or the rewritten one would not parse.
    pub refused: u64,
    /// Functions that call mode only counts.
    pub functions_left: u64,
    /// Functions that got no id.
    pub without_id: u64,
    /// Places that make functions of text at run time.
    pub evals: u64,
}

#[derive(Default)]
struct Texts {
    /// Ids by hash of file and text: the top level's first.
    ids: HashMap<u64, Vec<u32>>,
    files: HashMap<String, Placed>,
    /// Functions of files by start and end, for V8's counts.
    ranges: HashMap<String, HashMap<(u32, u32), u32>>,
    /// Files of which functions may run unseen.
    unseen: HashSet<String>,
    seen: Seen,
}

/// Files that are told one by one: their notes share their room with others.
const MOST_UNSEEN: usize = 200;

/// Says of a file, once, that functions of it may run unseen; of those beyond the most, that any may.
fn unseen_in(segment: &Segment, file: &str, why: u64) {
    let mut texts = texts();
    let path = file.strip_prefix("file://").unwrap_or(file);
    if texts.unseen.len() > MOST_UNSEEN || !texts.unseen.insert(path.to_owned()) {
        return;
    }
    let fits = texts.unseen.len() <= MOST_UNSEEN && path.len() <= NOTE_TEXT;
    segment.note(
        note_kind::UNSEEN,
        Language::Node,
        why,
        if fits { path } else { "" },
    );
}

struct Placed {
    edits: Edits,
    offset: (i32, i32),
}

static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);

fn texts() -> MutexGuard<'static, Texts> {
    TEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a text in: names its functions, and rewrites it.
pub fn load(segment: &Segment, wanted: &Wanted, loaded: &Loaded<'_>) -> Answer {
    let before = texts().seen;
    let answer = take_in(segment, wanted, loaded);
    let now = texts().seen;
    now.tell(&before, segment);
    answer
}

fn take_in(segment: &Segment, wanted: &Wanted, loaded: &Loaded<'_>) -> Answer {
    if !wanted.wants(loaded.file) {
        texts().seen.excluded += 1;
        unseen_in(segment, loaded.file, unseen::EXCLUDED);
        return Answer::default();
    }
    let mut loaded = *loaded;
    let found = match find(&mut loaded.source) {
        Ok(found) => found,
        Err(left) => {
            let is_rewritten = left == Left::NamesHelper;
            texts().seen.refused += u64::from(!is_rewritten);
            if !is_rewritten || !texts().files.contains_key(loaded.file) {
                unseen_in(segment, loaded.file, unseen::UNREAD);
            }
            return Answer::default();
        }
    };
    let all = ids(segment, wanted, &loaded, &found);
    let (top_level, functions) = all.split_first().map_or((0, &[][..]), |(a, b)| (*a, b));
    let ids = Ids {
        top_level,
        functions,
    };
    let is_module = loaded.source.kind == Kind::Module;
    Answer {
        text: wanted
            .mode
            .and_then(|mode| rewritten(segment, &loaded, &found, ids, mode)),
        module: if is_module { 0 } else { top_level },
        imports: found.imports,
    }
}

/// What a `CommonJS` hook gets may be a module, as Node.js finds out by its syntax only after that.
fn find(source: &mut Source<'_>) -> Result<Found, Left> {
    match rewrite::find(*source) {
        Err(Left::Unreadable) if source.kind == Kind::CommonJs => {
            source.kind = Kind::Module;
            rewrite::find(*source)
        }
        found => found,
    }
}

fn rewritten(
    segment: &Segment,
    loaded: &Loaded<'_>,
    found: &Found,
    ids: Ids<'_>,
    mode: Mode,
) -> Option<String> {
    match rewrite::rewrite(loaded.source, found, ids, mode, loaded.alias) {
        Ok(rewritten) => {
            let placed = Placed {
                edits: rewritten.edits,
                offset: loaded.offset,
            };
            texts().files.insert(loaded.file.to_owned(), placed);
            Some(rewritten.text)
        }
        Err(Left::NoFunction) => None,
        Err(_) => {
            texts().seen.refused += 1;
            unseen_in(segment, loaded.file, unseen::UNREAD);
            None
        }
    }
}

/// The ids of a text, given out and named at its first load.
fn ids(segment: &Segment, wanted: &Wanted, loaded: &Loaded<'_>, found: &Found) -> Vec<u32> {
    let text_hash = scalpel::hash(loaded.source.text.as_bytes());
    let key = text_hash ^ scalpel::hash(loaded.file.as_bytes()).rotate_left(17);
    let mut texts = texts();
    if let Some(known) = texts.ids.get(&key) {
        return known.clone();
    }
    let module = top_level(loaded.source, found);
    let ids: Vec<u32> = std::iter::once(&module)
        .chain(&found.functions)
        .map(|function| intern(segment, wanted, loaded, text_hash, function))
        .collect();
    let seen = &mut texts.seen;
    seen.texts += 1;
    seen.evals += u64::from(found.evals);
    let without_id = ids.iter().filter(|id| **id == 0).count() as u64;
    seen.without_id += without_id;
    if wanted.mode == Some(Mode::Call) {
        let left = found.functions.iter().filter(|one| one.left_alone);
        seen.functions_left += left.count() as u64;
    }
    let ranges = texts.ranges.entry(loaded.file.to_owned()).or_default();
    for (function, &id) in std::iter::once(&module).chain(&found.functions).zip(&ids) {
        ranges.insert((function.start, function.end), id);
    }
    texts.ids.insert(key, ids.clone());
    drop(texts);
    if without_id > 0 {
        unseen_in(segment, loaded.file, unseen::EXCLUDED);
    }
    ids
}

fn intern(
    segment: &Segment,
    wanted: &Wanted,
    loaded: &Loaded<'_>,
    text_hash: u64,
    function: &Function,
) -> u32 {
    let id = segment.new_function();
    if id == 0 || id >= wanted.most {
        return 0;
    }
    let text = loaded.source.text;
    let body = text.get(function.body.clone()).unwrap_or("");
    let third_party = if loaded.file.contains("/node_modules/") {
        name_flags::THIRD_PARTY
    } else {
        0
    };
    let named = Name {
        source: Language::Node,
        flags: function.flags | third_party,
        line: function.line,
        end_line: function.end_line,
        column: Some(function.column),
        start: Some(function.start),
        end: Some(function.end),
        name: &function.name,
        file: loaded.file.strip_prefix("file://").unwrap_or(loaded.file),
        owner: &function.owner,
        body_hash: scalpel::hash(body.as_bytes()),
        text_hash,
    };
    segment.name(id, &named);
    id
}

/// The text's own top level, as V8 lists it: from 0 to the end.
fn top_level(source: Source<'_>, found: &Found) -> Function {
    let waits = found.top_level.is_some_and(|body| body.suspends);
    Function {
        name: match source.kind {
            Kind::Module | Kind::CommonJs => "(module)".to_owned(),
            Kind::Script => "(script)".to_owned(),
        },
        flags: name_flags::MODULE | if waits { name_flags::ASYNC } else { 0 },
        line: 1,
        end_line: source.text.lines().count() as u32,
        end: source.text.encode_utf16().count() as u32,
        body: 0..source.text.len(),
        ..Function::default()
    }
}

/// The original column (from 1, as V8 counts) of a place in a file's rewritten text; `None` = the same.
pub fn column(file: &str, line: i32, column: i32) -> Option<i32> {
    let texts = texts();
    let placed = texts.files.get(file)?;
    let (lines, columns) = placed.offset;
    let line = line - lines;
    let shift = if line == 1 { columns } else { 0 };
    let (line, from) = (
        u32::try_from(line).ok()?,
        u32::try_from(column - 1 - shift).ok()?,
    );
    let back = i32::try_from(placed.edits.column(line, from)).ok()? + 1 + shift;
    (back != column).then_some(back)
}

/// Whether anything was inserted in this line of a file.
pub fn touched(file: &str, line: i32) -> bool {
    let texts = texts();
    let placed = texts.files.get(file);
    placed.is_some_and(|placed| {
        u32::try_from(line - placed.offset.0).is_ok_and(|line| placed.edits.touches(line))
    })
}

/// The function of a file that V8 lists with this range of its (not rewritten) text; 0 = none.
pub fn by_range(file: &str, start: u32, end: u32) -> u32 {
    let texts = texts();
    let ranges = texts.ranges.get(file);
    ranges
        .and_then(|ranges| ranges.get(&(start, end)))
        .copied()
        .unwrap_or(0)
}

/// Offsets of a file's rewritten text as offsets of the original.
pub fn offset(file: &str, offset: u32) -> u32 {
    let texts = texts();
    texts
        .files
        .get(file)
        .map_or(offset, |placed| placed.edits.offset(offset))
}
