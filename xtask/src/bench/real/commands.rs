//! Commands that are recorded from their first instruction to their last.
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use scalpel_tests::child::{self, Running};
use scalpel_tests::fixture::copy_program;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::scalpel::Recorded;
use tempfile::TempDir;

use super::super::usage::memory_mib;
use super::known::Known;
use super::life::{Life, executed};
use super::{Bench, Measured, Way, record};
use crate::cmd;
use crate::probes::{environment, newest, python};
use crate::test::projects;

pub(super) fn run(programs: &Programs, bench: &mut Bench, yes: bool) -> Result<()> {
    let all: [(&'static str, Make); 8] = [
        ("esbuild (Go), a bundle", esbuild),
        ("HTTPie (CPython), a request that is not sent", httpie),
        ("Django (CPython), a shop and its requests", django),
        ("OpenJDK, a program, its native side", java),
        ("ripgrep (Rust), a search", ripgrep),
        ("scalpel-ebpf (Rust), the sites of PostgreSQL", ourselves),
        ("cppcheck (C++ that throws; stripped), two files", cppcheck),
        ("SQLite's shell (C; stripped), a script", sqlite),
    ];
    for (what, make) in all {
        let folder = TempDir::with_prefix("scalpel-bench-")?;
        let measured = make(programs, yes, folder.path())
            .and_then(|line| bench.each(what, |way| launched(way, folder.path(), &line)));
        if let Err(why) = measured {
            bench.skip(what, &format!("{why:#}"));
        }
    }
    Ok(())
}

/// Makes a command in a folder of its own.
type Make = fn(&Programs, bool, &Path) -> Result<Line>;

/// A command, and what has to be the same each time beside its output.
struct Line {
    words: Vec<String>,
    /// Options of `record` for it.
    more: Vec<OsString>,
    /// A file that it writes.
    writes: Option<PathBuf>,
    /// What its environment has more.
    variables: Vec<(&'static str, OsString)>,
}

impl Line {
    fn of<S: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = S>) -> Self {
        let words = words.into_iter();
        Self {
            words: words
                .map(|word| word.as_ref().to_string_lossy().into_owned())
                .collect(),
            more: Vec::new(),
            writes: None,
            variables: Vec::new(),
        }
    }

    fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    /// What it said and wrote.
    fn result(&self, stdout: &str) -> Result<String> {
        let written = self.writes.as_ref().map(fs::read_to_string).transpose()?;
        Ok(stdout.to_owned() + &written.unwrap_or_default())
    }

    fn plain(&self) -> Result<Command> {
        let (program, arguments) = self.words.split_first().context("no program")?;
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(self.prepared(command))
    }

    fn prepared(&self, mut command: Command) -> Command {
        let variables = self.variables.iter().map(|(name, value)| (name, value));
        command.env("LC_ALL", "C.UTF-8").envs(variables);
        command
    }
}

/// One run, whose result is that of a plain one.
fn launched(way: &Way, folder: &Path, line: &Line) -> Measured {
    let begun = Instant::now();
    let plain = child::run(line.plain()?)?.expect_code(0)?.stdout;
    let took = begun.elapsed();
    let plain = line.result(&plain)?;
    ensure!(!plain.is_empty(), "it says nothing that could be compared");
    let Some(options) = way.options else {
        return Ok((took.as_secs_f64() * 1e3, None));
    };
    let record = record(folder, options).args(line.more.iter().cloned());
    let mut life = Life::of(line.words.first().context("no program")?)?;
    let mut running = Running::start(line.prepared(record.command_line(&line.words())?))?;
    let mut memory: f64 = 0.0;
    while running.is_alive()? {
        life.look(running.pid())?;
        memory = memory.max(memory_mib(running.pid(), "VmHWM").unwrap_or(0.0));
    }
    let recorded = Recorded {
        ended: running.wait()?,
        genome: record.genome().to_owned(),
    };
    let known = Known::of(&recorded, memory)?;
    ensure!(
        line.result(&recorded.ended.stdout)? == plain,
        "its result is another than without a recording: {}",
        recorded.ended.stdout
    );
    Ok((life.lasted()?.as_secs_f64() * 1e3, Some(known)))
}

/// A bundle of a program with many modules, to stdout.
fn esbuild(_: &Programs, yes: bool, folder: &Path) -> Result<Line> {
    projects::bring(yes)?;
    let program = copied(&cmd::tools().join("bin/esbuild"), folder)?;
    let mut entry = String::new();
    for module in 0..400 {
        let text = format!(
            "export interface P {{ a: number }}\nexport const f{module} = async (p: P): Promise<number> => {{ \
             const {{ a, ...rest }} = p as any; return a ?? Object.keys(rest).length + {module}; }};\n\
             export class C{module} {{ #n = {module}; static s = new C{module}(); get n() {{ return this.#n ** 2; }} }}\n"
        );
        fs::write(folder.join(format!("m{module}.ts")), text)?;
        entry += &format!("export * from './m{module}';\n");
    }
    fs::write(folder.join("entry.ts"), entry)?;
    let entry = folder.join("entry.ts");
    Ok(Line::of([
        program.as_os_str(),
        entry.as_os_str(),
        "--bundle".as_ref(),
        "--minify".as_ref(),
        "--target=es2017".as_ref(),
    ]))
}

fn httpie(_: &Programs, yes: bool, folder: &Path) -> Result<Line> {
    let python = python(yes)?;
    // Its child that looks for a newer one would outlive it.
    fs::write(
        folder.join("config.json"),
        r#"{"disable_update_warnings": true}"#,
    )?;
    let mut line = Line::of([
        python.as_os_str(),
        "-m".as_ref(),
        "httpie".as_ref(),
        "--offline".as_ref(),
        "--ignore-stdin".as_ref(),
        "--print=HBh".as_ref(),
        "POST".as_ref(),
        "http://127.0.0.1/items".as_ref(),
        "name=scalpel".as_ref(),
        "numbers:=[1,2,3]".as_ref(),
    ]);
    line.variables = vec![("HTTPIE_CONFIG_DIR", folder.into())];
    Ok(line)
}

fn django(_: &Programs, yes: bool, _: &Path) -> Result<Line> {
    let shop = cmd::root().join("xtask/bench/django_shop.py");
    Ok(Line::of([
        python(yes)?.as_os_str(),
        shop.as_os_str(),
        "300".as_ref(),
    ]))
}

/// An interpreter with our probe, and the packages.
fn python(yes: bool) -> Result<PathBuf> {
    let mut real = environment::ensure()?;
    if real.is_none() {
        newest::bring(yes)?;
        real = environment::ensure()?;
    }
    python::build(yes)?;
    Ok(real.context("no Python that has sys.monitoring")?.python)
}

const WORK: &str = "
import java.util.*;
public class Work {
    public static void main(String[] args) {
        long sum = 0;
        for (int round = 0; round < 60; round++) {
            Map<String, List<Integer>> map = new TreeMap<>();
            for (int at = 0; at < 20000; at++)
                map.computeIfAbsent(\"k\" + at % 997, key -> new ArrayList<>()).add(at * round);
            for (List<Integer> list : map.values()) for (int value : list) sum = sum * 31 + value;
        }
        System.out.println(sum);
    }
}
";

fn java(_: &Programs, _: bool, folder: &Path) -> Result<Line> {
    fs::write(folder.join("Work.java"), WORK)?;
    cmd::run(
        cmd::command("javac")
            .arg("-d")
            .arg(folder)
            .arg(folder.join("Work.java")),
    )?;
    let mut line = Line::of([
        "java".as_ref(),
        "-Xshare:off".as_ref(),
        "-XX:+UseSerialGC".as_ref(),
        "-cp".as_ref(),
        folder.as_os_str(),
        "Work".as_ref(),
    ]);
    line.more = vec!["--lib".into(), libjvm()?.into_os_string()];
    Ok(line)
}

/// It is mapped later than the launcher, so it is named by its path.
fn libjvm() -> Result<PathBuf> {
    let launcher = executed("java")?;
    let home = launcher.parent().and_then(Path::parent);
    let library = home.map(|home| home.join("lib/server/libjvm.so"));
    let library = library.filter(|library| library.exists());
    library.with_context(|| format!("no libjvm.so beside {}", launcher.display()))
}

fn ripgrep(_: &Programs, yes: bool, folder: &Path) -> Result<Line> {
    projects::bring(yes)?;
    let program = copied(&cmd::tools().join("bin/rg"), folder)?;
    let place = cmd::root().join("scalpel-user");
    let words = [
        program.as_os_str(),
        "--no-config".as_ref(),
        "--sort".as_ref(),
        "path".as_ref(),
        "-n".as_ref(),
        "-i".as_ref(),
        r"(\w+)_(event|sample)s?\b.*[a-z]{4}".as_ref(),
    ];
    let place = place.as_os_str();
    let places = std::iter::repeat_n(place, 20);
    Ok(Line::of(words.into_iter().chain(places)))
}

/// Our own program as another one: where it would probe the functions of PostgreSQL.
fn ourselves(programs: &Programs, _: bool, folder: &Path) -> Result<Line> {
    let program = copied(&cmd::target().join("release/scalpel-ebpf"), folder)?;
    let file = programs.find("usr/lib/postgresql/15/bin/postgres")?;
    Ok(Line::of([
        program.as_os_str(),
        "list".as_ref(),
        "sites".as_ref(),
        file.as_os_str(),
        "--json".as_ref(),
    ]))
}

/// An error of the grammar is an exception in it, which it catches.
const WRONG: &str = "int f( { ] ; }\n";
const SUSPICIOUS: &str = "
#include <vector>
#include <string>
struct Base { virtual int of(int n) { return n; } int *kept; Base() { kept = new int[3]; } };
struct Other : Base { int of(int n) override { int a[4]; a[n > 4 ? 4 : n] = n; return a[0]; } };
int main() { std::vector<int> v; for (auto it = v.begin(); it != v.end(); ++it) v.erase(it); int *p = 0; return *p; }
";

fn cppcheck(programs: &Programs, _: bool, folder: &Path) -> Result<Line> {
    let program = copied(&programs.find("usr/bin/cppcheck")?, folder)?;
    // Beside its program it looks for what it knows of libraries.
    let known = programs.find("usr/lib/x86_64-linux-gnu/cppcheck/cfg")?;
    std::os::unix::fs::symlink(known, folder.join("cfg"))?;
    let (wrong, suspicious) = (folder.join("wrong.cpp"), folder.join("suspicious.cpp"));
    fs::write(&wrong, WRONG)?;
    let mut text = String::from(SUSPICIOUS);
    for number in 0..300 {
        text += &format!(
            "int f{number}(int n) {{ std::string s; for (int i = 0; i < n; i++) {{ if (s.size() == {number}) s += 'x'; \
             else if (n / (i - {number})) s.clear(); }} return s.size(); }}\n"
        );
    }
    fs::write(&suspicious, text)?;
    let output = folder.join("findings.xml");
    let mut line = Line::of([
        program.as_os_str(),
        "--enable=all".as_ref(),
        "--xml".as_ref(),
        format!("--output-file={}", output.display()).as_ref(),
        wrong.as_os_str(),
        suspicious.as_os_str(),
    ]);
    line.writes = Some(output);
    line.variables = libraries(programs)?;
    Ok(line)
}

fn sqlite(programs: &Programs, _: bool, folder: &Path) -> Result<Line> {
    let program = copied(&programs.find("usr/bin/sqlite3")?, folder)?;
    let script = "create table t(a integer primary key, b text, c real); \
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 300000) \
        insert into t select i, 'x' || i * 7919 % 10007, i * 1.5 from n; \
        create index i on t(b); \
        select count(*), sum(c), min(b), max(b) from t; \
        select b, count(*) c from t group by b order by c desc, b limit 20;";
    let mut line = Line::of([program.as_os_str(), ":memory:".as_ref(), script.as_ref()]);
    line.variables = libraries(programs)?;
    Ok(line)
}

/// Where the unpacked packages have their libraries, as `Programs` says it.
fn libraries(programs: &Programs) -> Result<Vec<(&'static str, OsString)>> {
    const FOLDERS: &str = "LD_LIBRARY_PATH";
    let command = programs.with_libraries(Command::new("true"))?;
    let set = command.get_envs();
    Ok(set
        .filter(|(name, _)| *name == FOLDERS)
        .filter_map(|(_, value)| Some((FOLDERS, value?.to_owned())))
        .collect())
}

/// A private copy: probes belong to the file.
fn copied(program: &Path, folder: &Path) -> Result<PathBuf> {
    ensure!(program.exists(), "there is no {}", program.display());
    let copy = folder.join(program.file_name().context("a program has a name")?);
    copy_program(program, &copy)?;
    Ok(copy)
}
