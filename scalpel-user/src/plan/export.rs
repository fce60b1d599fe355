//! `export`, decided: the format from the name of the output, and which flags it has a use for.

use std::path::{Path, PathBuf};

use super::{PlanError, pattern, words};
use crate::cli::{ExportArgs, FormatArg, WeightArg};
use crate::event::Tid;
use words::Pattern;

/// `export`, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportPlan {
    /// Recording to read.
    pub file: PathBuf,
    /// Where to; `None` = stdout.
    pub output: Option<PathBuf>,
    /// Format.
    pub format: FormatArg,
    /// What stacks weigh; `None` = what was measured.
    pub weight: Option<WeightArg>,
    /// Recording to compare with.
    pub base: Option<PathBuf>,
    /// Functions of a neighbourhood.
    pub func: Option<Pattern>,
    /// Its size in edges.
    pub depth: u32,
    /// Which single calls.
    pub calls: CallsPart,
    /// Most single calls; `None` = what the format's readers can open.
    pub max_calls: Option<u64>,
    /// Share of lost events (0 to 1) above which the result is partial.
    pub max_loss: f64,
}

/// Which single calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallsPart {
    /// From this many ns after the start.
    pub from_ns: u64,
    /// Up to this many ns after the start.
    pub to_ns: u64,
    /// Only this thread.
    pub tid: Option<Tid>,
}

impl CallsPart {
    pub(super) fn of(
        from: Option<words::Seconds>,
        to: Option<words::Seconds>,
        tid: Option<Tid>,
    ) -> Result<Self, PlanError> {
        let nanoseconds =
            |time: words::Seconds| u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX);
        let part = Self {
            from_ns: from.map_or(0, nanoseconds),
            to_ns: to.map_or(u64::MAX, nanoseconds),
            tid,
        };
        if part.from_ns >= part.to_ns {
            return Err(PlanError::Conflict("--from must be before --to".into()));
        }
        Ok(part)
    }

    /// Whether it is less than everything.
    pub fn is_a_part(self) -> bool {
        self.from_ns > 0 || self.to_ns < u64::MAX || self.tid.is_some()
    }
}

pub(super) fn plan(args: ExportArgs) -> Result<ExportPlan, PlanError> {
    let output = args.output.filter(|path| path != Path::new("-"));
    let format = match (args.format, &output) {
        (Some(format), _) => format,
        (None, Some(path)) => of_name(path)?,
        (None, None) => {
            return Err(PlanError::Missing(
                "which format: give --format, or a file with -o whose name tells it".into(),
            ));
        }
    };
    let calls = CallsPart::of(args.from, args.to, args.thread.map(Tid))?;
    let plan = ExportPlan {
        file: args.file,
        output,
        format,
        weight: args.weight,
        base: args.base,
        func: pattern("--func", args.func)?,
        depth: args.depth,
        calls,
        max_calls: args.max_calls,
        max_loss: args.max_loss / 100.0,
    };
    check(&plan)?;
    Ok(plan)
}

/// A flag without a use is a misunderstanding, and told.
fn check(plan: &ExportPlan) -> Result<(), PlanError> {
    use FormatArg::{Chrome, Dot, Folded, Perfetto, Pprof, Speedscope, Svg};
    let conflict = |text: &str| Err(PlanError::Conflict(text.into()));
    let format = plan.format;
    let single = matches!(format, Chrome | Perfetto | Speedscope);
    if !single && (plan.calls.is_a_part() || plan.max_calls.is_some()) {
        return conflict(
            "--from, --to, --thread and --max-calls choose single calls: they go with --format chrome, perfetto or speedscope",
        );
    }
    if plan.base.is_some() && format != Svg {
        return conflict("--base goes with --format svg");
    }
    if plan.weight.is_some() && !matches!(format, Pprof | Folded | Svg | Speedscope) {
        return conflict("--weight goes with --format pprof, folded, svg or speedscope");
    }
    match (&plan.func, format) {
        (None, Dot) => Err(PlanError::Missing(
            "the neighbourhood of which functions: give --func; the whole graph is never drawn"
                .into(),
        )),
        (Some(_), other) if other != Dot => conflict("--func goes with --format dot"),
        _ => Ok(()),
    }
}

/// Endings of file names, the longest first.
const ENDINGS: [(&str, FormatArg); 19] = [
    (".speedscope.json", FormatArg::Speedscope),
    (".perfetto-trace", FormatArg::Perfetto),
    (".trace.json", FormatArg::Chrome),
    (".callgrind", FormatArg::Callgrind),
    (".collapsed", FormatArg::Folded),
    (".pftrace", FormatArg::Perfetto),
    (".folded", FormatArg::Folded),
    (".ndjson", FormatArg::Ndjson),
    (".pb.gz", FormatArg::Pprof),
    (".pprof", FormatArg::Pprof),
    (".jsonl", FormatArg::Ndjson),
    (".lcov", FormatArg::Lcov),
    (".info", FormatArg::Lcov),
    (".json", FormatArg::Json),
    (".svg", FormatArg::Svg),
    (".dot", FormatArg::Dot),
    (".xml", FormatArg::Cobertura),
    (".csv", FormatArg::Csv),
    (".gv", FormatArg::Dot),
];

fn of_name(path: &Path) -> Result<FormatArg, PlanError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("callgrind.out") {
        return Ok(FormatArg::Callgrind);
    }
    let ending = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
    ending.map(|(_, format)| *format).ok_or_else(|| {
        PlanError::Missing(format!(
            "the name {} tells no format: give --format",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn planned(line: &str) -> Result<ExportPlan, String> {
        let words = ["scalpel-ebpf", "export"].into_iter();
        let cli = Cli::of_words(words.chain(line.split(' '))).map_err(|error| error.to_string())?;
        match cli.command {
            Command::Export(args) => plan(args).map_err(|error| error.to_string()),
            _ => Err("another command".into()),
        }
    }

    #[test]
    fn the_name_of_the_output_tells_the_format() {
        for (name, expect) in [
            ("a.pb.gz", FormatArg::Pprof),
            ("a.json", FormatArg::Json),
            ("a.speedscope.json", FormatArg::Speedscope),
            ("a.trace.json", FormatArg::Chrome),
            ("x/callgrind.out.4711", FormatArg::Callgrind),
            ("a.b.ndjson", FormatArg::Ndjson),
        ] {
            let plan = planned(&format!("-o {name}")).unwrap();
            assert_eq!(plan.format, expect, "{name}");
        }
        let forced = planned("-o a.json --format csv").unwrap();
        assert_eq!(forced.format, FormatArg::Csv);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_way_out() {
        for (line, says) in [
            ("run.genome", "give --format"),
            ("-o a.txt", "a.txt tells no format"),
            ("-o a.dot", "give --func"),
            ("-o a.svg -f x", "--func goes with --format dot"),
            ("-o a.folded --from 1", "single calls"),
            ("-o a.trace.json --from 2 --to 1", "before"),
            ("-o a.csv --weight cpu", "--weight goes with"),
            ("-o a.csv --base b", "--base goes with --format svg"),
        ] {
            let error = planned(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
