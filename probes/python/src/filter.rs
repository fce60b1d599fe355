//! Which code is watched: patterns on modules and files, decided once a code object. Pure.

/// Where a file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Python's own library.
    Standard,
    /// An installed package.
    Installed,
    /// Everything else: the program.
    Program,
}

/// What is asked for. Without `include` everything but Python's own library is watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    include: Vec<String>,
    exclude: Vec<String>,
    /// Folders of Python's own library, each with a slash at its end.
    standard: Vec<String>,
}

impl Filter {
    /// Patterns are separated by commas: `stdlib`, `site`, `app`, `all`; with a slash a glob on the file; else a glob on
    /// the module, which stands for the modules below it too.
    pub(crate) fn new(include: &str, exclude: &str, standard: &str) -> Self {
        let list = |text: &str| {
            let parts = text.split(',').map(str::trim);
            parts
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let folder = |path: &str| format!("{}/", path.trim_end_matches('/'));
        Self {
            include: list(include),
            exclude: list(exclude),
            standard: standard
                .split('\0')
                .filter(|path| !path.is_empty())
                .map(folder)
                .collect(),
        }
    }

    /// Where code comes from, by its path.
    pub(crate) fn origin(&self, module: &str, file: &str) -> Origin {
        if file == "<string>" && module.starts_with("namedtuple_") {
            // What `collections.namedtuple` makes; all other generated code belongs to who asked for it.
            Origin::Standard
        } else if file.contains("/site-packages/") || file.contains("/dist-packages/") {
            Origin::Installed
        } else if file.starts_with("<frozen ")
            || self
                .standard
                .iter()
                .any(|folder| file.starts_with(folder.as_str()))
        {
            Origin::Standard
        } else {
            Origin::Program
        }
    }

    /// Folders of Python's own library, if it is not watched.
    pub(crate) fn standard_left_out(&self) -> &[String] {
        if self.watches(Origin::Standard, "", "") {
            &[]
        } else {
            &self.standard
        }
    }

    /// Whether code of this module and file is watched.
    pub(crate) fn watches(&self, origin: Origin, module: &str, file: &str) -> bool {
        let listed = |patterns: &[String]| {
            patterns
                .iter()
                .any(|pattern| matches(pattern, origin, module, file))
        };
        let wanted = if self.include.is_empty() {
            origin != Origin::Standard
        } else {
            listed(&self.include)
        };
        wanted && !listed(&self.exclude)
    }
}

fn matches(pattern: &str, origin: Origin, module: &str, file: &str) -> bool {
    match pattern {
        "all" => true,
        "stdlib" => origin == Origin::Standard,
        "site" => origin == Origin::Installed,
        "app" => origin == Origin::Program,
        _ if pattern.contains('/') => glob(pattern.as_bytes(), file.as_bytes()),
        _ => {
            glob(pattern.as_bytes(), module.as_bytes())
                || parents(module).any(|parent| glob(pattern.as_bytes(), parent.as_bytes()))
        }
    }
}

/// `a.b.c` -> `a.b`, `a`.
fn parents(module: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(module.rsplit_once('.'), |(parent, _)| {
        parent.rsplit_once('.')
    })
    .map(|(parent, _)| parent)
}

/// `*` is any text, `?` any one byte.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern_at, mut text_at) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while let Some(&byte) = text.get(text_at) {
        match pattern.get(pattern_at) {
            Some(b'*') => {
                retry = Some((pattern_at, text_at));
                pattern_at += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == byte => {
                pattern_at += 1;
                text_at += 1;
            }
            _ => {
                let Some((star, from)) = retry else {
                    return false;
                };
                retry = Some((star, from + 1));
                (pattern_at, text_at) = (star + 1, from + 1);
            }
        }
    }
    pattern
        .get(pattern_at..)
        .unwrap_or_default()
        .iter()
        .all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const STDLIB: &str = "/usr/lib/python3.12\0/opt/py/lib/python3.12/";

    fn watched(include: &str, exclude: &str) -> Vec<&'static str> {
        let filter = Filter::new(include, exclude, STDLIB);
        [
            ("json.decoder", "/usr/lib/python3.12/json/decoder.py"),
            ("importlib._bootstrap", "<frozen importlib._bootstrap>"),
            (
                "httpie.core",
                "/usr/lib/python3.12/site-packages/httpie/core.py",
            ),
            (
                "httpielike",
                "/venv/lib/python3.12/site-packages/httpielike.py",
            ),
            ("__main__", "/srv/a/app.py"),
            ("__main__", "<string>"),
        ]
        .into_iter()
        .filter(|(module, file)| filter.watches(filter.origin(module, file), module, file))
        .map(|(_, file)| file.rsplit('/').next().unwrap())
        .collect()
    }

    #[test]
    fn by_default_all_but_the_standard_library_is_watched() {
        assert_eq!(
            watched("", ""),
            ["core.py", "httpielike.py", "app.py", "<string>"]
        );
    }

    #[test]
    fn the_library_is_told_as_left_out_unless_it_is_watched() {
        let told = |include| {
            Filter::new(include, "", STDLIB)
                .standard_left_out()
                .to_vec()
        };
        let both = ["/usr/lib/python3.12/", "/opt/py/lib/python3.12/"];
        assert_eq!(told(""), both);
        assert_eq!(told("app"), both);
        assert!(told("all").is_empty());
        // Of a part nobody knows which files it is.
        assert_eq!(told("json"), both);
    }

    #[test]
    fn a_module_stands_for_what_is_below_it_and_for_no_namesake() {
        assert_eq!(watched("httpie", ""), ["core.py"]);
        assert_eq!(watched("http*", ""), ["core.py", "httpielike.py"]);
    }

    #[test]
    fn words_globs_on_files_and_exclusions_combine() {
        assert_eq!(
            watched("app,stdlib", "*/importlib*,json"),
            ["<frozen importlib._bootstrap>", "app.py", "<string>"]
        );
        assert_eq!(
            watched("all", "site , app"),
            ["decoder.py", "<frozen importlib._bootstrap>"]
        );
        assert_eq!(watched("*/a/*.py", ""), ["app.py"]);
    }

    #[test]
    fn stars_go_back_as_far_as_they_must() {
        assert!(glob(b"*a*b", b"xaxaxb"));
        assert!(!glob(b"*a*b?", b"xaxaxb"));
        assert!(glob(b"", b""));
        assert!(glob(b"**", b""));
    }
}
