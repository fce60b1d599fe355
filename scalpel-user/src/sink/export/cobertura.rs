//! Cobertura's XML: a package a folder, a class a source file, a method a function.

use std::collections::BTreeMap;
use std::io::{self, Write};

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

use super::covered::{Coverage, Covered};
use super::lcov::lines;
use super::{Notes, Subject};
use crate::sink::text::clean;

const DOCTYPE: &str = "coverage SYSTEM \"http://cobertura.sourceforge.net/xml/coverage-04.dtd\"";

/// Writes the functions of `subject`.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<Notes> {
    write_coverage(&Coverage::of(subject), out)
}

/// Writes `coverage`.
pub fn write_coverage(coverage: &Coverage, out: &mut dyn Write) -> io::Result<Notes> {
    let mut packages: BTreeMap<&str, Vec<Class<'_>>> = BTreeMap::new();
    for (file, functions) in coverage.files() {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let class = Class::of(file, functions);
        packages.entry(folder).or_default().push(class);
    }
    let mut xml = Xml(Writer::new_with_indent(&mut *out, b' ', 1));
    xml.event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    xml.event(Event::DocType(BytesText::from_escaped(DOCTYPE)))?;
    for line in coverage.remarks() {
        // Two hyphens would end the comment.
        let line = format!(" {} ", clean(&line).replace("--", "- -"));
        xml.event(Event::Comment(BytesText::new(&line)))?;
    }
    xml.coverage(coverage, &packages)?;
    writeln!(out)?;
    Ok(coverage.notes())
}

/// Lines that ran, of those known.
#[derive(Clone, Copy, Default)]
struct Rate {
    covered: usize,
    valid: usize,
}

impl Rate {
    fn text(self) -> String {
        format!("{:.4}", self.covered as f64 / self.valid.max(1) as f64)
    }
}

impl FromIterator<Self> for Rate {
    fn from_iter<T: IntoIterator<Item = Self>>(rates: T) -> Self {
        rates.into_iter().fold(Self::default(), |sum, rate| Self {
            covered: sum.covered + rate.covered,
            valid: sum.valid + rate.valid,
        })
    }
}

/// One source file.
struct Class<'a> {
    file: &'a str,
    functions: &'a [Covered],
    lines: Vec<(u32, u64)>,
    rate: Rate,
}

impl<'a> Class<'a> {
    fn of(file: &'a str, functions: &'a [Covered]) -> Self {
        let lines = lines(functions);
        let rate = Rate {
            covered: lines.iter().filter(|(_, hits)| *hits > 0).count(),
            valid: lines.len(),
        };
        Self {
            file,
            functions,
            lines,
            rate,
        }
    }
}

/// Elements of the document.
struct Xml<'a>(Writer<&'a mut dyn Write>);

type Attributes<'a> = &'a [(&'a str, &'a str)];

impl Xml<'_> {
    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        self.0.write_event(event)
    }

    fn open(&mut self, name: &str, attributes: Attributes<'_>) -> io::Result<()> {
        self.event(Event::Start(element(name, attributes)))
    }

    fn empty(&mut self, name: &str, attributes: Attributes<'_>) -> io::Result<()> {
        self.event(Event::Empty(element(name, attributes)))
    }

    fn close(&mut self, name: &str) -> io::Result<()> {
        self.event(Event::End(BytesEnd::new(name)))
    }

    fn coverage(
        &mut self,
        coverage: &Coverage,
        packages: &BTreeMap<&str, Vec<Class<'_>>>,
    ) -> io::Result<()> {
        let rates = packages.values().flatten().map(|class| class.rate);
        let rate: Rate = rates.collect();
        self.open(
            "coverage",
            &[
                ("line-rate", &rate.text()),
                ("branch-rate", "0"),
                ("lines-covered", &rate.covered.to_string()),
                ("lines-valid", &rate.valid.to_string()),
                ("branches-covered", "0"),
                ("branches-valid", "0"),
                ("complexity", "0"),
                ("version", env!("CARGO_PKG_VERSION")),
                ("timestamp", &coverage.started_ms().to_string()),
            ],
        )?;
        self.sources(coverage.roots())?;
        self.open("packages", &[])?;
        for (folder, classes) in packages {
            self.package(folder, classes)?;
        }
        self.close("packages")?;
        self.close("coverage")
    }

    /// Where paths begin, if they do not begin at the root of the file system.
    fn sources(&mut self, roots: &[String]) -> io::Result<()> {
        if roots.is_empty() {
            return Ok(());
        }
        self.open("sources", &[])?;
        for root in roots {
            self.open("source", &[])?;
            self.event(Event::Text(BytesText::new(&clean(root))))?;
            self.close("source")?;
        }
        self.close("sources")
    }

    fn package(&mut self, folder: &str, classes: &[Class<'_>]) -> io::Result<()> {
        let rate: Rate = classes.iter().map(|class| class.rate).collect();
        self.open("package", &measured(folder, &rate.text()))?;
        self.open("classes", &[])?;
        classes.iter().try_for_each(|class| self.class(class))?;
        self.close("classes")?;
        self.close("package")
    }

    fn class(&mut self, class: &Class<'_>) -> io::Result<()> {
        let rate = class.rate.text();
        let name = class.file.rsplit('/').next().unwrap_or(class.file);
        let [name, line_rate, branch_rate, complexity] = measured(name, &rate);
        let file = ("filename", class.file);
        self.open("class", &[name, file, line_rate, branch_rate, complexity])?;
        self.open("methods", &[])?;
        class
            .functions
            .iter()
            .try_for_each(|function| self.method(function))?;
        self.close("methods")?;
        self.lines(&class.lines)?;
        self.close("class")
    }

    fn method(&mut self, function: &Covered) -> io::Result<()> {
        let rate = if function.hits > 0 {
            "1.0000"
        } else {
            "0.0000"
        };
        let [name, line_rate, branch_rate, complexity] = measured(&function.name, rate);
        let signature = ("signature", function.key.as_str());
        self.open(
            "method",
            &[name, signature, line_rate, branch_rate, complexity],
        )?;
        self.lines(&[(function.line, function.hits)])?;
        self.close("method")
    }

    fn lines(&mut self, lines: &[(u32, u64)]) -> io::Result<()> {
        self.open("lines", &[])?;
        for (line, hits) in lines {
            let (line, hits) = (line.to_string(), hits.to_string());
            self.empty(
                "line",
                &[("number", &line), ("hits", &hits), ("branch", "false")],
            )?;
        }
        self.close("lines")
    }
}

/// XML has no way to write control characters, and names come from somebody's file.
fn element<'a>(name: &'a str, attributes: Attributes<'_>) -> BytesStart<'a> {
    let mut start = BytesStart::new(name);
    for (key, value) in attributes {
        start.push_attribute((*key, &*clean(value)));
    }
    start
}

/// What packages, classes and methods have in common.
const fn measured<'a>(name: &'a str, rate: &'a str) -> [(&'a str, &'a str); 4] {
    [
        ("name", name),
        ("line-rate", rate),
        ("branch-rate", "0"),
        ("complexity", "0"),
    ]
}
