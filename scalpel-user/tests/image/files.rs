//! Kinds of files: where functions are found, under which names, at which offsets.

use std::collections::HashMap;

use scalpel_user::function::{Language, UnknownReason};
use scalpel_user::image::{
    DebugFiles, ExitPolicy, Image, ImageError, ImageFunction, ImageKind, NameOrigin, NoDebugFiles,
    Part, Pattern, is_cheap, near_misses, plan_sites, select,
};

use crate::build::Workshop;

const PROGRAM: &str = "#include <stdio.h>\nstatic __attribute__((noinline)) int helper(int x) { return x * 7; }\n__attribute__((noinline)) int work(int x) { return helper(x) + 1; }\nint main(int n, char **v) { (void)v; printf(\"%d\\n\", work(n)); return 0; }\n";

/// Removes the section headers, as some packers do.
pub(crate) fn drop_section_headers(bytes: &mut [u8]) {
    bytes[0x28..0x30].fill(0);
    bytes[0x3a..0x40].fill(0);
}

fn built(flags: &str) -> (Workshop, Vec<u8>) {
    let workshop = Workshop::new();
    let bytes = workshop
        .source("a.c", PROGRAM)
        .run(&format!("gcc -O1 {flags} -o a a.c"))
        .bytes("a");
    (workshop, bytes)
}

fn find<'i>(image: &'i Image<'_>, name: &str) -> Vec<&'i ImageFunction> {
    image
        .functions()
        .iter()
        .filter(|f| f.raw_names().any(|n| n == name))
        .collect()
}

/// The code at the function's file offset is `helper`'s: it multiplies by 7.
#[track_caller]
fn check_offsets(bytes: &[u8], kind: ImageKind) {
    let image = Image::parse(bytes, "a", &NoDebugFiles).unwrap();
    assert_eq!(image.kind(), kind);
    let helper = find(&image, "helper");
    let code = &bytes[helper[0].file_offset as usize..][..helper[0].size as usize];
    // lea 0(,%rdi,8),%eax ; sub %edi,%eax ; ret
    assert_eq!(code.last(), Some(&0xc3), "{code:x?}");
    assert!(
        code.windows(2).any(|pair| pair == [0x29, 0xf8]),
        "{code:x?}"
    );
    assert_eq!(plan_sites(&image, &[0], &ExitPolicy::default()).len(), 1);
}

#[test]
fn offsets_are_right_in_every_kind_of_executable() {
    check_offsets(&built("").1, ImageKind::Pie);
    check_offsets(&built("-no-pie").1, ImageKind::Executable);
    check_offsets(&built("-no-pie -static").1, ImageKind::Executable);
    check_offsets(&built("-static-pie").1, ImageKind::StaticPie);
    check_offsets(
        &built("-no-pie -Wl,-Ttext-segment=0x7000000").1,
        ImageKind::Executable,
    );
    check_offsets(&built("-shared -fPIC").1, ImageKind::SharedLibrary);
}

#[test]
fn a_segment_whose_offset_is_not_its_address_is_translated() {
    let (workshop, _) = built("");
    let script = "SECTIONS { . = 0x5000; .text : { *(.text*) } . = 0x9000; .rodata : { *(.rodata*) } .eh_frame : { *(.eh_frame) } }";
    let bytes = workshop
        .source("b.c", "int f(int x) { return x * 7; }\n")
        .source("s.ld", script)
        .run("gcc -O1 -shared -fPIC -nostdlib -Wl,-z,max-page-size=0x1000 -Wl,-T,s.ld -o b b.c")
        .bytes("b");
    let image = Image::parse(&bytes, "b", &NoDebugFiles).unwrap();
    let f = find(&image, "f")[0];
    assert_ne!(f.vaddr, f.file_offset);
    assert_eq!(bytes[(f.file_offset + f.size - 1) as usize], 0xc3);
}

#[test]
fn a_stripped_file_has_the_starts_of_its_unwind_table() {
    let (workshop, _) = built("");
    let bytes = workshop.run("strip -o s a").bytes("s");
    let image = Image::parse(&bytes, "/opt/bin/s", &NoDebugFiles).unwrap();
    let original = workshop.bytes("a");
    let full = Image::parse(&original, "a", &NoDebugFiles).unwrap();
    for name in ["helper", "work", "main"] {
        let truth = find(&full, name)[0];
        let found = image
            .functions()
            .iter()
            .find(|f| f.vaddr == truth.vaddr)
            .unwrap();
        assert_eq!(
            (found.size, &found.unknown, found.origin),
            (
                truth.size,
                &Some(UnknownReason::Stripped),
                NameOrigin::EhFrame
            )
        );
        assert_eq!(found.name(), format!("s+{:#x}", truth.file_offset));
    }
}

