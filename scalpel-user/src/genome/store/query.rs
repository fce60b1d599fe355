//! One SELECT over a genome file that may come from anybody: nothing is written, and nothing runs for ever.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::ValueRef;
use serde_json::Value;

use super::{GenomeError, header, read};

/// The rows of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows; blobs as lower-case hex, numbers that JavaScript would round as they are.
    pub rows: Vec<Vec<Value>>,
}

/// Longest time that an answer may take: a view of a hostile file could run for ever.
const LONGEST: Duration = Duration::from_secs(300);
/// Most rows: what is larger is asked for in parts.
const MOST_ROWS: usize = 10_000_000;

/// Asks `sql` of the genome at `path`.
///
/// # Errors
/// As [`super::Genome::read`], and what SQLite says of the question.
pub fn query(path: &Path, sql: &str) -> Result<Answer, GenomeError> {
    header::check(path)?;
    ask(path, sql).map_err(|source| GenomeError::Query {
        path: path.to_owned(),
        source,
    })
}

fn ask(path: &Path, sql: &str) -> rusqlite::Result<Answer> {
    let mut db = read::open(path)?;
    db.execute_batch("PRAGMA query_only = ON;")?;
    // Nothing but reading: no other file is attached, no setting changed.
    db.authorizer(Some(|asked: AuthContext<'_>| match asked.action {
        AuthAction::Select
        | AuthAction::Read { .. }
        | AuthAction::Function { .. }
        | AuthAction::Recursive => Authorization::Allow,
        _ => Authorization::Deny,
    }))?;
    let end = Instant::now() + LONGEST;
    db.progress_handler(100_000, Some(move || Instant::now() > end))?;
    let mut statement = db.prepare(sql)?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut answer = Answer {
        rows: Vec::new(),
        columns,
    };
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let values = (0..answer.columns.len()).map(|at| row.get_ref(at).map(value));
        answer.rows.push(values.collect::<rusqlite::Result<_>>()?);
        if answer.rows.len() >= MOST_ROWS {
            break;
        }
    }
    Ok(answer)
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
        ValueRef::Blob(bytes) => bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::genome::tests::example;

    fn ask(sql: &str) -> Result<Answer, GenomeError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.genome");
        example().write(&path).unwrap();
        query(&path, sql)
    }

    #[test]
    fn a_question_has_an_answer_with_names() {
        let answer = ask("SELECT calls AS n, unknown, x'0a' AS b FROM func_total JOIN functions ON id = func WHERE name = 'walk'").unwrap();
        assert_eq!(answer.columns, ["n", "unknown", "b"]);
        assert_eq!(answer.rows, [[10_800.into(), Value::Null, "0a".into()]]);
    }

    #[test]
    fn nothing_is_written_and_no_other_file_is_opened() {
        for sql in [
            "DELETE FROM runs",
            "ATTACH '/etc/passwd' AS other",
            "PRAGMA user_version = 9",
            "SELECT 1; DELETE FROM runs",
        ] {
            assert!(ask(sql).is_err(), "{sql}");
        }
    }
}
