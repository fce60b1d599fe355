//! What attaching costs: `attach_cost FILE COUNT [LINKS [kill]]` probes COUNT functions of FILE (spread evenly; all, if
//! there are fewer), entries only, and prints how long each step took. A process should have the file mapped, or
//! there is nothing to patch. With `kill` it ends without detaching, as a killed collector does.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use scalpel_user::event::FuncId;
use scalpel_user::function::ExitStrategy;
use scalpel_user::image::{
    ExitPolicy, ExitRequest, Image, KernelRelease, NoDebugFiles, ProcessFacts, SiteCost, plan_sites,
};
use scalpel_user::kernel::attach::{AttachOptions, Attachments, ProbedFile, SiteRequest};
use scalpel_user::kernel::{Kernel, LoadOptions, Mechanism};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .context("usage: attach_cost FILE COUNT [LINKS [kill]]")?;
    let count: usize = arguments.next().context("no COUNT")?.parse()?;
    let links = arguments.next().map_or(Ok(16), |text| text.parse())?;
    let kill = arguments.next().is_some();

    let (requests, planning) = timed(|| requests(&path, count));
    let requests = requests?;
    let (kernel, loading) = timed(|| Kernel::load(&LoadOptions::new(Mechanism::Session)));
    let kernel = kernel?;
    let options = AttachOptions {
        max_links: links,
        ..AttachOptions::default()
    };
    let mut attachments = Attachments::new(&kernel, options);
    let (report, attaching) = timed(|| attachments.attach(&requests, &mut |_| {}));
    let report = report?;
    let mut out = std::io::stdout();
    write!(
        out,
        "functions {} refused {} links {} plan {planning:.3?} load {loading:.3?} attach {attaching:.3?}",
        report.attached,
        report.refused.len(),
        attachments.link_count(),
    )?;
    if kill {
        writeln!(out, " killed")?;
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
    }
    let detached = attachments.detach_all();
    writeln!(out, " detach {:.3?}", detached.took)?;
    for (func, reason) in report.refused.iter().take(5) {
        writeln!(out, "refused {}: {reason}", func.get())?;
    }
    Ok(())
}

fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = run();
    (result, start.elapsed())
}

fn requests(path: &str, count: usize) -> anyhow::Result<Vec<SiteRequest>> {
    let data = std::fs::read(path)?;
    let image = Image::parse(&data, path, &NoDebugFiles)?;
    let policy = ExitPolicy {
        requested: ExitRequest::None,
        process: ProcessFacts {
            kernel: KernelRelease(6, 18, 0),
            ..ProcessFacts::default()
        },
    };
    let total = image.functions().len();
    let wanted: Vec<usize> = (0..total.min(count))
        .map(|index| index * total / total.min(count))
        .collect();
    let file = Arc::new(ProbedFile::open(path)?);
    let requests = plan_sites(&image, &wanted, &policy)
        .into_iter()
        .filter_map(|plan| {
            let site = plan.site.ok()?;
            Some(SiteRequest {
                func: FuncId::new(plan.function as u32 + 1)?,
                file: Arc::clone(&file),
                offset: site.offset,
                stepped: site.cost == SiteCost::SingleStepped,
                exit: ExitStrategy::EntryOnly,
                ret_offsets: Vec::new(),
                heat: 0,
                pid_filter: None,
            })
        });
    Ok(requests.collect())
}
