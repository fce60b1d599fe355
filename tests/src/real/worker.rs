//! Programs of four runtimes that compute the same again and again, say how often, and notice when a result changes: for
//! scopes of a function that they keep calling.
#![expect(clippy::print_stdout, reason = "throughputs are shown, never asserted")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::node;
use crate::child::{self, Running};
use crate::fixture::copy_program;
use crate::suite::{Outcome, Skip};

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

/// The interpreter, its home, and its library, if it has one.
const PLACES: &str = r"
import os, sys, sysconfig
of = sysconfig.get_config_var
print(os.path.realpath(sys.executable), sys.base_prefix + ':' + sys.base_exec_prefix, sep='\n')
print(os.path.join(of('LIBDIR'), of('INSTSONAME')) if of('Py_ENABLE_SHARED') else '')
print('end')
";

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

/// A program that computes the same again and again, prints what it is and how often, and must not change.
pub struct Worker {
    running: Running,
    folder: TempDir,
    /// The function that it calls, as `scope` is told.
    pub func: &'static str,
    /// The file that has it, where that is not the program.
    pub lib: Option<&'static str>,
}

impl Worker {
    fn start(command: Command, folder: TempDir, func: &'static str) -> anyhow::Result<Self> {
        let mut running = Running::start(command)?;
        running.stdout_line(|line| line.starts_with("ready"))?;
        Ok(Self {
            running,
            folder,
            func,
            lib: None,
        })
    }

    /// JavaScript that V8 has compiled, and named in a map.
    pub fn javascript() -> anyhow::Result<Self> {
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
        Self::start(node, folder, "scoped")
    }

    /// The interpreter's own C.
    pub fn python() -> anyhow::Result<Self> {
        Self::python_by(|_| Ok(Command::new("python3")))
    }

    /// The same by a copy of the interpreter, which nobody else runs or probes.
    pub fn python_of_its_own() -> anyhow::Result<Self> {
        Self::python_by(|folder| {
            let mut asked = Command::new("python3");
            asked.args(["-c", PLACES]);
            let said = child::run(asked)?.expect_code(0)?.stdout;
            let mut said = said.lines();
            let mut next = || said.next().context("python3 does not say where it is");
            let (program, home, library) = (next()?, next()?, next()?);
            let copy = folder.join("python3");
            copy_program(Path::new(program), &copy)?;
            let mut python = Command::new(&copy);
            python.env("PYTHONHOME", home);
            let library = Path::new(library);
            if let Some(name) = library.file_name().filter(|_| library.is_file()) {
                copy_program(library, &folder.join(name))?;
                python.env("LD_LIBRARY_PATH", folder);
            }
            Ok(python)
        })
    }

    fn python_by(
        interpreter: impl FnOnce(&Path) -> anyhow::Result<Command>,
    ) -> anyhow::Result<Self> {
        let (folder, path) = source("scoped.py", PYTHON)?;
        let mut python = interpreter(folder.path())?;
        python.arg(&path);
        let mut worker = Self::start(python, folder, "PyDict_SetItem")?;
        let maps = fs::read_to_string(format!("/proc/{}/maps", worker.pid()))?;
        worker.lib = maps.contains("libpython").then_some("libpython*");
        Ok(worker)
    }

    /// A Go program, built for it.
    pub fn go() -> anyhow::Result<Self> {
        let (folder, path) = source("scoped.go", GO)?;
        let program = folder.path().join("scoped");
        build(
            Command::new("go")
                .args(["build", "-o"])
                .arg(&program)
                .arg(&path),
            "go",
        )?;
        Self::start(Command::new(&program), folder, "main.scoped")
    }

    /// Java that the virtual machine has compiled, and named in a map.
    pub fn java() -> anyhow::Result<Self> {
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
        let mut worker = Self::start(java, folder, "*Scoped*scoped*")?;
        // Compiled for good by then.
        worker.rate("java, warm")?;
        build(
            Command::new("jcmd").args([&worker.pid().to_string(), "Compiler.perfmap"]),
            "jcmd with Compiler.perfmap",
        )?;
        Ok(worker)
    }

    /// How much it does in a second, as it says.
    pub fn rate(&mut self, what: &str) -> Outcome {
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

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Lets it end: it must have computed the same each time.
    pub fn end(mut self) -> Outcome {
        let map = format!("/tmp/perf-{}.map", self.pid());
        // Java waits for input, all others for its end; this one may not hear it any more.
        drop(self.running.say("end\n"));
        let said = self.running.wait()?.expect_code(0)?.stdout;
        drop(fs::remove_file(map));
        drop(self.folder);
        ensure!(said.contains("done") && !said.contains("wrong"), "{said}");
        Ok(())
    }
}

fn source(name: &str, text: &str) -> anyhow::Result<(TempDir, PathBuf)> {
    let folder = TempDir::with_prefix("scalpel-scope-")?;
    let path = folder.path().join(name);
    fs::write(&path, text)?;
    Ok((folder, path))
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
