//! Chrome's JSON trace: a beginning and an end a call, in µs since the recording began.
//!
//! What is not plain about a call is in its arguments: `end` (lost, unwound, suspended ...), `calls` where it stands for
//! several.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{Moment, Start, ThreadKey, What};
use crate::event::{FuncId, MonoTime};
use crate::function::FunctionTable;
use crate::sink::text::clean;

/// A trace that is being written.
pub struct Chrome<'a> {
    out: &'a mut dyn Write,
    start: MonoTime,
    first: bool,
}

impl<'a> Chrome<'a> {
    /// Writes the head. `about` tells of the recording and what to doubt.
    pub fn begin(out: &'a mut dyn Write, start: MonoTime, about: &Value) -> io::Result<Self> {
        write!(
            out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":["
        )?;
        Ok(Self {
            out,
            start,
            first: true,
        })
    }

    /// Names a thread.
    pub fn thread(&mut self, (pid, tid): ThreadKey, name: &str) -> io::Result<()> {
        self.event(&json!({
            "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": clean(name)}
        }))
    }

    /// Writes a moment.
    pub fn moment(&mut self, moment: &Moment, functions: &FunctionTable) -> io::Result<()> {
        let (phase, name, arguments) = match moment.what {
            What::Begin { func, calls, start } => {
                ("B", self.name(func, functions), begun(calls, start))
            }
            What::End { func, end } => {
                let arguments = end.word().map(|word| json!({ "end": word }));
                ("E", self.name(func, functions), arguments)
            }
            What::Entry { func, calls } => (
                "i",
                self.name(func, functions),
                begun(calls, Start::Entered),
            ),
            What::Lost(lost) => ("i", "[lost]".into(), Some(json!({ "events": lost }))),
        };
        let since = moment.time.0.saturating_sub(self.start.0);
        let (pid, tid) = moment.thread;
        self.comma()?;
        write!(
            self.out,
            "{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{}.{:03},\"name\":{}",
            since / 1000,
            since % 1000,
            json!(name)
        )?;
        if phase == "i" {
            write!(self.out, ",\"s\":\"t\"")?;
        }
        if let Some(arguments) = arguments {
            write!(self.out, ",\"args\":{arguments}")?;
        }
        write!(self.out, "}}")
    }

    /// Writes the tail.
    pub fn finish(self) -> io::Result<()> {
        writeln!(self.out, "\n]}}")
    }

    fn name(&self, func: u32, functions: &FunctionTable) -> String {
        match FuncId::new(func).and_then(|id| functions.get(id)) {
            Some(info) => clean(&info.name).into_owned(),
            None => format!("<function {func}>"),
        }
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        self.comma()?;
        write!(self.out, "{event}")
    }

    fn comma(&mut self) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) {
            ""
        } else {
            ","
        };
        writeln!(self.out, "{comma}")
    }
}

fn begun(calls: u64, start: Start) -> Option<Value> {
    let word = start.word();
    match (calls, word) {
        (0 | 1, None) => None,
        (0 | 1, Some(word)) => Some(json!({ "start": word })),
        (calls, None) => Some(json!({ "calls": calls })),
        (calls, Some(word)) => Some(json!({ "calls": calls, "start": word })),
    }
}
