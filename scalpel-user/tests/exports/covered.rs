//! Coverage of what exists: what ran, what was watched and never did, and that nothing is said of what could not be seen.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;
use tempfile::TempDir;

use crate::made;
use crate::page::{opened, text};
use crate::tools::{check, consume, scalpel, schema, tool};

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "covered":
        genhtml_counts_what_never_ran_and_nothing_that_could_not_be_seen,
        readers_of_cobertura_find_what_never_ran,
        a_page_tells_the_three_apart,
        the_page_of_a_run_says_how_it_meets_its_sources,
        what_show_tells_is_as_its_schema_says,
        a_name_without_a_format_is_refused_and_an_older_file_is_kept,
    );
}

/// `sell` ran three times, `idle` was watched and never ran, and of JavaScript nothing was seen.
const SHOP: &str =
    "def sell():\n    return 1\n\n\nclass Till:\n    def idle(self):\n        return 2\n";
const PAGE: &str = "function click() {}\n";

struct Shop {
    folder: TempDir,
    run: PathBuf,
    exists: PathBuf,
}

impl Shop {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("src"))?;
        fs::write(path("src/shop.py"), SHOP)?;
        fs::write(path("src/page.js"), PAGE)?;
        made::python(
            &path("run.stream"),
            &path("src/shop.py").canonicalize()?,
            ("sell", 1),
            3,
        )?;
        let shop = Self {
            run: path("run.genome"),
            exists: path("static.genome"),
            folder,
        };
        shop.scalpel(["replay", "run.stream", "-o", "run.genome"])?;
        shop.scalpel(["genome", "build", "--src", "src", "-o", "static.genome"])?;
        Ok(shop)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Names of files are of the folder.
    fn scalpel<const N: usize>(&self, words: [&str; N]) -> anyhow::Result<()> {
        let is_file = |word: &str| word.contains('.') || word == "src";
        let words = words.map(|word| match is_file(word) {
            true => self.path(word).into_os_string(),
            false => word.into(),
        });
        let ran = scalpel(words)?;
        ensure!(ran.code == 0, "{}", ran.stderr);
        Ok(())
    }

    /// `cover` into a file of this name; what it said.
    fn cover(&self, name: &str) -> anyhow::Result<(PathBuf, String)> {
        let file = self.path(name);
        let words: [&OsStr; 5] = [
            "cover".as_ref(),
            self.run.as_ref(),
            self.exists.as_ref(),
            "-o".as_ref(),
            file.as_ref(),
        ];
        let ran = scalpel(words)?;
        ensure!(ran.code == 0, "{name}: {}", ran.stderr);
        ensure!(ran.stdout.is_empty(), "{name}: {}", ran.stdout);
        Ok((file, ran.stderr))
    }
}

fn genhtml_counts_what_never_ran_and_nothing_that_could_not_be_seen() -> Outcome {
    let shop = Shop::new()?;
    let (file, said) = shop.cover("cover.info")?;
    let info = fs::read_to_string(&file)?;
    ensure!(info.contains("FNDA:3,sell:1:1\n"), "{info}");
    ensure!(info.contains("FNDA:0,Till.idle:6:5\n"), "{info}");
    ensure!(
        !info.contains("click") && !info.contains("page.js"),
        "{info}"
    );
    let left_out = "left out: 1 functions that could not be seen (no-probe)";
    ensure!(
        info.contains(left_out) && said.contains(left_out),
        "{info}\n{said}"
    );
    let mut genhtml = tool("genhtml")?;
    genhtml.current_dir(shop.folder.path());
    let said = consume(
        genhtml
            .args(["--function-coverage", "-o", "html"])
            .arg(&file),
    )?;
    ensure!(said.contains("(1 of 2 functions)"), "{said}");
    Ok(())
}

fn readers_of_cobertura_find_what_never_ran() -> Outcome {
    let shop = Shop::new()?;
    let (file, _) = shop.cover("cover.xml")?;
    let xml = fs::read_to_string(&file)?;
    ensure!(xml.contains("name=\"Till.idle:6:5\""), "{xml}");
    ensure!(!xml.contains("click"), "{xml}");
    let report = scalpel(["report".as_ref(), shop.run.as_os_str(), "--json".as_ref()])?;
    fs::write(shop.path("report.json"), report.stdout)?;
    check([
        "cobertura".as_ref(),
        file.as_os_str(),
        shop.path("report.json").as_os_str(),
    ])
}

