//! Names of our own process's addresses, against what the compiler and the loader say.

use std::io::{BufRead, BufReader};

use super::*;

/// A reader that reads nothing: everything comes from blazesym.
struct Nothing;

impl FunctionReader for Nothing {
    fn functions(&self, _: &Path, _: &File) -> Option<Vec<FunctionInfo>> {
        None
    }

    fn functions_at(&self, _: &Path, _: &File, _: &[u64]) -> Result<Option<Few>, UnknownReason> {
        Ok(None)
    }

    fn display(&self, raw_name: &str) -> (String, Language) {
        (format!("<{raw_name}>"), Language::Rust)
    }
}

/// A reader with one function of 0x100 bytes at every file's offset 0x1000.
struct One;

impl FunctionReader for One {
    fn functions(&self, path: &Path, _: &File) -> Option<Vec<FunctionInfo>> {
        let module = path.file_name()?.to_string_lossy().into_owned();
        Some(vec![FunctionInfo {
            name: "one".into(),
            raw_name: "one".into(),
            module,
            path: path.to_string_lossy().into_owned(),
            file: None,
            line: None,
            language: Language::Native,
            build_id: String::new(),
            file_offset: 0x1000,
            size: 0x100,
            site_delta: 0,
            exit: ExitStrategy::None,
            exit_reason: String::new(),
            unknown: None,
            ordinal: 0,
            place: Default::default(),
        }])
    }

    fn functions_at(
        &self,
        path: &Path,
        file: &File,
        offsets: &[u64],
    ) -> Result<Option<Few>, UnknownReason> {
        let all = self.functions(path, file).unwrap_or_default().into_iter();
        let is_asked = |one: &FunctionInfo| offsets.iter().any(|at| *at >= one.file_offset);
        Ok(Some(Few {
            functions: all.filter(is_asked).collect(),
            is_stripped: false,
        }))
    }

    fn display(&self, raw_name: &str) -> (String, Language) {
        (raw_name.into(), Language::Native)
    }
}

const US: Pid = Pid(77);

/// Our own executable mappings, under another pid: nothing may be looked up by pid.
fn ourselves(reader: impl FunctionReader + 'static) -> Symbolizer {
    let mut symbolizer = Symbolizer::new(Box::new(reader));
    for line in BufReader::new(File::open("/proc/self/maps").unwrap()).lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).unwrap();
        if !words[1].contains('x') {
            continue;
        }
        let backing = match words.get(5) {
            Some(&"[vdso]") => Backing::Vdso,
            Some(path) if path.starts_with('/') => Backing::File(
                path.into(),
                File::open(path)
                    .map(Arc::new)
                    .map_err(|_error| UnknownReason::FileChanged),
            ),
            _ => continue,
        };
        symbolizer.map(
            US,
            Mapping {
                start: hexadecimal(start),
                end: hexadecimal(end),
                offset: hexadecimal(words[2]),
                backing,
            },
        );
    }
    symbolizer
}

#[inline(never)]
fn marked_function() -> u64 {
    std::hint::black_box(1)
}

#[test]
fn our_own_function_has_its_name_file_and_line() {
    let mut symbolizer = ourselves(Nothing);
    let address = marked_function as fn() -> u64 as usize as u64;
    assert_eq!(marked_function(), 1);
    let info = symbolizer
        .resolve(US, &[address, address + 1])
        .remove(1)
        .unwrap();
    assert!(
        info.name.starts_with('<') && info.name.contains("marked_function"),
        "{info:?}"
    );
    assert_eq!(
        info.path,
        std::env::current_exe().unwrap().to_string_lossy()
    );
    assert!(info.size > 0 && !info.build_id.is_empty(), "{info:?}");
    assert!(
        info.file
            .as_deref()
            .is_some_and(|file| file.ends_with("symbol/tests.rs")),
        "{info:?}"
    );
    let line = include_str!("tests.rs")
        .lines()
        .position(|line| line.starts_with("fn marked_function"))
        .unwrap() as u32;
    assert!(
        info.line.is_some_and(|found| found.abs_diff(line + 1) <= 1),
        "{info:?}"
    );
}

#[test]
fn the_readers_functions_win_and_what_they_do_not_cover_is_unknown() {
    let mut symbolizer = Symbolizer::new(Box::new(One));
    let exe = std::env::current_exe().unwrap();
    let file = Arc::new(File::open(&exe).unwrap());
    let mapping = Mapping {
        start: 0x10000,
        end: 0x20000,
        offset: 0x1000,
        backing: Backing::File(exe, Ok(file)),
    };
    symbolizer.map(US, mapping);
    let named = symbolizer.resolve(US, &[0x10000, 0x100ff, 0x10100, 0x5000, 0x20000]);
    let names: Vec<_> = named
        .iter()
        .map(|named| named.as_ref().map(|info| info.name.as_str()))
        .collect();
    let (no_symbol, unmapped) = (UnknownReason::NoSymbol, UnknownReason::Unmapped);
    assert_eq!(
        names,
        [
            Ok("one"),
            Ok("one"),
            Err(&no_symbol),
            Err(&unmapped),
            Err(&unmapped)
        ]
    );
    assert_eq!(
        symbolizer.unknown(),
        BTreeMap::from([(no_symbol, 1), (unmapped, 2)])
    );
}

