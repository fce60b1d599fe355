use super::*;

const TEXT: &str = "let é=1;function f(){g(()=>7)}\nfunction h(){}";

/// `mappings` of one source: (line, column) here -> (line, column) there.
/// Where in the text, and from where.
type Mapping = ((u32, u32), Option<(u32, u32)>);

fn map(mappings: &[Mapping]) -> Map {
    let mut builder = sourcemap::SourceMapBuilder::new(None);
    for &((line, column), original) in mappings {
        match original {
            Some((src_line, src_column)) => {
                builder.add(
                    line,
                    column,
                    src_line,
                    src_column,
                    Some("a.ts"),
                    None,
                    false,
                );
            }
            None => {
                builder.add(line, column, 0, 0, None, None, false);
            }
        }
    }
    let mut json = Vec::new();
    builder.into_sourcemap().to_writer(&mut json).unwrap();
    parse(&json)
}

fn parse(json: &[u8]) -> Map {
    let hash = |bytes: &[u8]| bytes.len() as u64;
    Map::parse(json, TEXT, |source| format!("/src/{source}"), hash).unwrap()
}

fn original(line: u32, column: u32) -> Original<'static> {
    Original {
        source: "/src/a.ts",
        place: Place { line, column },
    }
}

#[test]
fn a_stretch_has_the_originals_of_its_start_and_of_its_last_place() {
    let map = map(&[
        ((0, 8), Some((3, 2))),
        ((0, 20), Some((3, 30))),
        ((0, 29), Some((5, 0))),
    ]);
    let stretch = map.stretch(8, 30);
    assert_eq!(stretch.start, Some(original(3, 2)));
    assert_eq!(stretch.last, Some(original(5, 0)));
    let inner = map.stretch(23, 28);
    assert_eq!((inner.start, inner.first), (None, None));
}

#[test]
fn what_a_tool_made_has_no_original() {
    let map = map(&[((0, 8), None), ((1, 0), Some((9, 0)))]);
    assert_eq!(map.stretch(8, 30).first, None);
    assert_eq!(map.stretch(31, 45).start, Some(original(9, 0)));
    assert_eq!(
        map.at(Place {
            line: 0,
            column: 12
        }),
        None
    );
}

#[test]
fn maps_with_sections_are_one_map() {
    let section = |line: u32, mappings: &str| {
        format!(
            r#"{{"offset":{{"line":{line},"column":0}},"map":{{"version":3,"sources":["a.ts"],"names":[],"mappings":"{mappings}"}}}}"#
        )
    };
    let json = format!(
        r#"{{"version":3,"sections":[{},{}]}}"#,
        section(0, "QAAA"),
        section(1, "AAEA")
    );
    let map = parse(json.as_bytes());
    assert_eq!(map.stretch(8, 30).start, Some(original(0, 0)));
    assert_eq!(map.stretch(31, 45).start, Some(original(2, 0)));
}

#[test]
fn sections_in_other_files_are_not_guessed_at() {
    let json = br#"{"version":3,"sections":[{"offset":{"line":0,"column":0},"url":"x.map"}]}"#;
    let parsed = Map::parse(json, TEXT, str::to_owned, |_| 0);
    assert!(matches!(parsed, Err(MapError::Elsewhere)));
}

#[test]
fn a_chain_is_followed_and_a_circle_is_not() {
    let mut maps = Maps::default();
    maps.chain("/src/a.ts".into(), map(&[((0, 8), Some((3, 2)))]));
    let made = original(0, 8);
    assert_eq!(maps.follow(made), None, "a.ts leads to itself");
    let mut maps = Maps::default();
    maps.chain("/src/b.js".into(), map(&[((0, 8), Some((3, 2)))]));
    let made = Original {
        source: "/src/b.js",
        ..made
    };
    assert_eq!(maps.follow(made), Some(original(3, 2)));
}
