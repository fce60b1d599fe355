//! Finds and reads the maps of texts that ran: beside the text, or within it.

use std::path::{Component, Path, PathBuf};

use sourcemap::SourceMapRef;

use super::{Map, MapError, Maps};

/// Texts and maps above this are left alone.
const LARGEST: u64 = 256 << 20;

/// A map that was looked for and is of no use.
#[derive(Debug)]
pub struct Unusable {
    /// The text, or the map.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// Reads the maps of texts: path, and hash of the text as it was loaded. What is not that text any more is left alone.
pub fn find<'a>(
    texts: impl Iterator<Item = (&'a str, u64)>,
    hash: fn(&[u8]) -> u64,
) -> (Maps, Vec<Unusable>) {
    let mut maps = Maps::default();
    let mut unusable = Vec::new();
    for (path, text_hash) in texts {
        let path = Path::new(path);
        let Some(text) = read(path).filter(|text| hash(text) == text_hash) else {
            continue;
        };
        match map_of(path, &text, hash) {
            None => {}
            Some(Ok(map)) => {
                chain(&map, &mut maps, hash, 0);
                maps.add(text_hash, map);
            }
            Some(Err((path, error))) => unusable.push(Unusable {
                path,
                why: error.to_string(),
            }),
        }
    }
    (maps, unusable)
}

/// Adds the maps of originals that were made themselves. Where a bundler composed maps its originals have none.
fn chain(map: &Map, maps: &mut Maps, hash: fn(&[u8]) -> u64, depth: usize) {
    for source in map.sources() {
        let path = Path::new(source);
        let is_script = path
            .extension()
            .is_some_and(|ext| ext == "js" || ext == "mjs" || ext == "cjs");
        if !is_script || depth >= super::LONGEST_CHAIN || maps.by_source.contains_key(source) {
            continue;
        }
        let text = read(path);
        // The map was made from the text that it brings: another one on disk has another map.
        let text = text.filter(|text| {
            map.content(source)
                .is_none_or(|content| content == hash(text))
        });
        if let Some(Ok(next)) = text.and_then(|text| map_of(path, &text, hash)) {
            maps.chain(source.to_owned(), next.clone());
            chain(&next, maps, hash, depth + 1);
        }
    }
}

type Found = Result<Map, (PathBuf, MapError)>;

/// The map that a text names; `None`: it names none, or one that is not there.
fn map_of(path: &Path, text: &[u8], hash: fn(&[u8]) -> u64) -> Option<Found> {
    let reference = sourcemap::locate_sourcemap_reference_slice(text).ok()??;
    let text = std::str::from_utf8(text).ok()?;
    let (json, at) = match reference {
        SourceMapRef::Ref(url) | SourceMapRef::LegacyRef(url) if url.starts_with("data:") => {
            (inline(&url)?, path.to_owned())
        }
        SourceMapRef::Ref(url) | SourceMapRef::LegacyRef(url) => {
            let url = url.split(['?', '#']).next().unwrap_or_default();
            let at = path.parent()?.join(percent_decoded(url));
            (read(&at)?, at)
        }
    };
    let folder = at.parent().unwrap_or(Path::new("/")).to_owned();
    let map = Map::parse(&json, text, |source| absolute(&folder, source), hash);
    Some(match map {
        Ok(mut map) => {
            add_older_originals(&mut map, &at, hash);
            add_alike_originals(&mut map, text, hash);
            Ok(map)
        }
        Err(error) => Err((at, error)),
    })
}

/// An original that is older than the map is the one that was built.
fn add_older_originals(map: &mut Map, map_path: &Path, hash: fn(&[u8]) -> u64) {
    let modified = |path: &Path| {
        std::fs::metadata(path)
            .and_then(|data| data.modified())
            .ok()
    };
    let built = modified(map_path);
    let found: Vec<(usize, u64)> = map
        .without_content()
        .filter(|(_, source)| {
            let original = modified(Path::new(source));
            original.is_some() && original <= built
        })
        .filter_map(|(at, source)| Some((at, hash(&read(Path::new(source))?))))
        .collect();
    for (at, content) in found {
        let place = map.contents.get_mut(at);
        place.into_iter().for_each(|place| *place = Some(content));
    }
}

/// Of a newer one, as packages are unpacked in any order, the words tell.
fn add_alike_originals(map: &mut Map, made: &str, hash: fn(&[u8]) -> u64) {
    let open: Vec<(usize, String)> = map
        .without_content()
        .map(|(at, source)| (at, source.to_owned()))
        .collect();
    for (at, source) in open {
        let original = read(Path::new(&source)).and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some(original) = original {
            let content = hash(original.as_bytes());
            map.compare(at, made, &original, content);
        }
    }
}

fn inline(url: &str) -> Option<Vec<u8>> {
    let (head, data) = url.split_once(',')?;
    if head.ends_with(";base64") {
        return data_encoding::BASE64_MIME_PERMISSIVE
            .decode(data.trim().as_bytes())
            .ok();
    }
    Some(percent_decoded(data).into_bytes())
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 3).filter(|_| byte == b'%');
        let code = code.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        out.push(code.unwrap_or(byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Relative to the folder of the map. What bundlers put before paths is taken off: `webpack://name/./src/a.ts`.
fn absolute(folder: &Path, source: &str) -> String {
    let path = match source.split_once("://") {
        Some(("file", path)) => percent_decoded(path),
        Some((_, rest)) => rest
            .split_once('/')
            .map_or(rest, |(_, path)| path)
            .to_owned(),
        None => source.to_owned(),
    };
    normal(&folder.join(path)).to_string_lossy().into_owned()
}

/// Without `.` and `..`, and without asking the file system.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let metadata = std::fs::metadata(path).ok()?;
    (metadata.is_file() && metadata.len() <= LARGEST).then(|| std::fs::read(path).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As packages are published: the map brings no original, and the original beside it is not older.
    #[test]
    fn an_original_beside_the_map_is_believed_as_far_as_its_words_are_those_of_the_text() {
        let source = "export function total(sum: number) { return add(sum, price) }\nexport function other(all: number) { return add(all, right) }\n";
        let made = "function total(sum) { return add(sum, price); }\nfunction other(all) { return add(all, right); }\n//# sourceMappingURL=a.js.map";
        let mut builder = sourcemap::SourceMapBuilder::new(None);
        for (line, pairs) in [[(0, 0), (9, 16), (15, 22), (29, 44), (33, 48), (38, 53)]; 2]
            .iter()
            .enumerate()
        {
            for &(here, there) in pairs {
                builder.add(
                    line as u32,
                    here,
                    line as u32,
                    there,
                    Some("a.ts"),
                    None,
                    false,
                );
            }
        }
        let mut json = Vec::new();
        builder.into_sourcemap().to_writer(&mut json).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a.js"), made).unwrap();
        std::fs::write(path("a.js.map"), json).unwrap();
        let hash: fn(&[u8]) -> u64 = crate::catalog::hash;
        let is_alike = |source: &str| {
            std::fs::write(path("a.ts"), source).unwrap();
            // Newer than the map: its age says nothing.
            let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
            let file = std::fs::File::options()
                .write(true)
                .open(path("a.ts"))
                .unwrap();
            file.set_modified(later).unwrap();
            let text = (
                path("a.js").to_string_lossy().into_owned(),
                hash(made.as_bytes()),
            );
            let (maps, unusable) = find([(text.0.as_str(), text.1)].into_iter(), hash);
            assert!(unusable.is_empty());
            let map = maps.of(text.1).unwrap();
            let source_path = path("a.ts").to_string_lossy().into_owned();
            assert_eq!(map.content(&source_path), Some(hash(source.as_bytes())));
            [map.is_alike(0, 47), map.is_alike(48, 95)]
        };
        assert_eq!(is_alike(source), [true, true]);
        assert_eq!(is_alike(&format!("\n{source}")), [false, false]);
        // A function was put between them: of the first the words next to it are not those that were built.
        let between = source.replacen(
            '\n',
            "\nexport function more(one: number) { return 1 }\n",
            1,
        );
        assert_eq!(is_alike(&between), [false, false]);
        assert_eq!(is_alike(&source.replace("total", "whole")), [false, true]);
        assert_eq!(is_alike(""), [false, false]);
    }

    #[test]
    fn sources_are_relative_to_the_map() {
        let check = |source: &str, expect: &str| {
            assert_eq!(absolute(Path::new("/app/dist"), source), expect);
        };
        check("../src/a.ts", "/app/src/a.ts");
        check("/x/./a.ts", "/x/a.ts");
        check("file:///x/a%20b.ts", "/x/a b.ts");
        check("webpack://shop/./src/a.ts", "/app/dist/src/a.ts");
    }
}
