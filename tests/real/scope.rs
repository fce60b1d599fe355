//! Scopes of real projects under load: a hundred calls of one function each, the work done as without, and the rate of it
//! before and after, told and not judged.
#![expect(clippy::print_stdout, reason = "throughputs are shown, never asserted")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use scalpel_tests::child::Running;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::real::{node, postgres, redis};
use scalpel_tests::residue;
use scalpel_tests::scope::{Scope, ended};
use scalpel_tests::suite::{Outcome, Skip, Suite};
use scalpel_tests::tests;
use tempfile::TempDir;

const CALLS: usize = 100;

pub(crate) fn add(suite: &mut Suite, programs: &Arc<Programs>) {
    let shared = Arc::clone(programs);
    suite.test("scope", "postgres_answers_the_same", move || {
        in_postgres(&shared)
    });
    let shared = Arc::clone(programs);
    suite.test("scope", "redis_keeps_the_same_data", move || {
        in_redis(&shared)
    });
    tests!(suite, "scope":
        node_answers_the_same,
        compiled_javascript_is_scoped_by_name,
        python_computes_the_same,
        go_computes_the_same,
        compiled_java_is_scoped_by_name,
    );
}

/// A hundred calls, most of them whole: callees that block signals or switch stacks give reasons.
fn hundred(pid: u32, func: &str, args: &[&str], whole: usize) -> anyhow::Result<Scope> {
    let mut all = vec!["--calls", "100", "--duration", "50"];
    all.extend(args);
    let ended = ended(pid, func, &all)?;
    ensure!(
        matches!(ended.code(), 0 | 5),
        "exit code {}: {}",
        ended.code(),
        ended.stderr
    );
    let scope = Scope::parse(&ended.stdout)?;
    ensure!(
        scope.calls.len() == CALLS,
        "{} calls: {}",
        scope.calls.len(),
        ended.stderr
    );
    let complete = scope
        .calls
        .iter()
        .filter(|call| call.status == "complete")
        .count();
    ensure!(
        complete >= whole,
        "{complete} of {CALLS} are whole: {:?}",
        scope.reasons
    );
    println!(
        "{func}: {complete} of {CALLS} calls whole, {} instructions, {:?}",
        scope.instructions, scope.reasons
    );
    Ok(scope)
}

/// Work a second, by how often `work` ran.
fn rate(what: &str, count: u32, mut work: impl FnMut() -> Outcome) -> Outcome {
    let begun = Instant::now();
    for _ in 0..count {
        work()?;
    }
    println!(
        "{what}: {:.0} a second",
        f64::from(count) / begun.elapsed().as_secs_f64()
    );
    Ok(())
}

fn in_redis(programs: &Programs) -> Outcome {
    let plain = {
        let server = redis::Server::start(programs)?;
        server.work(5_000)?;
        let digest = server.digest()?;
        server.stop()?;
        digest
    };
    let server = redis::Server::start(programs)?;
    let pid = server.pid();
    // Its package is stripped: a function that it exports.
    let scoped = std::thread::spawn(move || hundred(pid, "setCommand", &["--budget", "200ms"], 90));
    rate("redis, scoped, 4 x 5,000 requests", 1, || {
        server.work(5_000)
    })?;
    // What is asked for next leaves the data as they are.
    while !scoped.is_finished() {
        for number in 0..200 {
            let mut client = server.client("redis-cli")?;
            client.args(["set", "scoped", &number.to_string()]);
            scalpel_tests::child::run(client)?.expect_code(0)?;
            if scoped.is_finished() {
                break;
            }
        }
    }
    let mut client = server.client("redis-cli")?;
    client.args(["del", "scoped"]);
    scalpel_tests::child::run(client)?.expect_code(0)?;
    scoped
        .join()
        .map_err(|_panic| anyhow::anyhow!("the scope panicked"))??;
    ensure!(server.digest()? == plain, "the data differ");
    rate("redis, after, 4 x 5,000 requests", 1, || server.work(5_000))?;
    residue::text_is_clean(pid)?;
    server.stop()
}

fn in_postgres(programs: &Programs) -> Outcome {
    let server = postgres::Server::start(programs)?;
    server.run("pgbench", &["-i", "-q", "-s", "1", "postgres"])?;
    let bench = server.start_client(
        "pgbench",
        &["-n", "-c", "1", "-T", "8", "-P", "1", "postgres"],
    )?;
    let backends = server.backends_of_pgbench(1)?;
    let backend = *backends.first().context("no backend")?;
    hundred(backend, "ExecutorRun", &["--budget", "200ms"], 50)?;
    residue::text_is_clean(backend)?;
    let said = bench.wait()?.expect_code(0)?;
    for line in said.stderr.lines().filter(|line| line.contains("progress")) {
        println!("postgres: {line}");
    }
    ensure!(
        said.stdout.contains("number of failed transactions: 0"),
        "{}",
        said.stdout
    );
    let sums = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)";
    ensure!(server.query(sums)? == "t", "the sums do not agree any more");
    server.stop()
}

