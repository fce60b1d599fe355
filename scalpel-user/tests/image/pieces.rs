//! Code that lies apart from its function, and debug information that lies apart from its unit or its file.

use std::process::Command;

use scalpel_user::catalog::{Catalog, DefId, Kept, PieceKind};
use scalpel_user::static_;

use crate::build::{Workshop, has};

fn catalog(workshop: &Workshop, name: &str) -> Catalog {
    let built = static_::build(&[], &[workshop.path(name)], &Kept::default(), &|| false);
    built.unwrap().kept.catalog
}

fn name(catalog: &Catalog, id: DefId) -> &str {
    &catalog.definitions[id.index()].name
}

/// Address and owner of the pieces of a kind.
fn pieces(catalog: &Catalog, kind: PieceKind) -> Vec<(u64, DefId)> {
    let of_kind = catalog.pieces.iter().filter(|piece| piece.kind == kind);
    of_kind.map(|piece| (piece.address, piece.of)).collect()
}

/// Each of two functions has a part that the compiler takes for cold and puts elsewhere.
const SPLIT: &str = "\
#include <stdlib.h>
__attribute__((cold, noinline)) void rare(int x) { if (x) abort(); }
__attribute__((noinline)) int work(int x) { return x * x + 1; }
__attribute__((noinline)) int first(int x) { int y = work(x); if (__builtin_expect(y == 77, 0)) { rare(x); rare(y); return y * 3; } return x + y; }
__attribute__((noinline)) int second(int x) { if (__builtin_expect(x == 78, 0)) { rare(x + 2); rare(x); return x * 5; } return x + 2; }
int main(int c, char **v) { (void)v; return first(c) + second(c); }
";

#[test]
fn parts_that_lie_apart_belong_to_their_function_with_and_without_names() {
    let workshop = Workshop::new();
    workshop.source("a.c", SPLIT).run("gcc -O2 -g -o a a.c");
    let whole = catalog(&workshop, "a");
    let cold = pieces(&whole, PieceKind::Cold);
    let owners: Vec<&str> = cold.iter().map(|(_, of)| name(&whole, *of)).collect();
    assert!(
        owners.contains(&"first") && owners.contains(&"second"),
        "{owners:?}"
    );

    // Without the symbols of the parts, debug information has them as further ranges.
    workshop.run("objcopy --wildcard --strip-symbol=*.cold* a without");
    let without = catalog(&workshop, "without");
    let owner = |catalog: &Catalog, address: u64| {
        let found = catalog.pieces.iter().find(|piece| piece.address == address);
        found.map(|piece| (piece.kind, name(catalog, piece.of).to_owned()))
    };
    let of = |wanted: &str| {
        let found = cold.iter().find(|(_, of)| name(&whole, *of) == wanted);
        found.unwrap_or_else(|| panic!("{wanted} has no part")).0
    };
    // The one begins within a frame, which tells that it is no function; the other does not.
    let (framed, plain) = (of("first"), of("second"));
    assert_eq!(
        owner(&without, framed),
        Some((PieceKind::Cold, "first".into()))
    );
    assert_eq!(
        owner(&without, plain),
        Some((PieceKind::Range, "second".into()))
    );

    // Without any symbol, a part that begins within a frame is that of the only function that jumps into it.
    workshop.run("strip -o stripped a");
    let stripped = catalog(&workshop, "stripped");
    let address = |catalog: &Catalog, id: DefId| {
        let native = catalog.definitions[id.index()].native.as_ref();
        native.map(|native| native.address)
    };
    let found = stripped.pieces.iter().find(|piece| piece.address == framed);
    let first = whole
        .numbered()
        .find(|(_, it)| it.name == "first")
        .unwrap()
        .0;
    let owner = found.and_then(|piece| address(&stripped, piece.of));
    assert_eq!(owner, address(&whole, first));
}

#[test]
fn what_is_inlined_across_units_keeps_its_name_and_place() {
    let workshop = Workshop::new();
    workshop
        .source(
            "a.c",
            "int far(int);\nint main(int c, char **v) { (void)v; return far(c); }\n",
        )
        .source(
            "b.c",
            "static inline int near(int x) { return x ^ 5; }\n\nint far(int x) { return near(x) * 7; }\n",
        )
        .run("gcc -O2 -g -flto -flto-partition=one -o a a.c b.c");
    let catalog = catalog(&workshop, "a");
    for (wanted, line) in [("far", 3), ("near", 1)] {
        let inlined = pieces(&catalog, PieceKind::Inlined);
        let of = inlined.iter().find(|(_, of)| name(&catalog, *of) == wanted);
        let (_, of) = of.unwrap_or_else(|| panic!("{wanted} is not inlined"));
        let native = catalog.definitions[of.index()].native.as_ref().unwrap();
        let source = native.source.as_deref().unwrap_or_default();
        assert!(source.ends_with("/b.c"), "{wanted}: {source}");
        assert_eq!(native.line, Some(line), "{wanted}");
    }
}