#[test]
fn section_headers_are_not_needed() {
    let (_, mut bytes) = built("-rdynamic");
    let before: Vec<u64> = {
        let image = Image::parse(&bytes, "a", &NoDebugFiles).unwrap();
        find(&image, "work").iter().map(|f| f.file_offset).collect()
    };
    drop_section_headers(&mut bytes);
    let image = Image::parse(&bytes, "a", &NoDebugFiles).unwrap();
    let after = find(&image, "work");
    assert_eq!(
        after.iter().map(|f| f.file_offset).collect::<Vec<_>>(),
        before
    );
    assert_eq!(after[0].origin, NameOrigin::Dynsym);
    assert!(!image.build_id().is_empty());
    let unnamed = image
        .functions()
        .iter()
        .filter(|f| f.unknown.is_some())
        .count();
    assert!(unnamed > 0, "helper is known by its unwind entry");
}

#[test]
fn symbol_versions_and_static_duplicates_are_all_found() {
    let workshop = Workshop::new();
    workshop
        .source("a.c", "int f_old(int x) { return x + 1; }\nint f_new(int x) { return x + 2; }\n__asm__(\".symver f_old,f@V1\");\n__asm__(\".symver f_new,f@@V2\");\nstatic __attribute__((noinline)) int twice(int x) { return x * 5; }\nint a(int x) { return twice(x) + 1; }\n")
        .source("b.c", "static __attribute__((noinline)) int twice(int x) { return x * 9; }\nint b(int x) { return twice(x) + 1; }\n")
        .source("v.map", "V1 { global: f; a; b; local: *; };\nV2 { } V1;\n");
    let bytes = workshop
        .run("gcc -O1 -shared -fPIC -Wl,--version-script=v.map -o a.so a.c b.c")
        .bytes("a.so");
    let image = Image::parse(&bytes, "a.so", &NoDebugFiles).unwrap();
    let names: Vec<&str> = find(&image, "f").iter().map(|f| f.name()).collect();
    assert_eq!(names, ["f@V1", "f"]);
    assert_eq!(find(&image, "twice").len(), 2);
    assert_eq!(
        select(&image, &[Pattern::parse("twice").unwrap()], &[]).len(),
        2
    );
    let stripped = workshop.run("strip -o s.so a.so").bytes("s.so");
    let image = Image::parse(&stripped, "s.so", &NoDebugFiles).unwrap();
    assert_eq!(
        find(&image, "f")
            .iter()
            .map(|f| f.name())
            .collect::<Vec<_>>(),
        ["f@V1", "f"]
    );
}

#[test]
fn aliases_are_one_function_with_all_its_names() {
    let workshop = Workshop::new();
    workshop.source("a.c", "int __work(int x) { return x + 1; }\nextern int work(int) __attribute__((weak, alias(\"__work\")));\nstatic void *pick(void) { return __work; }\nint chosen(int) __attribute__((ifunc(\"pick\")));\n");
    let bytes = workshop
        .run("gcc -O1 -shared -fPIC -o a.so a.c")
        .bytes("a.so");
    let image = Image::parse(&bytes, "a.so", &NoDebugFiles).unwrap();
    let work = find(&image, "__work");
    assert_eq!(
        (work[0].raw_name.as_str(), work[0].aliases.as_slice()),
        ("work", &["__work".to_owned()][..])
    );
    let resolver = find(&image, "chosen")[0];
    assert!(
        resolver.is_resolver && resolver.name().ends_with("[resolver]"),
        "{}",
        resolver.name()
    );
    assert_eq!(
        resolver.raw_names().count(),
        2,
        "the resolver's own name too"
    );
}

struct Folder(HashMap<String, Vec<u8>>);

impl DebugFiles for Folder {
    fn open(&self, path: &str) -> Option<Box<dyn AsRef<[u8]>>> {
        Some(Box::new(self.0.get(path)?.clone()))
    }
}

