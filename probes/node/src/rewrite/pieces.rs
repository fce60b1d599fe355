//! What is inserted: the grammar of every piece, in both modes.
//!
//! Each piece holds the helper's name, none holds a line break, and `lib/source.js` takes them out of a function's text
//! again by the same grammar: change both together (a test compares them).

use super::find::{Found, Insertion, Piece};
use super::units::Units;
use super::{Edits, Rewritten};

/// The helper's name in rewritten code, and the start of every name that pieces use.
pub const HELPER: &str = "$scalpel";

/// The helper, or one that records nothing: a script may run in a context that has none.
const FALLBACK: &str =
    r#"typeof $scalpel=="object"?$scalpel:{v:x=>x,c:{},g:new Proxy({},{get:()=>1})}"#;

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

/// One function's piece.
struct Writer<'a> {
    id: u32,
    helper: &'a str,
    /// Declares the alias first.
    outermost: bool,
    suspends: bool,
}

/// Index of a function's switch in a view of 32-bit words over the segment's functions.
pub(super) fn switch_index(id: u32) -> u64 {
    u64::from(id) * 8 + 6
}

impl Writer<'_> {
    fn call(&self, piece: Piece) -> String {
        let (h, id) = (self.helper, self.id);
        let exit = if self.suspends { 'y' } else { 'x' };
        match piece {
            Piece::Start => self.start(),
            Piece::End => format!(
                ";$scalpel$r=1}}finally{{$scalpel$t&&{h}.{exit}($scalpel$t,{id},$scalpel$r)}}"
            ),
            Piece::ArrowStart => format!("{{;{}return($scalpel$v=(0,", self.start()),
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
        let (h, id) = (self.helper, self.id);
        let alias = if self.outermost {
            format!("$scalpel$h={FALLBACK},")
        } else {
            String::new()
        };
        let enter = if self.suspends { 'a' } else { 'e' };
        let switch = switch_index(id);
        format!(
            ";let {alias}$scalpel$t={h}.g[{switch}]?0:{h}.{enter}({id}),$scalpel$r,$scalpel$v;try{{"
        )
    }

    fn suspend(&self) -> String {
        format!(
            "$scalpel$t&&($scalpel$t={}.s($scalpel$t,{}))",
            self.helper, self.id
        )
    }

    fn resume(&self) -> String {
        format!(
            "$scalpel$t<0&&($scalpel$t={}.r($scalpel$t,{}))",
            self.helper, self.id
        )
    }

    fn count(&self, piece: Piece) -> String {
        let id = self.id;
        let (alias, h) = if self.outermost {
            (format!(";let $scalpel$h={FALLBACK}"), self.helper)
        } else {
            (String::new(), self.helper)
        };
        match piece {
            Piece::Start => format!("{alias};{h}.c[{id}]++;"),
            Piece::ArrowStart if self.outermost => {
                format!("{{;{alias};{h}.c[{id}]++;return(0,")
            }
            Piece::ArrowEnd if self.outermost => ")/*$scalpel;*/}".to_owned(),
            Piece::ArrowStart => format!("({h}.c[{id}]++,"),
            Piece::ArrowEnd => "/*$scalpel*/)".to_owned(),
            _ => String::new(),
        }
    }
}

/// The text with every piece of every function that has an id.
pub(super) fn render(text: &str, found: &Found, ids: &[u32], mode: Mode, alias: bool) -> Rewritten {
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

fn piece(insertion: &Insertion, found: &Found, ids: &[u32], mode: Mode, alias: bool) -> String {
    let id = ids.get(insertion.function).copied().unwrap_or(0);
    let function = found.functions.get(insertion.function);
    let Some(function) = function.filter(|_| id != 0) else {
        return String::new();
    };
    let writer = Writer {
        id,
        helper: if alias { "$scalpel$h" } else { HELPER },
        outermost: alias && function.outermost,
        suspends: function.suspends,
    };
    match mode {
        Mode::Call if function.left_alone => String::new(),
        Mode::Call => writer.call(insertion.piece),
        Mode::Count => writer.count(insertion.piece),
    }
}
