//! A catalog with one of everything, and what the shape promises.

use super::{
    Builder, Catalog, DefId, Definition, Edge, File, FileId, Flags, FoundBy, Gap, GapKind, How,
    Kind, Native, Piece, PieceKind, Position, Span, hash,
};
use crate::function::Language;

/// A Python file with two functions of one name and a call, and an executable with a cold part.
pub(crate) fn example() -> Catalog {
    let mut builder = Builder::new();
    let root = builder.root("/srv/shop");
    let source = builder.file(file(Some(root), "shop/cart.py", Language::Python));
    let first = builder.definition(definition(source, "add", Kind::Function));
    let second = builder.definition(Definition {
        parent: Some(first),
        flags: Flags {
            is_async: true,
            ..Flags::default()
        },
        ..definition(source, "add", Kind::Closure)
    });
    builder.edge(edge(first, second, How::Scope));
    builder.counts(source, 3, 1);
    builder.gap(Gap {
        file: Some(source),
        kind: GapKind::SyntaxError,
        line: 7,
        count: 1,
        detail: "near `x = =`".into(),
    });
    add_executable(&mut builder);
    builder.finish()
}

fn add_executable(builder: &mut Builder) {
    let image = builder.file(File {
        build_id: "0123abcd".into(),
        text_hash: 0,
        lines: 0,
        ..file(None, "/usr/bin/shop", Language::Native)
    });
    let native = builder.definition(Definition {
        native: Some(Native {
            raw_name: "_Z4servev".into(),
            address: 0xffff_ffff_8000_1000,
            file_offset: 0x1000,
            size: 64,
            source: Some("serve.cc".into()),
            line: Some(12),
            column: Some(5),
            found_by: FoundBy::Dwarf,
        }),
        span: Span::default(),
        ..definition(image, "serve()", Kind::Native)
    });
    builder.piece(Piece {
        of: native,
        kind: PieceKind::Cold,
        address: 0x900,
        file_offset: 0x900,
        size: 16,
        host: Some(native),
    });
    builder.edge(edge(native, native, How::TailJump));
}

fn file(root: Option<super::RootId>, path: &str, language: Language) -> File {
    File {
        root,
        path: path.into(),
        language,
        content: [7; 32],
        text_hash: hash(path.as_bytes()),
        build_id: String::new(),
        bytes: 120,
        lines: 9,
        calls: 0,
        resolved: 0,
    }
}

fn definition(file: FileId, name: &str, kind: Kind) -> Definition {
    let at = |byte| Position {
        byte,
        utf16: byte,
        line: 2,
        column: byte,
    };
    Definition {
        file,
        parent: None,
        kind,
        name: name.into(),
        qualified: name.into(),
        ordinal: 0,
        flags: Flags::default(),
        body_hash: u64::MAX,
        span: Span {
            start: at(4),
            end: at(90),
            declared: at(0),
            name: at(8),
            body: at(20),
        },
        native: None,
    }
}

fn edge(caller: DefId, callee: DefId, how: How) -> Edge {
    Edge {
        caller,
        callee,
        how,
        at: 40,
        line: 3,
        column: 1,
    }
}

#[test]
fn definitions_of_one_name_are_numbered_within_their_file() {
    let ordinals: Vec<_> = example().definitions.iter().map(|d| d.ordinal).collect();
    assert_eq!(ordinals, [0, 1, 0]);
}

#[test]
fn words_are_unique_and_lead_back() {
    for &kind in Kind::ALL {
        assert_eq!(Kind::of_word(kind.word()), Some(kind));
    }
    for &how in How::ALL {
        assert_eq!(How::of_word(how.word()), Some(how));
    }
    for &kind in GapKind::ALL {
        assert_eq!(GapKind::of_word(kind.word()), Some(kind));
    }
}

/// The number that `scalpel::hash` of the probes gives for the same bytes.
#[test]
fn texts_have_the_hash_that_probes_send() {
    assert_eq!(hash(b"function f() {}"), 8_758_387_913_738_288_709);
}