fn node_answers_the_same() -> Outcome {
    let server = node::Server::start()?;
    let plain = server.ask(50)?;
    rate("node, before, 50 requests", 1, || server.ask(50).map(drop))?;
    let pid = server.pid();
    let scoped = std::thread::spawn(move || hundred(pid, "uv__read", &["--budget", "200ms"], 90));
    while !scoped.is_finished() {
        ensure!(server.ask(50)? == plain, "an answer changed");
    }
    scoped
        .join()
        .map_err(|_panic| anyhow::anyhow!("the scope panicked"))??;
    ensure!(server.ask(50)? == plain, "an answer changed afterwards");
    rate("node, after, 50 requests", 1, || server.ask(50).map(drop))?;
    residue::text_is_clean(pid)?;
    server.stop()
}

/// A program that computes the same again and again, prints what it is and how often, and must not change.
struct Worker {
    running: Running,
    _folder: TempDir,
}

impl Worker {
    fn start(command: Command, folder: TempDir) -> anyhow::Result<Self> {
        let mut running = Running::start(command)?;
        running.stdout_line(|line| line.starts_with("ready"))?;
        Ok(Self {
            running,
            _folder: folder,
        })
    }

    /// How much it does in a second, as it says; and that it is right.
    fn rate(&mut self, what: &str) -> Outcome {
        // What it said meanwhile is behind us when a line has to be waited for; the one after that is of a whole new second.
        loop {
            let asked = Instant::now();
            self.said()?;
            if asked.elapsed() > Duration::from_millis(200) {
                break;
            }
        }
        println!("{what}: {}", self.said()?.trim());
        Ok(())
    }

    fn said(&mut self) -> anyhow::Result<String> {
        self.running.stdout_line(|line| line.starts_with("rate"))
    }

    fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn end(self) -> Outcome {
        let said = self.running.wait()?.expect_code(0)?.stdout;
        ensure!(said.contains("done") && !said.contains("wrong"), "{said}");
        Ok(())
    }
}

fn source(name: &str, text: &str) -> anyhow::Result<(TempDir, std::path::PathBuf)> {
    let folder = TempDir::with_prefix("scalpel-scope-")?;
    let path = folder.path().join(name);
    fs::write(&path, text)?;
    Ok((folder, path))
}

const JAVASCRIPT: &str = r"
function scoped(n) { let sum = 0; for (let at = 0; at < n; at++) sum = (sum * 31 + at) | 0; return sum; }
const expect = scoped(10);
let calls = 0, last = 0, ended = false;
process.stdin.on('end', () => { ended = true; }).resume();
for (let at = 0; at < 200000; at++) scoped(10);
console.log('ready');
const timer = setInterval(() => console.log('rate ' + (calls - last), last = calls), 1000);
function turn() {
    for (let at = 0; at < 50; at++) { if (scoped(10) !== expect) console.log('wrong'); calls++; }
    if (ended) { clearInterval(timer); console.log('done'); } else setTimeout(turn, 1);
}
turn();
";

/// V8 writes a perf map; the code may move, and a call that is not seen any more is no harm.
fn compiled_javascript_is_scoped_by_name() -> Outcome {
    let (folder, path) = source("scoped.js", JAVASCRIPT)?;
    let mut node = Command::new(node::find()?);
    // It leaves a log where it stands.
    node.current_dir(folder.path());
    node.args([
        "--perf-basic-prof",
        "--no-turbo-inlining",
        "--no-maglev-inlining",
    ])
    .arg(&path);
    let mut worker = Worker::start(node, folder)?;
    worker.rate("javascript, before")?;
    let scope = hundred(worker.pid(), "scoped", &["--budget", "200ms"], 90)?;
    let named = scope
        .trace
        .iter()
        .any(|row| row.symbol.as_deref() == Some("scoped"));
    ensure!(named, "no instruction has the function's name");
    worker.rate("javascript, after")?;
    let map = format!("/tmp/perf-{}.map", worker.pid());
    worker.end()?;
    // It may be gone.
    drop(fs::remove_file(map));
    Ok(())
}