fn a_page_tells_the_three_apart() -> Outcome {
    let shop = Shop::new()?;
    let (file, _) = shop.cover("cover.html")?;
    let page = fs::read_to_string(&file)?;
    let (never, apart) = page
        .split_once("Could not be seen: 1")
        .with_context(|| page.clone())?;
    ensure!(
        never.contains("Till.idle") && never.contains("1 of 2"),
        "{page}"
    );
    ensure!(
        !never.contains("click") && apart.contains("click"),
        "{page}"
    );
    ensure!(apart.contains("no-probe"), "{page}");
    // What a browser would have to fetch.
    for word in ["http:", "https:", "src=", "href=", "<script"] {
        ensure!(!page.contains(word), "{word} in {page}");
    }
    Ok(())
}

fn a_name_without_a_format_is_refused_and_an_older_file_is_kept() -> Outcome {
    let shop = Shop::new()?;
    let (file, _) = shop.cover("cover.json")?;
    let said: serde_json::Value = serde_json::from_slice(&fs::read(&file)?)?;
    ensure!(said["schema"] == "scalpel.cover/1", "{said}");
    fs::write(&file, "older")?;
    shop.cover("cover.json")?;
    ensure!(fs::read(shop.path("cover.json.old"))? == b"older");
    let file = shop.path("cover.doc");
    let ran = scalpel([
        "cover".as_ref(),
        shop.run.as_os_str(),
        "-o".as_ref(),
        file.as_os_str(),
    ])?;
    ensure!(
        ran.code == 2 && ran.stderr.contains("--format"),
        "{}: {}",
        ran.code,
        ran.stderr
    );
    Ok(())
}

fn the_page_of_a_run_says_how_it_meets_its_sources() -> Outcome {
    let shop = Shop::new()?;
    shop.scalpel([
        "genome",
        "merge",
        "run.genome",
        "static.genome",
        "-o",
        "laid.genome",
    ])?;
    let seen = opened(&shop.path("laid.html"), &shop.path("laid.genome"))?;
    let first = text(&seen, "first")?;
    ensure!(first.contains("matched with the source: 1 of 1"), "{first}");
    let trust = text(&seen, "trust")?;
    let after = |heading: &str| trust.split_once(heading).map_or("", |(_, rest)| rest);
    for (heading, row) in [
        (
            "Matched with the source",
            "User-written functions that ran: the match rate\t1\t1\t100",
        ),
        ("Matched with the source", "User-written, python\t1\t1\t100"),
        ("States of the functions of the source", "ran\t\t1"),
        ("Never ran", "Till.idle\tmethod\tshop.py:6"),
        (
            "Not visible to the probes",
            "click\tfunction\tpage.js:1\tno-probe",
        ),
    ] {
        ensure!(
            after(heading).contains(row),
            "{heading}: {row:?} in {trust:?}"
        );
    }
    Ok(())
}

fn what_show_tells_is_as_its_schema_says() -> Outcome {
    let shop = Shop::new()?;
    let ran = scalpel([
        "genome".as_ref(),
        "show".as_ref(),
        shop.run.as_os_str(),
        shop.exists.as_os_str(),
        "--json".as_ref(),
    ])?;
    ensure!(ran.code == 0, "{}", ran.stderr);
    let file = shop.path("show.json");
    fs::write(&file, &ran.stdout)?;
    let schema = schema("overlay.schema.json");
    check(["overlay".as_ref(), file.as_os_str(), schema.as_os_str()])?;
    let shown: serde_json::Value = serde_json::from_str(&ran.stdout)?;
    let rate = serde_json::json!({"matched": 1, "ran": 1, "share": 1.0});
    ensure!(shown["match_rate"] == rate, "{shown:#}");
    let function = &shown["functions"][0];
    ensure!(function["definition"] == "shop.py:1 sell", "{shown:#}");
    ensure!(
        function["events"] == 3 && function["why"].is_null(),
        "{shown:#}"
    );
    let states = shown["states"].as_array().context("no states")?;
    let state = |word: &str, why: Option<&str>| {
        let is_it = |row: &&serde_json::Value| row["state"] == word && row["why"].as_str() == why;
        states
            .iter()
            .find(is_it)
            .and_then(|row| row["functions"].as_u64())
    };
    ensure!(state("ran", None) == Some(1), "{shown:#}");
    ensure!(state("never-ran", None) == Some(1), "{shown:#}");
    ensure!(
        state("not-visible", Some("no-probe")) == Some(1),
        "{shown:#}"
    );
    Ok(())
}
