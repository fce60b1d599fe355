//! Site choice: each entry shape gets the right decision, and is counted exactly there.

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::SHAPES;
use scalpel_tests::scalpel;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;
use scalpel_tests::truth::Truth;

/// Where the probe must sit, in bytes from the function's start, as reading shapes.s tells.
const RIGHT: [(&str, u64); 15] = [
    ("shape_push", 0),
    ("shape_endbr", 4),
    ("shape_shadowed", 0),
    ("shape_mov", 5),
    ("shape_sub", 0),
    ("shape_ret", 0),
    ("shape_loop", 0),
    ("shape_cold", 0),
    ("shape_jcc", 6),
    ("shape_thunk", 0),
    ("shape_nop", 0),
    ("shape_rip", 7),
    ("shape_after_data", 0),
    ("shape_protector", 0),
    ("shape_no_cfi", 2),
];

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "sites": every_shape_gets_the_right_site, every_shape_is_counted_exactly_at_its_site);
}

fn every_shape_gets_the_right_site() -> Outcome {
    let copy = SHAPES.copy()?;
    let path = copy.path().to_str().context("path")?;
    let listed = scalpel::run(&["list", "sites", path, "shape_*", "--json"])?.expect_code(0)?;
    let sites: serde_json::Value = serde_json::from_str(&listed.stdout)?;
    let all = sites
        .as_array()
        .or_else(|| sites.get("sites").and_then(|s| s.as_array()))
        .context("no list of sites")?;
    for (name, delta) in RIGHT {
        let site = all
            .iter()
            .find(|s| s.get("name").is_some_and(|n| n == name))
            .with_context(|| format!("no {name}"))?;
        let found = site.get("site_delta").and_then(serde_json::Value::as_u64);
        ensure!(
            found == Some(delta),
            "{name}: right is {delta}, decided was {site}"
        );
    }
    Ok(())
}

fn every_shape_is_counted_exactly_at_its_site() -> Outcome {
    let copy = SHAPES.copy()?;
    let recorded = crate::exact(copy.directory())
        .command(copy.path(), &[])?
        .expect_code(0)?;
    let mut truth = Truth::of(&recorded.ended.stdout)?;
    let report = recorded.report()?;
    // What the kernel refuses must be said, not counted as zero.
    if report
        .named("shape_lock")
        .iter()
        .all(|f| f.calls.unwrap_or(0) == 0)
    {
        let said = serde_json::to_string(
            &report
                .doubts
                .iter()
                .map(|d| d.what.clone())
                .collect::<Vec<_>>(),
        )?;
        let own = report
            .named("shape_lock")
            .first()
            .map(|f| f.doubts.to_string())
            .unwrap_or_default();
        ensure!(
            said.contains("refused") || own.contains("refused"),
            "shape_lock is missing without a word: {said} {own}"
        );
        truth.calls.remove("shape_lock");
    }
    report.counts_agree_with(&truth)
}