/// One unit of debug information by hand: `shared` names a function, `a` has an inlined copy of it within its own.
const SHARED: &str = "\
.section .debug_abbrev,\"\",@progbits
.byte 1,0x11,1, 0x03,0x08, 0x13,0x0b, 0,0
.byte 2,0x2e,0, 0x03,0x08, 0x3b,0x0b, 0x20,0x0b, 0,0
.byte 0
.section .debug_info,\"\",@progbits
.Lbegin: .long .Lend-.Lfirst
.Lfirst: .value 4
.long .debug_abbrev
.byte 8
.byte 1; .asciz \"shared.c\"; .byte 12
.Lfunction: .byte 2; .asciz \"of_all\"; .byte 42; .byte 1
.byte 0
.Lend:
";

const OWN: &str = "\
.text
.globl host
.type host,@function
host:
.cfi_startproc
nop
.Lcopy: nop
nop
.Lcopied: ret
.cfi_endproc
.Lhost_end: .size host,.-host
.section .debug_abbrev,\"\",@progbits
.byte 1,0x11,1, 0x03,0x08, 0x13,0x0b, 0x11,0x01, 0x12,0x07, 0,0
.byte 2,0x2e,1, 0x03,0x08, 0x3b,0x0b, 0x11,0x01, 0x12,0x07, 0,0
.byte 3,0x1d,0, 0x31,0xa0,0x3e, 0x11,0x01, 0x12,0x07, 0,0
.byte 0
.section .debug_info,\"\",@progbits
.long .Lend-.Lfirst
.Lfirst: .value 4
.long .debug_abbrev
.byte 8
.byte 1; .asciz \"own.c\"; .byte 12; .quad host; .quad .Lhost_end-host
.byte 2; .asciz \"host\"; .byte 7; .quad host; .quad .Lhost_end-host
.byte 3; .long OFFSET; .quad .Lcopy; .quad .Lcopied-.Lcopy
.byte 0
.byte 0
.Lend:
";

/// Bytes before the function's entry in [`SHARED`]: the head of the unit, and the unit's own entry.
const OFFSET: usize = 11 + 1 + "shared.c".len() + 1 + 1;

#[test]
fn names_of_a_shared_debug_file_are_found_and_only_if_it_is_the_one_that_is_meant() {
    if !has("objcopy") {
        return;
    }
    let workshop = Workshop::new();
    let id = "00112233445566778899aabbccddeeff00112233";
    let link = |id: &str| {
        let mut bytes = b"shared.debug".to_vec();
        bytes.push(0);
        let digits = id.as_bytes().chunks(2);
        bytes.extend(digits.map(|pair| {
            let text = std::str::from_utf8(pair).unwrap();
            u8::from_str_radix(text, 16).unwrap()
        }));
        bytes
    };
    workshop
        .source("shared.s", SHARED)
        .source("own.s", &OWN.replace("OFFSET", &OFFSET.to_string()))
        .run(&format!(
            "gcc -shared -nostdlib -Wl,--build-id=0x{id} -o shared.debug shared.s"
        ))
        .run("gcc -shared -nostdlib -o plain.so own.s");
    let inlined = |build_id: &str, name: &str| {
        std::fs::write(workshop.path("link"), link(build_id)).unwrap();
        let mut add = Command::new("objcopy");
        add.arg("--add-section")
            .arg(format!(
                ".gnu_debugaltlink={}",
                workshop.path("link").display()
            ))
            .args([workshop.path("plain.so"), workshop.path(name)]);
        assert!(add.status().unwrap().success());
        let catalog = catalog(&workshop, name);
        let found = pieces(&catalog, PieceKind::Inlined);
        found
            .iter()
            .map(|(_, of)| {
                let definition = &catalog.definitions[of.index()];
                let line = definition.native.as_ref().and_then(|native| native.line);
                (definition.name.clone(), line)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(inlined(id, "a.so"), [("of_all".to_owned(), Some(42))]);
    // Another file of that name: nothing is taken from it.
    let other = id.replace("0011", "1100");
    assert_eq!(inlined(&other, "b.so"), []);
}
