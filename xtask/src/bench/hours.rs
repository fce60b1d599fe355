//! What the default recording grows by: memory and file over a quarter of an hour, and what a day makes of it.
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use scalpel_tests::real::postgres::Server;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::scalpel::Record;

use super::results::Section;
use super::usage::{lasting_family, memory_mib};
use crate::cmd;

const EVERY: Duration = Duration::from_secs(30);
const DAY: f64 = 24.0 * 3600.0;

/// One moment of the recording.
struct Moment {
    at: f64,
    memory_mib: f64,
    file_mib: f64,
}

/// `minutes` of it.
pub(super) fn run(minutes: u64) -> Result<Section> {
    let programs = Programs::default();
    let server = Server::start(&programs)?;
    server.run("pgbench", &["-i", "-q", "-s", "2", "postgres"])?;
    let load = ["-n", "-c", "4", "-R", "400", "-T", "1000000", "postgres"];
    let mut client = server.start_client("pgbench", &load)?;
    server.backends_of_pgbench(4)?;
    // Who is there already is named, `-s` takes who comes.
    let all = lasting_family(server.pid())?;
    let mut recording = Record::into(server.folder())
        .args(["--mode", "auto", "-s", "-p", &all])
        .begin()?;
    let collector = recording.running().pid();
    let begun = Instant::now();
    let mut moments = Vec::new();
    while begun.elapsed() < Duration::from_secs(60 * minutes) {
        std::thread::sleep(EVERY);
        cmd::say(format_args!(
            "hours: {:.0} of {minutes} min",
            begun.elapsed().as_secs_f64() / 60.0
        ));
        moments.push(Moment {
            at: begun.elapsed().as_secs_f64(),
            memory_mib: memory_mib(collector, "VmRSS")?,
            file_mib: size_mib(recording.genome())?,
        });
    }
    ensure!(client.is_alive()?, "pgbench ended by itself");
    let recorded = recording.stop()?;
    ensure!(
        matches!(recorded.ended.code(), 0 | 5),
        "{}",
        recorded.ended.stderr
    );
    let written = size_mib(&recorded.genome)?;
    drop(client);
    server.stop()?;
    section(&moments, written)
}

fn section(moments: &[Moment], written: f64) -> Result<Section> {
    let last = moments.last().context("no moment was measured")?;
    // What is read and set up in the beginning does not grow any more.
    let later: Vec<&Moment> = moments
        .iter()
        .filter(|moment| moment.at >= last.at / 3.0)
        .collect();
    let mut section = Section {
        title: "A day of the default recording",
        about: format!(
            "PostgreSQL with all its processes under 400 transactions a second of `pgbench` with four clients, recorded with \
`--mode auto` for {:.0} minutes, looked at each {} s. Growth is the slope of a line through the last two thirds (least squares); a day is the last \
value and that slope. Other work on the machine makes no difference to growth. *Stream* is the file while it is recorded: it \
takes up what is sampled and counted as it comes, so it grows with the work and has no bound; from it the finished file is made.",
            last.at / 60.0,
            EVERY.as_secs(),
        ),
        unit: "MiB",
        ..Section::default()
    };
    for (name, of) in [
        ("memory", (|moment| moment.memory_mib) as fn(&Moment) -> f64),
        ("stream", |moment| moment.file_mib),
    ] {
        let slope = slope(later.iter().map(|moment| (moment.at, of(moment))));
        section.add(&format!("{name}: at the end"), of(last));
        section.add(&format!("{name}: growth an hour"), slope * 3600.0);
        section.add(
            &format!("{name}: after 24 h, projected"),
            of(last) + slope * (DAY - last.at),
        );
    }
    section.add("the finished file", written);
    Ok(section)
}

/// The slope of the line that fits best.
fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let count = points.clone().count() as f64;
    let mean = |of: fn((f64, f64)) -> f64| points.clone().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let both: f64 = points.clone().map(|(a, b)| (a - x) * (b - y)).sum();
    let own: f64 = points.map(|(a, _)| (a - x) * (a - x)).sum();
    if own > 0.0 { both / own } else { 0.0 }
}

fn size_mib(path: &std::path::Path) -> Result<f64> {
    let file = fs::metadata(path).with_context(|| path.display().to_string())?;
    Ok(file.len() as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_slope_and_a_point_none() {
        let line = [(0.0, 5.0), (10.0, 7.0), (20.0, 9.0)];
        assert!((slope(line.into_iter()) - 0.2).abs() < 1e-12);
        assert!(slope([(3.0, 1.0)].into_iter()).abs() < 1e-12);
    }

    #[test]
    fn a_day_is_the_last_value_and_what_it_grows_by() {
        let moments: Vec<Moment> = (1..=6)
            .map(|at| Moment {
                at: f64::from(at) * 3600.0,
                memory_mib: 50.0,
                file_mib: 2.0 * f64::from(at),
            })
            .collect();
        let section = section(&moments, 3.0).unwrap();
        let value = |name: &str| {
            let row = section.rows.iter().find(|row| row.name == name).unwrap();
            row.series.spread().unwrap().median
        };
        assert!((value("memory: after 24 h, projected") - 50.0).abs() < 1e-6);
        assert!((value("stream: growth an hour") - 2.0).abs() < 1e-6);
        assert!((value("stream: after 24 h, projected") - 48.0).abs() < 1e-6);
    }
}
