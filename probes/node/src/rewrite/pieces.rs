//! What is inserted: the grammar of every piece, in both modes.
//!
//! Each piece holds the helper's name, none holds a line break, and `lib/source.js` takes them out of a function's text
//! again by the same grammar: change both together (a test compares them).

use super::find::{Found, Insertion, Piece, TOP_LEVEL};
use super::units::Units;
use super::{Edits, Rewritten};

/// The helper's name in rewritten code, and the start of every name that pieces use.
pub const HELPER: &str = "$scalpel";

/// The helper, or one that records nothing: a script may run in a context that has none.
const FALLBACK: &str =
    r#"typeof $scalpel=="object"?$scalpel:{v:x=>x,o:x=>x,c:{},g:new Proxy({},{get:()=>1})}"#;

/// Once on every line that has a piece: Node.js prints no excerpt of such a line, which would show what was inserted, when an
/// exception ends the program (`GetErrorSource` in its `node_errors.cc`). `lib/fatal.js` prints the original instead.
const UNPRINTED: &str = "/*$scalpel:node-do-not-add-exception-line*/";

/// What the inserted code records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Enter, exit, suspend and resume, by calls into the addon.
    Call,
    /// How often each function was entered, in counters that the collector reads.
    Count,
}

/// Ids of a text's functions, 0 = none: leave that one alone.
#[derive(Clone, Copy, Debug)]
pub struct Ids<'a> {
    /// Of the text's own body.
    pub top_level: u32,
    /// Of [`Found::functions`].
    pub functions: &'a [u32],
}

/// One function's piece.
struct Writer<'a> {
    id: u32,
    helper: &'a str,
    /// Declares the alias first.
    outermost: bool,
    suspends: bool,
    /// What tells that it is suspended, and that it goes on.
    waits: [char; 2],
}

/// Functions' [`Writer::waits`].
const WAITS: [char; 2] = ['s', 'r'];

/// A module's.
const TOP_LEVEL_WAITS: [char; 2] = ['p', 'q'];

/// Index of a function's switch in a view of 32-bit words over the segment's functions.
pub(super) fn switch_index(id: u32) -> u64 {
    u64::from(id) * 8 + 6
}

impl Writer<'_> {
    fn call(&self, piece: Piece) -> String {
        let (h, id) = (self.helper, self.id);
        let exit = if self.suspends { 'y' } else { 'x' };
        match piece {
            Piece::Start => format!("{},$scalpel$r,$scalpel$v;try{{", self.start()),
            Piece::End => format!(
                ";$scalpel$r=1}}finally{{$scalpel$t&&{h}.{exit}($scalpel$t,{id},$scalpel$r)}}"
            ),
            Piece::ArrowStart => format!("{{;{}return($scalpel$v=(0,", self.call(Piece::Start)),
            Piece::ArrowEnd => format!(
                "),$scalpel$r=1,$scalpel$v)}}finally{{$scalpel$t&&{h}.{exit}($scalpel$t,{id},$scalpel$r)}}}}"
            ),
            Piece::ReturnStart => "($scalpel$v=(0,".to_owned(),
            Piece::ReturnEnd => "),$scalpel$r=1,$scalpel$v)".to_owned(),
            Piece::ReturnNothing => "{$scalpel$r=1;".to_owned(),
            Piece::ReturnedNothing => "/*$scalpel*/}".to_owned(),
            Piece::WaitStart | Piece::ArgumentStart => format!("{h}.v("),
            Piece::ArgumentEnd => format!(",{})", self.suspend()),
            Piece::NoArgument => format!(" {h}.v(void 0,{})", self.suspend()),
            Piece::WaitEnd => format!(",{})", self.resume()),
            Piece::Resume => format!("{};", self.resume()),
            Piece::Suspend => format!(";{};", self.suspend()),
            Piece::BlockStart => "{/*$scalpel*/".to_owned(),
            Piece::BlockEnd => "/*$scalpel*/}".to_owned(),
        }
    }

    fn start(&self) -> String {
        let enter = if self.suspends { 'a' } else { 'e' };
        self.entered(enter, "")
    }

    /// The token, declared: of a call that `enter` tells of.
    fn entered(&self, enter: char, more: &str) -> String {
        let (h, id) = (self.helper, self.id);
        let alias = if self.outermost {
            format!("$scalpel$h={FALLBACK},")
        } else {
            String::new()
        };
        let switch = switch_index(id);
        format!(";let {alias}$scalpel$t={h}.g[{switch}]?0:{h}.{enter}({id}{more})")
    }

    /// A module's body stands in no block: an exception that ends it is found out by the addon, and so its pieces have
    /// functions of their own.
    fn top_level(&self, piece: Piece) -> String {
        let (h, id, suspends) = (self.helper, self.id, u8::from(self.suspends));
        match piece {
            Piece::Start => self.entered('m', &format!(",{suspends}")) + ";",
            Piece::End => format!(";$scalpel$t&&{h}.z($scalpel$t,{id},{suspends});"),
            // At each `catch`: nothing of it waits.
            Piece::Resume if !self.suspends => String::new(),
            _ => self.call(piece),
        }
    }

    fn suspend(&self) -> String {
        let (h, id, [suspend, _]) = (self.helper, self.id, self.waits);
        format!("$scalpel$t&&($scalpel$t={h}.{suspend}($scalpel$t,{id}))")
    }

    fn resume(&self) -> String {
        let (h, id, [_, resume]) = (self.helper, self.id, self.waits);
        format!("$scalpel$t<0&&($scalpel$t={h}.{resume}($scalpel$t,{id}))")
    }

    /// Where `counted` is evaluated at each call, and nothing else.
    fn count(&self, piece: Piece, counted: &str) -> String {
        let alias = if self.outermost {
            format!(";let $scalpel$h={FALLBACK}")
        } else {
            String::new()
        };
        match piece {
            Piece::Start => format!("{alias};{counted};"),
            Piece::ArrowStart if self.outermost => {
                format!("{{;{alias};{counted};return(0,")
            }
            Piece::ArrowEnd if self.outermost => ")/*$scalpel;*/}".to_owned(),
            Piece::ArrowStart => format!("({counted},"),
            Piece::ArrowEnd => "/*$scalpel*/)".to_owned(),
            _ => String::new(),
        }
    }
}

