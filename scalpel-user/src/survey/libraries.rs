//! Which libraries the loader will map for a program that has not been started.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::Endianness;
use object::elf::PT_INTERP;
use object::read::elf::{ElfFile64, ProgramHeader};

/// The libraries of `program`, as its own loader resolves them (`ld.so --list`, what `ldd` asks for too): search
/// paths, RUNPATH, the cache and `LD_LIBRARY_PATH` count as they will at the start. Nothing of the program runs.
/// Empty for a static program, or where the loader has no such option.
pub fn needed_by(program: &Path) -> Vec<PathBuf> {
    let Some(loader) = interpreter(program) else {
        return Vec::new();
    };
    let listed = Command::new(&loader)
        .arg("--list")
        .arg(program)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let Ok(listed) = listed else {
        return Vec::new();
    };
    let mut libraries = parse_list(&String::from_utf8_lossy(&listed.stdout));
    libraries.retain(|library| library != program);
    libraries
}

/// Lines are `name => /path (0xaddress)` or `/path (0xaddress)`; the vDSO has no path.
fn parse_list(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let line = line.trim();
        let target = line.split_once(" => ").map_or(line, |(_, target)| target);
        let path = target
            .rsplit_once(" (")
            .map_or(target, |(path, _)| path)
            .trim();
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    text.lines().filter_map(path).collect()
}

fn interpreter(program: &Path) -> Option<PathBuf> {
    let bytes = std::fs::read(program).ok()?;
    let elf = ElfFile64::<'_, Endianness>::parse(bytes.as_slice()).ok()?;
    let endian = elf.endian();
    let header = elf
        .elf_program_headers()
        .iter()
        .find(|header| header.p_type(endian) == PT_INTERP)?;
    let path = header.data(endian, bytes.as_slice()).ok()?;
    let path = path.strip_suffix(&[0]).unwrap_or(path);
    Some(PathBuf::from(String::from_utf8_lossy(path).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_loader_is_read_with_and_without_arrows() {
        let text = "\tlinux-vdso.so.1 (0x00007fff)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tlibgone.so => not found\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse_list(text), expected.map(PathBuf::from));
    }

    #[test]
    fn a_real_program_needs_the_c_library() {
        let needed = needed_by(Path::new("/bin/sh"));
        assert!(
            needed
                .iter()
                .any(|path| path.to_string_lossy().contains("libc.")),
            "{needed:?}"
        );
    }
}