#[test]
fn names_come_from_separate_debug_files_that_belong_to_the_image() {
    let (workshop, bytes) = built("-g");
    let id = Image::parse(&bytes, "a", &NoDebugFiles).unwrap().build_id();
    workshop
        .run("objcopy --only-keep-debug a a.debug")
        .run("strip -o s a")
        .run("objcopy --add-gnu-debuglink=a.debug s l");
    let linked = workshop.bytes("l");
    let debug = workshop.bytes("a.debug");
    let by_id = format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    for path in [
        by_id.as_str(),
        "/opt/.debug/a.debug",
        "/usr/lib/debug/opt/a.debug",
    ] {
        let image = Image::parse(
            &linked,
            "/opt/l",
            &Folder(HashMap::from([(path.to_owned(), debug.clone())])),
        )
        .unwrap();
        assert_eq!(
            find(&image, "helper")[0].origin,
            NameOrigin::DebugFile,
            "{path}"
        );
    }
    let mut other = debug;
    *other.last_mut().unwrap() ^= 1;
    let image = Image::parse(
        &linked,
        "/opt/l",
        &Folder(HashMap::from([("/opt/.debug/a.debug".to_owned(), other)])),
    )
    .unwrap();
    assert!(
        find(&image, "helper").is_empty(),
        "a file with another CRC is not its debug file"
    );
}

#[test]
fn names_come_from_the_packed_symbol_table() {
    if !crate::build::has("xz") {
        return;
    }
    let (workshop, _) = built("");
    workshop
        .run("objcopy --only-keep-debug a mini")
        .run("xz mini")
        .run("strip -o s a")
        .run("objcopy --add-section .gnu_debugdata=mini.xz s m");
    let bytes = workshop.bytes("m");
    let image = Image::parse(&bytes, "m", &NoDebugFiles).unwrap();
    assert_eq!(find(&image, "helper")[0].origin, NameOrigin::MiniDebugInfo);
}

#[test]
fn parts_of_functions_are_labelled() {
    let workshop = Workshop::new();
    workshop.source("a.c", "#include <stdlib.h>\nint g(int);\nint f(int x) { if (__builtin_expect(x == 3, 0)) { abort(); } return g(x) + 1; }\n");
    let bytes = workshop
        .run("gcc -O2 -shared -fPIC -o a.so a.c")
        .bytes("a.so");
    let image = Image::parse(&bytes, "a.so", &NoDebugFiles).unwrap();
    let cold = find(&image, "f.cold")[0];
    assert_eq!(
        (cold.part, cold.name(), cold.language),
        (Part::Cold, "f [cold]", Language::C)
    );
    let meant = select(
        &image,
        &[
            Pattern::parse("f?cold").unwrap(),
            Pattern::parse("f").unwrap(),
        ],
        &[],
    );
    assert_eq!(meant.len(), 1, "no call begins in a cold part");
}

#[test]
fn patterns_mean_raw_and_demangled_names_and_addresses() {
    let workshop = Workshop::new();
    workshop.source("a.cc", "namespace net { struct Socket { __attribute__((noinline)) int send(int x) { return x + 1; } }; }\nint use(int x) { net::Socket s; return s.send(x); }\n");
    if !crate::build::has("g++") {
        return;
    }
    let bytes = workshop
        .run("g++ -O1 -shared -fPIC -o a.so a.cc")
        .bytes("a.so");
    let image = Image::parse(&bytes, "a.so", &NoDebugFiles).unwrap();
    let count = |pattern: &str| select(&image, &[Pattern::parse(pattern).unwrap()], &[]).len();
    assert_eq!(count("net::Socket::send"), 1);
    assert_eq!(count("net::*"), 1);
    assert_eq!(count("_ZN3net*"), 1);
    assert_eq!(count("/Socket::s.nd/"), 1);
    assert_eq!(
        count(&format!(
            "{:#x}",
            find(&image, "_ZN3net6Socket4sendEi")[0].vaddr + 1
        )),
        1
    );
    assert_eq!(count("net::Socket::sned"), 0);
    assert_eq!(
        near_misses(&image, "net::Socket::sned", 3),
        Vec::<String>::new()
    );
    assert_eq!(near_misses(&image, "sned", 1), ["net::Socket::send(int)"]);
    assert_eq!(near_misses(&image, "Socket", 1), ["net::Socket::send(int)"]);
}

