//! `genome query`: SQL over the file, read-only.

use std::path::Path;

use crate::exit::Outcome;
use crate::genome::store::query;
use crate::output::Output;

pub(in super::super) fn run(
    file: &Path,
    sql: &str,
    json: bool,
    output: &Output,
) -> anyhow::Result<Outcome> {
    let answer = query::query(file, sql)?;
    let text = if json {
        as_json(&answer)?.into_bytes()
    } else {
        as_csv(&answer)?
    };
    output.data(text)?;
    Ok(Outcome::Done)
}

fn as_json(answer: &query::Answer) -> anyhow::Result<String> {
    let object = |row: &Vec<serde_json::Value>| -> serde_json::Map<_, _> {
        answer
            .columns
            .iter()
            .cloned()
            .zip(row.iter().cloned())
            .collect()
    };
    let rows: Vec<_> = answer.rows.iter().map(object).collect();
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}

fn as_csv(answer: &query::Answer) -> anyhow::Result<Vec<u8>> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(&answer.columns)?;
    for row in &answer.rows {
        csv.write_record(row.iter().map(|value| match value {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        }))?;
    }
    Ok(csv.into_inner()?)
}