const PYTHON: &str = r"
import json, select, sys, time
data = {'a': list(range(40)), 'b': 'x' * 50}
expect = json.dumps(data)
print('ready', flush=True)
last, calls = time.time(), 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(50):
        if json.dumps(json.loads(expect)) != expect: print('wrong', flush=True)
        calls += 1
    if time.time() - last > 1:
        print('rate', calls, flush=True); last, calls = time.time(), 0
print('done', flush=True)
";

fn python_computes_the_same() -> Outcome {
    let (folder, path) = source("scoped.py", PYTHON)?;
    let mut python = Command::new("python3");
    python.arg(&path);
    let mut worker = Worker::start(python, folder)?;
    worker.rate("python, before")?;
    let args: &[&str] = &["--budget", "200ms"];
    let maps = fs::read_to_string(format!("/proc/{}/maps", worker.pid()))?;
    let shared = maps.contains("libpython");
    let with_library = ["--budget", "200ms", "--lib", "libpython*"];
    hundred(
        worker.pid(),
        "PyDict_SetItem",
        if shared { &with_library } else { args },
        90,
    )?;
    worker.rate("python, after")?;
    worker.end()
}

const GO: &str = r#"package main

import ("fmt"; "os"; "sort"; "time")

//go:noinline
func scoped(values []int) int {
	sum := 0
	for _, value := range values { sum = sum*31 + value }
	return sum
}

func main() {
	ended := make(chan bool)
	go func() { os.Stdin.Read(make([]byte, 1)); close(ended) }()
	values := make([]int, 20)
	for at := range values { values[at] = 20 - at }
	sort.Ints(values)
	expect := scoped(values)
	fmt.Println("ready")
	last, calls := time.Now(), 0
	for {
		select {
		case <-ended:
			fmt.Println("done")
			return
		default:
		}
		for at := 0; at < 50; at++ {
			if scoped(append([]int(nil), values...)) != expect { fmt.Println("wrong") }
			calls++
		}
		if time.Since(last) > time.Second {
			fmt.Println("rate", calls)
			last, calls = time.Now(), 0
		}
	}
}
"#;

fn go_computes_the_same() -> Outcome {
    let (folder, path) = source("scoped.go", GO)?;
    let program = folder.path().join("scoped");
    build(
        Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(&path),
        "go",
    )?;
    let mut worker = Worker::start(Command::new(&program), folder)?;
    worker.rate("go, before")?;
    // Where Go moves a goroutine while its call is stepped, the trace says so.
    hundred(worker.pid(), "main.scoped", &["--budget", "200ms"], 50)?;
    worker.rate("go, after")?;
    worker.end()
}

const JAVA: &str = r#"
public class Scoped {
    static int scoped(int n) { int sum = 0; for (int at = 0; at < n; at++) sum = sum * 31 + at; return sum; }
    public static void main(String[] args) throws Exception {
        int expect = scoped(20);
        for (int at = 0; at < 200000; at++) if (scoped(20) != expect) System.out.println("wrong");
        System.out.println("ready");
        long last = System.nanoTime(), calls = 0;
        while (System.in.available() == 0) {
            for (int at = 0; at < 50; at++) { if (scoped(20) != expect) System.out.println("wrong"); calls++; }
            if (System.nanoTime() - last > 1000000000L) {
                System.out.println("rate " + calls); last = System.nanoTime(); calls = 0;
            }
        }
        System.out.println("done");
    }
}
"#;

fn compiled_java_is_scoped_by_name() -> Outcome {
    let (folder, path) = source("Scoped.java", JAVA)?;
    build(
        Command::new("javac")
            .arg("-d")
            .arg(folder.path())
            .arg(&path),
        "a JDK",
    )?;
    let mut java = Command::new("java");
    java.args([
        "-XX:CompileCommand=quiet",
        "-XX:CompileCommand=dontinline,Scoped.scoped",
        "-cp",
    ]);
    java.arg(folder.path()).arg("Scoped");
    let mut worker = Worker::start(java, folder)?;
    worker.rate("java, before")?;
    let pid = worker.pid().to_string();
    build(
        Command::new("jcmd").args([&pid, "Compiler.perfmap"]),
        "jcmd with Compiler.perfmap",
    )?;
    hundred(worker.pid(), "*Scoped*scoped*", &["--budget", "200ms"], 90)?;
    worker.rate("java, after")?;
    worker.running.say("end\n")?;
    worker.end()?;
    drop(fs::remove_file(
        Path::new("/tmp").join(format!("perf-{pid}.map")),
    ));
    Ok(())
}

/// Runs what must be installed for a test; where it is not, or fails, the test is skipped.
fn build(command: &mut Command, what: &str) -> Outcome {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(Skip::because(format!(
            "{what}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ))),
        Err(error) => Err(Skip::because(format!("{what} is not installed ({error})"))),
    }
}
