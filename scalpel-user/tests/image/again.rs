//! What exists, built again: files that are as they were are not parsed, all others are, and those that went are gone.

use std::fs;
use std::path::Path;

use scalpel_user::catalog::{Catalog, Kept};
use scalpel_user::static_::{self, Built};
use tempfile::TempDir;

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn build(folder: &Path, before: &Kept) -> Built {
    static_::build(&[folder.to_owned()], &[], before, &|| false).unwrap()
}

/// As the next build finds it in the file.
fn stored(built: &Built) -> Kept {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("static.genome");
    built.kept.write(&path).unwrap();
    Kept::read(&path).unwrap()
}

fn names(catalog: &Catalog) -> Vec<&str> {
    let names = catalog.definitions.iter().map(|it| it.qualified.as_str());
    names.filter(|name| !name.starts_with('<')).collect()
}

/// Two files that call each other, one that will go, and one whose text has an error.
fn first(folder: &Path) {
    write(
        folder,
        &[
            (
                "shop/a.py",
                "from shop.b import price\ndef sell():\n    return price()\n",
            ),
            ("shop/b.py", "def price():\n    return 1\n"),
            ("shop/gone.py", "def gone():\n    pass\n"),
            ("broken.js", "function ok() {}\nfunction ( {\n"),
        ],
    );
}

#[test]
fn only_what_changed_is_parsed_again_and_what_went_is_gone() {
    let folder = TempDir::new().unwrap();
    first(folder.path());
    let built = build(folder.path(), &Kept::default());
    assert_eq!(built.reused, 0);
    let before = stored(&built);

    write(
        folder.path(),
        &[
            (
                "shop/b.py",
                "def other():\n    pass\ndef price():\n    return other()\n",
            ),
            ("new.py", "def fresh():\n    pass\n"),
        ],
    );
    fs::remove_file(folder.path().join("shop/gone.py")).unwrap();
    let again = build(folder.path(), &before);
    assert_eq!(again.reused, 2, "a.py and broken.js");
    let anew = build(folder.path(), &Kept::default());
    assert_eq!(
        again.kept.catalog, anew.kept.catalog,
        "it is what a first build gives"
    );
    assert_eq!(again.kept.facts, anew.kept.facts);
    let catalog = &again.kept.catalog;
    let found = names(catalog);
    assert!(
        found.contains(&"fresh") && found.contains(&"other"),
        "{found:?}"
    );
    assert!(!found.contains(&"gone"), "{found:?}");
    // The unchanged caller's call leads to where its callee stands now.
    let edge = catalog.edges.iter().find(|edge| {
        let caller = &catalog.definitions[edge.caller.index()];
        caller.qualified == "sell"
    });
    let callee = &catalog.definitions[edge.unwrap().callee.index()];
    assert_eq!((&*callee.qualified, callee.span.start.line), ("price", 3));
    assert_eq!(
        catalog.gaps.len(),
        1,
        "the error is told again: {:?}",
        catalog.gaps
    );
}

#[test]
fn an_unchanged_file_is_not_looked_into() {
    let folder = TempDir::new().unwrap();
    first(folder.path());
    let mut before = stored(&build(folder.path(), &Kept::default()));
    // If it were parsed, it would have its own name again.
    for definition in &mut before.catalog.definitions {
        if ["sell", "gone"].contains(&&*definition.qualified) {
            definition.qualified += "_kept";
        }
    }
    // A file that only moved is as it was; one of another language is not, whatever its bytes.
    let path = |name: &str| folder.path().join(name);
    fs::rename(path("shop/a.py"), path("shop/moved.py")).unwrap();
    fs::rename(path("shop/gone.py"), path("shop/gone.rb")).unwrap();
    let again = build(folder.path(), &before);
    let found = names(&again.kept.catalog);
    assert!(found.contains(&"sell_kept"), "{found:?}");
    assert!(
        !found.iter().any(|name| name.starts_with("gone")),
        "{found:?}"
    );
    assert_eq!(again.reused, 3, "moved.py, b.py and broken.js");
}

#[test]
fn facts_of_another_version_are_not_believed() {
    let folder = TempDir::new().unwrap();
    first(folder.path());
    let mut before = stored(&build(folder.path(), &Kept::default()));
    for (version, _) in before.facts.values_mut() {
        *version += 1;
    }
    assert_eq!(build(folder.path(), &before).reused, 0);
}

/// As a virtual environment is: it says to ignore all that is in it, and a package of it is asked for.
#[test]
fn a_folder_that_is_named_outright_is_read_though_one_above_it_says_to_ignore_it() {
    let folder = TempDir::new().unwrap();
    write(
        folder.path(),
        &[
            (".gitignore", "*\n"),
            ("lib/shop/a.py", "def sell():\n    pass\n"),
            ("lib/shop/.gitignore", "made.py\n"),
            ("lib/shop/made.py", "def made():\n    pass\n"),
        ],
    );
    let built = build(&folder.path().join("lib/shop"), &Kept::default());
    assert_eq!(names(&built.kept.catalog), ["sell"]);
}
