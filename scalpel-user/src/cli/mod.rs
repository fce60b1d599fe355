//! What can be typed: clap types only, one file a command.
//!
//! Must not know what anything means: defaults that depend on other flags are decided in `plan`.

mod build;
mod doctor;
mod dump;
mod export;
mod genome;
mod glue;
mod graph;
mod list;
mod overlay;
mod record;
mod replay;
mod report;
mod scope;
mod stat;
mod top;
mod watch;

use std::fmt;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::output::When;

pub use build::BuildArgs;
pub use doctor::DoctorArgs;
pub use dump::DumpArgs;
pub use export::{ExportArgs, FormatArg, WeightArg};
pub use genome::{GenomeArgs, GenomeCommand};
pub use glue::{CompletionsArgs, ManArgs, completion_script, write_manual};
pub use graph::GraphArgs;
pub use list::{ListArgs, ListKind};
pub use overlay::{
    CheckArgs, CoverArgs, CoverFormatArg, DiffArgs, MatchArgs, MergeArgs, OverlayArgs, QueryArgs,
    ShowArgs,
};
pub use record::{ModeArg, NodeCoverageArg, ProbeModeArg, RecordArgs};
pub use replay::ReplayArgs;
pub use report::{ByArg, ReportArgs, SortArg, TreeArg};
pub use scope::{DecodeArgs, FollowArg, LiveArgs, ScopeArgs, ScopeCommand, SyntaxArg, TierArg};
pub use stat::StatArgs;
pub use top::TopArgs;
pub use watch::{AttachArg, ExitsArg, FunctionArgs, ProbingArgs, TargetArgs};

/// Which functions of a running program ran, who called them, and what each cost.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "scalpel-ebpf",
    version,
    propagate_version = true,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = EXAMPLES
)]
pub struct Cli {
    /// Flags that every command takes.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line of this process, or what to print instead and the exit code for it.
    pub fn typed() -> Result<Self, NotACommand> {
        Self::try_parse().map_err(NotACommand)
    }

    /// A command line made of `words`, the program's name first.
    pub fn of_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, NotACommand> {
        Self::try_parse_from(words).map_err(NotACommand)
    }
}

/// Nothing to carry out: `--help`, `--version`, or a mistake.
#[derive(Debug)]
pub struct NotACommand(clap::Error);

impl NotACommand {
    /// Prints it where it belongs (help to stdout, mistakes to stderr), and gives the exit code.
    pub fn print(&self) -> u8 {
        // Whoever closed the stream does not want to read it.
        drop(self.0.print());
        u8::try_from(self.0.exit_code()).unwrap_or(2)
    }
}

impl fmt::Display for NotACommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const EXAMPLES: &str = "\
Examples:
  sudo scalpel-ebpf record -p 4711             watch a running process until Ctrl-C
  sudo scalpel-ebpf record -- ./server --port 80
  scalpel-ebpf report                          what ran, called by whom, at what cost
  sudo scalpel-ebpf doctor                     what this kernel and CPU can do

Exit codes:
  0  done
  1  a finding (doctor: recording is blocked)
  2  wrong usage, or the request failed (unreadable file, full disk)
  3  not permitted: the missing capability or gate is named
  4  no such target
  5  the result is partial: cut, or more lost than --max-loss
  With `record -- CMD` and `scope -- CMD`, the code of CMD itself; 128 + N if signal N killed it.";

