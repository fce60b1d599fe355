//! For each file: how many of its functions begin with a cheap instruction, how many have a cheap site, how many have
//! an end that can be seen safely, and how much CPU time it took to find out.
//!
//! `cargo run --release --example image_stats -- FILE...`; `-v` lists every decision.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context as _;
use rustix::time::{ClockId, clock_gettime};
use scalpel_user::function::ExitStrategy;
use scalpel_user::image::{
    Disassembler, ExitPolicy, Image, KernelRelease, NoDebugFiles, ProcessFacts, SitePlan,
    SiteReason, is_cheap, plan_sites,
};

fn main() -> anyhow::Result<()> {
    let (flags, files): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg == "-v");
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<28} {:>9} {:>7} {:>7} {:>7} {:>7} {:>9} {:>8}",
        "file", "functions", "entry", "site", "exit", "in C++", "parse ms", "plan ms"
    )?;
    for file in &files {
        let bytes = std::fs::read(file).with_context(|| format!("reading {file}"))?;
        show(&mut out, file, &bytes, !flags.is_empty())?;
    }
    Ok(())
}

fn show(out: &mut impl Write, file: &str, bytes: &[u8], verbose: bool) -> anyhow::Result<()> {
    let started = cpu_time();
    let image =
        Image::parse(bytes, file, &NoDebugFiles).with_context(|| format!("parsing {file}"))?;
    let parsed = cpu_time() - started;
    let entries: Vec<usize> = (0..image.functions().len())
        .filter(|&i| image.functions().get(i).is_some_and(|f| f.part.is_entry()))
        .collect();
    let alone = policy(Vec::new());
    let started = cpu_time();
    let plans = plan_sites(&image, &entries, &alone);
    let planned = cpu_time() - started;
    let among_cpp = plan_sites(&image, &entries, &policy(vec!["libstdc++.so.6".into()]));
    let at_entry = |plan: &SitePlan| {
        plan.site
            .as_ref()
            .is_ok_and(|site| is_cheap(site.cost) && site.reason == SiteReason::Entry)
    };
    let cheap = |plan: &SitePlan| plan.site.as_ref().is_ok_and(|site| is_cheap(site.cost));
    let safe = |plan: &SitePlan| plan.exit.strategy == ExitStrategy::Return;
    let share = |plans: &[SitePlan], test: &dyn Fn(&SitePlan) -> bool| {
        format!(
            "{:.1} %",
            100.0 * plans.iter().filter(|plan| test(plan)).count() as f64
                / plans.len().max(1) as f64
        )
    };
    let name = file.rsplit('/').next().unwrap_or(file);
    writeln!(
        out,
        "{name:<28} {:>9} {:>7} {:>7} {:>7} {:>7} {:>9.1} {:>8.1}",
        plans.len(),
        share(&plans, &at_entry),
        share(&plans, &cheap),
        share(&plans, &safe),
        share(&among_cpp, &safe),
        parsed.as_secs_f64() * 1e3,
        planned.as_secs_f64() * 1e3,
    )?;
    if verbose {
        let disassembler = Disassembler::new();
        for plan in &among_cpp {
            let Some(function) = image.functions().get(plan.function) else {
                continue;
            };
            let at = plan.site.as_ref().map_or(String::from("-"), |site| {
                format!("+{:#x} {}", site.delta, site.cost.word())
            });
            let text = plan.instruction(&image, &disassembler);
            writeln!(
                out,
                "{:#x} {} | {at} | {text} | {} | {} | {}",
                function.vaddr,
                function.name(),
                plan.site_reason(),
                plan.exit.strategy.word(),
                plan.exit.reason
            )?;
        }
    }
    Ok(())
}

fn policy(throwing_images: Vec<String>) -> ExitPolicy {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let process = ProcessFacts {
        throwing_images,
        kernel: KernelRelease::parse(&release),
        ..ProcessFacts::default()
    };
    ExitPolicy {
        process,
        ..ExitPolicy::default()
    }
}

/// CPU time of this thread: other programs on the machine do not count.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        now.tv_sec.cast_unsigned(),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}