#[test]
fn each_way_to_have_no_name_has_its_reason() {
    let mut symbolizer = Symbolizer::new(Box::new(Nothing));
    let gone = UnknownReason::FileGone("ENOENT".into());
    let mut map = |start: u64, backing| {
        symbolizer.map(
            US,
            Mapping {
                start,
                end: start + 0x1000,
                offset: 0,
                backing,
            },
        )
    };
    map(0x1000, Backing::Anonymous);
    map(0x2000, Backing::File("/gone".into(), Err(gone.clone())));
    let text = File::open("/proc/self/exe")
        .and(File::open(file!().replace("scalpel-user/", "")))
        .or(File::open("/etc/passwd"));
    map(
        0x3000,
        Backing::File("/etc/passwd".into(), Ok(Arc::new(text.unwrap()))),
    );
    let check = |symbolizer: &mut Symbolizer, pid: Pid, address: u64| {
        symbolizer.resolve(pid, &[address]).remove(0).unwrap_err()
    };
    assert_eq!(check(&mut symbolizer, US, 0x1800), UnknownReason::Anonymous);
    assert_eq!(check(&mut symbolizer, US, 0x2800), gone);
    assert!(matches!(
        check(&mut symbolizer, US, 0x3800),
        UnknownReason::BadFile(_)
    ));
    assert_eq!(check(&mut symbolizer, US, 0x4800), UnknownReason::Unmapped);
    assert_eq!(
        check(&mut symbolizer, Pid(78), 0x1000),
        UnknownReason::ProcessGone
    );
    symbolizer.fork(US, Pid(78));
    assert_eq!(
        check(&mut symbolizer, Pid(78), 0x1001),
        UnknownReason::Anonymous
    );
    symbolizer.exec(US);
    assert_eq!(
        check(&mut symbolizer, US, 0x1800),
        UnknownReason::ProcessGone
    );
}

#[test]
fn the_vdso_of_an_ended_process_has_names() {
    let mut symbolizer = ourselves(Nothing);
    let start = vdso::our_start().unwrap();
    let named = (start..start + 0x2000)
        .find_map(|address| symbolizer.resolve(US, &[address]).remove(0).ok());
    let info = named.expect("the vdso has functions");
    assert_eq!((&*info.module, info.language), ("[vdso]", Language::C));
    assert!(
        info.name.contains("vdso") || info.name.contains("time"),
        "{info:?}"
    );
}

#[test]
fn kernel_addresses_are_named_or_hidden() {
    let mut symbolizer = Symbolizer::new(Box::new(Nothing));
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let line = text
        .lines()
        .find(|line| line.ends_with(" T schedule"))
        .unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let named = symbolizer
        .resolve(US, &[address.max(KERNEL_SPACE) + 1])
        .remove(0);
    match address {
        0 => assert_eq!(named, Err(UnknownReason::KernelHidden)),
        _ => assert_eq!(named.unwrap().key(), "kernel:[kernel]:schedule"),
    }
}

#[test]
fn a_frugal_one_reads_each_file_once_and_no_more_than_was_announced() {
    use std::cell::RefCell;
    use std::rc::Rc;
    /// What was asked for, of how many files.
    struct Asked(Rc<RefCell<Vec<Vec<u64>>>>);
    impl FunctionReader for Asked {
        fn functions(&self, path: &Path, file: &File) -> Option<Vec<FunctionInfo>> {
            self.0.borrow_mut().push(Vec::new());
            One.functions(path, file)
        }

        fn functions_at(
            &self,
            path: &Path,
            file: &File,
            offsets: &[u64],
        ) -> Result<Option<Few>, UnknownReason> {
            self.0.borrow_mut().push(offsets.to_vec());
            One.functions_at(path, file, offsets)
        }

        fn display(&self, raw_name: &str) -> (String, Language) {
            One.display(raw_name)
        }
    }
    let asked = Rc::default();
    let mut symbolizer = Symbolizer::frugal(Box::new(Asked(Rc::clone(&asked))));
    let file = Arc::new(File::open("/proc/self/exe").unwrap());
    for pid in [1, 2] {
        symbolizer.map(
            Pid(pid),
            Mapping {
                start: 0x10000,
                end: 0x20000,
                offset: 0,
                backing: Backing::File("/x".into(), Ok(Arc::clone(&file))),
            },
        );
    }
    let (named, nameless) = (0x11010, 0x18000);
    symbolizer.announce(&[(Pid(1), named), (Pid(2), named), (Pid(2), nameless)]);
    for pid in [Pid(1), Pid(2)] {
        let answers = symbolizer.resolve(pid, &[named, nameless]);
        assert_eq!(answers[0].as_ref().unwrap().name, "one");
        assert_eq!(answers[1], Err(UnknownReason::NoSymbol));
        assert!(symbolizer.inlined(pid, named).is_empty());
    }
    assert_eq!(*asked.borrow(), [vec![0x1010, 0x8000]]);
    // What nobody announced takes another look.
    symbolizer.resolve(Pid(1), &[0x18001]);
    assert_eq!(asked.borrow().len(), 2);
}
