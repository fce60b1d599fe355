//! `list functions` and `list sites`: what could be probed, where, and how each call's end would be seen.

use serde::Serialize;

use crate::exit::Outcome;
use crate::image::KernelRelease;
use crate::output::table::{Align, Table};
use crate::output::{Output, Stream};
use crate::plan::words::Pattern;
use crate::plan::{Choice, Exits, ListPlan, Place};
use crate::survey::{self, Chosen, Question, Survey, Surveyed};
use crate::target::Process;

/// Which columns are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// Names.
    Functions,
    /// Probe sites.
    Sites,
}

#[derive(Serialize)]
struct FunctionRow<'a> {
    key: String,
    name: &'a str,
    raw_name: &'a str,
    aliases: &'a [String],
    module: &'a str,
    path: &'a str,
    language: &'static str,
    address: String,
    file_offset: u64,
    size: u64,
    unknown: Option<&'static str>,
    #[serde(flatten)]
    site: Option<SiteRow<'a>>,
}

#[derive(Serialize)]
struct SiteRow<'a> {
    site_offset: Option<u64>,
    site_delta: Option<u32>,
    instruction: Option<&'a str>,
    cost: Option<&'static str>,
    site_reason: &'a str,
    exit: &'static str,
    exit_reason: &'a str,
}

pub(super) fn run(
    columns: Columns,
    place: &Place,
    exits: Exits,
    plan: &ListPlan,
    output: &Output,
) -> anyhow::Result<Outcome> {
    let survey = look(place, exits, plan.pattern.as_ref())?;
    if let Some(why) = &survey.unconfined {
        output.warn(&format!("read with all rights of this program: {why}"));
    }
    for (path, why) in &survey.unread {
        output.warn(&format!("{} cannot be read: {why}", path.display()));
    }
    if plan.json {
        let rows: Vec<FunctionRow<'_>> = chosen(&survey)
            .map(|(_, chosen)| row(columns, chosen))
            .collect();
        output.data(serde_json::to_string_pretty(&rows)? + "\n")?;
    } else {
        output.data(text(columns, &survey, output.stdout()))?;
        output.detail(&totals(&survey));
    }
    Ok(Outcome::Done)
}

fn look(place: &Place, exits: Exits, pattern: Option<&Pattern>) -> anyhow::Result<Survey> {
    let libs = match place {
        Place::Process(_, libs) => libs.clone(),
        Place::File(_) => Vec::new(),
    };
    let choice = Choice {
        include: pattern.cloned().into_iter().collect(),
        exclude: Vec::new(),
        libs,
        max_probes: None,
        awaited: Vec::new(),
    };
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let question = Question {
        choice: &choice,
        exits,
        kernel: KernelRelease::parse(&release),
        most: None,
    };
    Ok(match place {
        Place::File(path) => survey::of_file(path, &question)?,
        Place::Process(pid, _) => survey::of_process(&Process::open(*pid)?, &question)?,
    })
}

fn chosen(survey: &Survey) -> impl Iterator<Item = (&Surveyed, &Chosen)> {
    survey
        .images
        .iter()
        .flat_map(|image| image.chosen.iter().map(move |chosen| (image, chosen)))
}

fn row(columns: Columns, chosen: &Chosen) -> FunctionRow<'_> {
    let info = &chosen.info;
    FunctionRow {
        key: info.key(),
        name: &info.name,
        raw_name: &info.raw_name,
        aliases: &chosen.aliases,
        module: &info.module,
        path: &info.path,
        language: info.language.word(),
        // A string, as an address may not fit the numbers of JavaScript.
        address: format!("{:#x}", chosen.vaddr),
        file_offset: info.file_offset,
        size: info.size,
        unknown: info
            .unknown
            .as_ref()
            .map(crate::function::UnknownReason::word),
        site: (columns == Columns::Sites).then(|| site(chosen)),
    }
}

fn site(chosen: &Chosen) -> SiteRow<'_> {
    let found = chosen.site.as_ref().ok();
    SiteRow {
        site_offset: found.map(|site| site.offset),
        site_delta: found.map(|_| chosen.info.site_delta),
        instruction: found.map(|site| &*site.instruction),
        cost: found.map(|site| site.cost.word()),
        site_reason: chosen
            .site
            .as_ref()
            .map_or_else(|why| &**why, |site| &site.reason),
        exit: chosen.info.exit.word(),
        exit_reason: &chosen.info.exit_reason,
    }
}

fn text(columns: Columns, survey: &Survey, stream: Stream) -> String {
    let several = survey.images.len() > 1;
    let names: &[(&str, Align)] = match columns {
        Columns::Functions => &[
            ("ADDRESS", Align::Right),
            ("SIZE", Align::Right),
            ("LANGUAGE", Align::Left),
            ("FUNCTION", Align::Left),
        ],
        Columns::Sites => &[
            ("SITE", Align::Right),
            ("AT", Align::Right),
            ("COST", Align::Left),
            ("EXIT", Align::Left),
            ("FUNCTION", Align::Left),
            ("INSTRUCTION", Align::Left),
            ("WHY", Align::Left),
        ],
    };
    let mut table = Table::new(names, stream);
    for (_, chosen) in chosen(survey) {
        let info = &chosen.info;
        let name = if several {
            format!("{} [{}]", info.name, info.module)
        } else {
            info.name.clone()
        };
        match columns {
            Columns::Functions => {
                table.row([
                    format!("{:#x}", chosen.vaddr),
                    info.size.to_string(),
                    info.language.word().into(),
                    name,
                ]);
            }
            Columns::Sites => table.row(site_cells(chosen, name)),
        }
    }
    table.to_string()
}

fn site_cells(chosen: &Chosen, name: String) -> [String; 7] {
    let row = site(chosen);
    let dash = || "-".to_owned();
    [
        row.site_offset
            .map_or_else(dash, |offset| format!("{offset:#x}")),
        row.site_delta
            .map_or_else(dash, |delta| format!("+{delta}")),
        row.cost.map_or_else(dash, str::to_owned),
        row.exit.into(),
        name,
        row.instruction.map_or_else(dash, str::to_owned),
        format!("site: {}; exit: {}", row.site_reason, row.exit_reason),
    ]
}

fn totals(survey: &Survey) -> String {
    let all: usize = survey.images.iter().map(|image| image.functions).sum();
    let unnamed: usize = survey.images.iter().map(|image| image.unnamed).sum();
    format!(
        "{} of {all} functions listed, {unnamed} of them without a name",
        survey.functions()
    )
}