/// The text with every piece of every function that has an id.
pub(super) fn render(
    text: &str,
    found: &Found,
    ids: Ids<'_>,
    mode: Mode,
    alias: bool,
) -> Rewritten {
    let units = Units::new(text);
    let mut out = String::with_capacity(text.len() * 3 / 2);
    let mut edits = Edits::new(units.line_offsets());
    let mut done = 0;
    let mut last_line = 0;
    for insertion in &found.insertions {
        let mut piece = piece(insertion, found, ids, mode, alias);
        if !piece.is_empty() {
            let (line, _) = units.position(insertion.at);
            if line != last_line {
                piece.push_str(UNPRINTED);
                last_line = line;
            }
            out.push_str(text.get(done..insertion.at as usize).unwrap_or(""));
            done = insertion.at as usize;
            edits.insert(units.offset(insertion.at), piece.len() as u32);
            out.push_str(&piece);
        }
    }
    out.push_str(text.get(done..).unwrap_or(""));
    Rewritten { text: out, edits }
}

fn piece(insertion: &Insertion, found: &Found, ids: Ids<'_>, mode: Mode, alias: bool) -> String {
    let place = insertion.piece;
    let helper = if alias { "$scalpel$h" } else { HELPER };
    let by_counter = |id| format!("{helper}.c[{id}]++");
    if insertion.function == TOP_LEVEL {
        let id = ids.top_level;
        let Some(top_level) = found.top_level.filter(|_| id != 0) else {
            return String::new();
        };
        let writer = Writer {
            id,
            helper,
            outermost: alias,
            suspends: top_level.suspends,
            waits: TOP_LEVEL_WAITS,
        };
        return match mode {
            Mode::Call => writer.top_level(place),
            Mode::Count => writer.count(place, &by_counter(id)),
        };
    }
    let id = ids.functions.get(insertion.function).copied().unwrap_or(0);
    let function = found.functions.get(insertion.function);
    let Some(function) = function.filter(|_| id != 0) else {
        return String::new();
    };
    let writer = Writer {
        id,
        helper,
        outermost: alias && function.outermost,
        suspends: function.suspends,
        waits: WAITS,
    };
    match mode {
        Mode::Call if function.left_alone => writer.count(place, &format!("{helper}.o({id})")),
        Mode::Call => writer.call(place),
        Mode::Count => writer.count(place, &by_counter(id)),
    }
}