/// Flags that every command takes.
#[derive(Args, Clone, Debug)]
pub struct GlobalArgs {
    /// Say more; -vv adds what the BPF programs log.
    #[arg(short, long, action = ArgAction::Count, global = true, conflicts_with = "quiet", display_order = 900)]
    pub verbose: u8,
    /// Say nothing but errors.
    #[arg(short, long, global = true, display_order = 901)]
    pub quiet: bool,
    /// When to colour; `auto` colours a terminal unless `NO_COLOR` is set.
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        global = true,
        display_order = 902
    )]
    pub color: ColorArg,
}

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl From<ColorArg> for When {
    fn from(arg: ColorArg) -> Self {
        match arg {
            ColorArg::Auto => Self::Auto,
            ColorArg::Always => Self::Always,
            ColorArg::Never => Self::Never,
        }
    }
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Watch a process and write what its functions did to a genome file.
    Record(Box<RecordArgs>),
    /// Count the calls of a process, and how long they took, and show a table at the end.
    Stat(Box<StatArgs>),
    /// Show the costliest functions of a process while it runs.
    Top(Box<TopArgs>),
    /// Show a recording: which functions ran, called by whom, at what cost.
    Report(ReportArgs),
    /// Show one function between those that call it and those that it calls.
    Graph(Box<GraphArgs>),
    /// Write a recording for another program: pprof, flame graphs, traces, coverage, JSON.
    Export(ExportArgs),
    /// Show a recorded stream call by call, as an indented timeline.
    Replay(ReplayArgs),
    /// Show the exact instructions of calls in a process, or of a recorded trace.
    Scope(Box<ScopeArgs>),
    /// Show the stacks of all threads of a process as they are now, without stopping it.
    Dump(DumpArgs),
    /// Show what never ran, and apart from it what could not be seen.
    Cover(CoverArgs),
    /// Find what exists, and lay what ran over it.
    Genome(GenomeArgs),
    /// The process that `scope` steps with; it is started by `scope`.
    #[command(hide = true)]
    Guardian,
    /// The process that reads executables, without rights; it is started by other commands.
    #[command(hide = true)]
    Reader,
    /// The process that has the kernel account for programs; it is started by other commands.
    #[command(hide = true)]
    Meter,
    /// List functions, probe sites or processes.
    List(ListArgs),
    /// Tell what this kernel and CPU can do, what stands in the way, and what to do about it.
    Doctor(DoctorArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Write the manual pages to a folder.
    Man(ManArgs),
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent_and_every_flag_has_help() {
        Cli::command()
            .mut_args(|arg| arg.hide(false))
            .debug_assert();
        for command in Cli::command().get_subcommands() {
            assert!(
                command.get_about().is_some(),
                "{} has no description",
                command.get_name()
            );
            for arg in command.get_arguments() {
                assert!(
                    arg.get_help().is_some(),
                    "{} {} has no help",
                    command.get_name(),
                    arg.get_id()
                );
            }
        }
    }

    #[test]
    fn help_is_as_published() {
        let mut text = render(Cli::command(), &[]);
        for name in [
            "record",
            "stat",
            "top",
            "report",
            "graph",
            "export",
            "replay",
            "scope",
            "dump",
            "cover",
            "genome",
            "list",
            "doctor",
            "completions",
            "man",
        ] {
            text += &format!("\n=== {name} ===\n{}", render(Cli::command(), &[name]));
        }
        for name in ["show", "merge", "diff", "check", "query"] {
            text += &format!(
                "\n=== genome {name} ===\n{}",
                render(Cli::command(), &["genome", name])
            );
        }
        text += &format!(
            "\n=== genome build ===\n{}",
            render(Cli::command(), &["genome", "build"])
        );
        text += &format!(
            "\n=== scope decode ===\n{}",
            render(Cli::command(), &["scope", "decode"])
        );
        insta::assert_snapshot!("help", text);
    }

    fn render(command: clap::Command, path: &[&str]) -> String {
        let mut command = command.term_width(100);
        command.build();
        let mut at = &mut command;
        for name in path {
            at = at.find_subcommand_mut(name).unwrap();
        }
        at.render_long_help().to_string()
    }

    #[test]
    fn a_misspelt_flag_gets_a_hint() {
        let error =
            Cli::try_parse_from(["scalpel-ebpf", "record", "-p", "1", "--max-overhed", "1"])
                .unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("'--max-overhead'"), "{error}");
    }

    #[test]
    fn two_targets_are_refused() {
        let line = ["scalpel-ebpf", "record", "-p", "1", "--comm", "redis"];
        assert!(Cli::try_parse_from(line).is_err());
        let line = ["scalpel-ebpf", "record", "-p", "1", "--", "true"];
        assert!(Cli::try_parse_from(line).is_err());
        assert!(Cli::try_parse_from(["scalpel-ebpf", "record"]).is_err());
    }

    /// Who comes into a cgroup later is told by the kernel alone: without it, what they ran would be said not to have run.
    #[test]
    fn a_cgroup_needs_the_kernel() {
        let line = ["scalpel-ebpf", "record", "--cgroup", "a", "--no-kernel"];
        let error = Cli::try_parse_from(line).unwrap_err().to_string();
        assert!(error.contains("cannot be used with"), "{error}");
    }
}
