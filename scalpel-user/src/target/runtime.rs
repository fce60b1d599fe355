//! Which language runtimes live in a process, as far as its mapped files tell.

use std::fmt;
use std::path::Path;

use super::maps::Mapping;

/// A language runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runtime {
    /// Python (the C implementation).
    Python,
    /// Node.js.
    Node,
    /// A JVM.
    Java,
    /// Ruby.
    Ruby,
    /// PHP.
    Php,
    /// .NET.
    Dotnet,
    /// Lua, with or without its just-in-time compiler.
    Lua,
    /// Perl.
    Perl,
    /// Erlang or Elixir.
    Beam,
    /// Go.
    Go,
}

impl Runtime {
    /// Lower-case word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Java => "java",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Dotnet => "dotnet",
            Self::Lua => "lua",
            Self::Perl => "perl",
            Self::Beam => "beam",
            Self::Go => "go",
        }
    }

    /// Those that the mapped files show by their names, each once. What leaves no trace in a file name (Go; an interpreter
    /// linked into a program) is found by looking into the image.
    pub fn of(maps: &[Mapping]) -> Vec<Self> {
        let executable = maps.iter().filter(|mapping| mapping.executable);
        let mut found: Vec<Self> = executable
            .filter_map(|mapping| Self::by_file(mapping.path()?))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The one that a file is the program or library of, by its name.
    pub fn by_file(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        // `python3.13`, `libruby-3.1.so.3`, `node`: a known stem, then a version or nothing.
        let is = |stem: &str| {
            name.strip_prefix(stem).is_some_and(|rest| {
                !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            })
        };
        let any = |stems: &[&str]| stems.iter().any(|stem| is(stem));
        match () {
            () if any(&["python", "libpython"]) => Some(Self::Python),
            () if any(&["node", "nodejs", "libnode"]) => Some(Self::Node),
            () if name == "libjvm.so" => Some(Self::Java),
            () if any(&["ruby", "libruby"]) => Some(Self::Ruby),
            () if any(&["php", "php-fpm", "libphp"]) => Some(Self::Php),
            () if name == "libcoreclr.so" => Some(Self::Dotnet),
            () if any(&["lua", "liblua", "luajit", "libluajit"]) => Some(Self::Lua),
            () if any(&["perl", "libperl"]) => Some(Self::Perl),
            () if any(&["beam.smp", "beam"]) => Some(Self::Beam),
            () => None,
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_known_by_their_files() {
        let check = |path: &str, expect: Option<Runtime>| {
            assert_eq!(Runtime::by_file(Path::new(path)), expect, "{path}")
        };
        check("/usr/bin/python3.11", Some(Runtime::Python));
        check("/usr/lib/libpython3.13.so.1.0", Some(Runtime::Python));
        check("/usr/bin/pythonize", None);
        check("/usr/local/bin/node", Some(Runtime::Node));
        check("/usr/bin/node_exporter", None);
        check("/opt/jdk/lib/server/libjvm.so", Some(Runtime::Java));
        check("/usr/lib/libruby-3.1.so.3.1.2", Some(Runtime::Ruby));
        check("/usr/sbin/php-fpm8.2", Some(Runtime::Php));
        check("/usr/lib/libluajit-5.1.so.2", Some(Runtime::Lua));
        check("/usr/bin/perl", Some(Runtime::Perl));
        check("/usr/bin/cat", None);
        check("/", None);
    }
}