#[test]
fn what_is_no_image_says_what_it_is() {
    assert!(matches!(
        Image::parse(b"#!/bin/sh\n", "x", &NoDebugFiles),
        Err(ImageError::NotElf { .. })
    ));
    assert!(matches!(
        Image::parse(&[], "x", &NoDebugFiles),
        Err(ImageError::NotElf { .. })
    ));
    let (workshop, mut bytes) = built("");
    bytes[0x12] = 0xb7;
    assert!(matches!(
        Image::parse(&bytes, "x", &NoDebugFiles),
        Err(ImageError::Unsupported { machine: 0xb7 })
    ));
    drop(workshop);
}

#[test]
fn every_function_of_a_real_library_has_a_decision_and_most_are_cheap() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.lines().find_map(|line| {
        line.split_whitespace()
            .find(|word| word.contains("/libc.so"))
    });
    let Some(path) = libc else {
        println!("skipped: no shared C library in this process");
        return;
    };
    let bytes = std::fs::read(path).unwrap();
    let image = Image::parse(&bytes, path, &NoDebugFiles).unwrap();
    assert!(!image.can_throw(), "{:?}", image.personalities());
    let all: Vec<usize> = (0..image.functions().len()).collect();
    let plans = plan_sites(&image, &all, &ExitPolicy::default());
    assert_eq!(plans.len(), all.len());
    let cheap = plans
        .iter()
        .filter(|plan| plan.site.as_ref().is_ok_and(|site| is_cheap(site.cost)))
        .count();
    assert!(cheap * 2 > all.len(), "{cheap} of {}", all.len());
    for plan in plans
        .iter()
        .filter_map(|plan| plan.site.as_ref().ok().map(|site| (plan, site)))
    {
        let function = &image.functions()[plan.0.function];
        assert_eq!(
            plan.1.offset,
            function.file_offset + u64::from(plan.1.delta),
            "{}",
            function.name()
        );
    }
}

/// A dynamic executable of the ELF layout alone: one segment of code with one function, one of data at `data`, and one
/// relocation that names symbol `symbol`.
fn executable(data: u64, symbol: u32) -> Vec<u8> {
    let mut bytes = vec![0u8; 0x400];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[2, 0, 62, 0, 1]);
    put(32, &64u64.to_le_bytes());
    put(52, &[64, 0, 56, 0, 3, 0, 64]);
    let mut program = |index: usize, kind: u32, flags: u32, offset: u64, vaddr: u64, size: u64| {
        let at = 64 + 56 * index;
        put(at, &kind.to_le_bytes());
        put(at + 4, &flags.to_le_bytes());
        for (field, value) in [offset, vaddr, vaddr, size, size, 1].iter().enumerate() {
            put(at + 8 + 8 * field, &value.to_le_bytes());
        }
    };
    program(0, 1, 5, 0, 0x1000, 0x400);
    program(1, 1, 6, 0x300, data, 0x100);
    program(2, 2, 6, 0x200, 0x1200, 0x60);
    // DT_SYMTAB, DT_STRTAB, DT_STRSZ, DT_RELA, DT_RELASZ; the relocation is R_X86_64_64.
    for (entry, (tag, value)) in [(6, 0x1160), (5, 0x11a0), (10, 3), (7, 0x12a0), (8, 24)]
        .into_iter()
        .enumerate()
    {
        put(0x200 + 16 * entry, &u64::to_le_bytes(tag));
        put(0x208 + 16 * entry, &u64::to_le_bytes(value));
    }
    put(0x178, &[1, 0, 0, 0, 0x12, 0, 1, 0, 0xf0, 0x13]);
    put(0x188, &[2]);
    put(0x1a0, b"\0f\0");
    put(0x3f0, &[0x55, 0xc3]);
    put(0x2a8, &(u64::from(symbol) << 32 | 1).to_le_bytes());
    bytes
}

#[test]
fn addresses_and_numbers_at_the_end_of_their_range_are_read_like_others() {
    for (data, symbol) in [(u64::MAX - 3, 1), (u64::MAX, u32::MAX), (0x5001, u32::MAX)] {
        let bytes = executable(data, symbol);
        let image = Image::parse(&bytes, "a", &NoDebugFiles).unwrap();
        assert_eq!(find(&image, "f").len(), 1);
        assert_eq!(plan_sites(&image, &[0], &ExitPolicy::default()).len(), 1);
    }
}
