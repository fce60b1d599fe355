//! The live view of `top`: functions as they were in the last interval, or since the start.
//!
//! Pure: reports and keys come in, a page goes out. Must not know terminals or clocks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::{text, units};
use crate::report::function::State;
use crate::report::{FunctionRow, Measures, Report, Sort};

/// A key, as far as it means something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the first row.
    Home,
    /// Keeps a search.
    Enter,
    /// Ends a search.
    Escape,
    /// Takes a character of a search back.
    Backspace,
    /// Ctrl-C.
    Interrupt,
}

/// Widths of the numbers' columns: share, self CPU, total CPU, total wall, calls.
const WIDTHS: [u16; 5] = [8, 11, 11, 11, 10];

/// Those columns by importance, after the sorted one.
const IMPORTANCE: [usize; 5] = [1, 4, 2, 3, 0];

/// Room that names have at least.
const NAMES: u16 = 16;

/// Rows of a page, with its head and foot.
const PAGE: usize = 10;

/// What is shown of a function. `None` = not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    self_ns: Option<u64>,
    total_ns: Option<u64>,
    wall_ns: Option<u64>,
    calls: Option<u64>,
    /// Self and total time come from samples.
    estimated: (bool, bool),
}

impl Numbers {
    fn of(m: &Measures) -> Self {
        Self {
            self_ns: Sort::SelfCpu.value(m),
            total_ns: Sort::TotalCpu.value(m),
            wall_ns: m.total_wall_ns,
            calls: m.calls,
            estimated: (
                m.cpu_estimated || Sort::SelfCpu.measured(m).is_none(),
                m.cpu_estimated || Sort::TotalCpu.measured(m).is_none(),
            ),
        }
    }

    /// What came since `before`.
    fn since(&self, before: &Self) -> Self {
        let more =
            |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then.unwrap_or(0)));
        Self {
            self_ns: more(self.self_ns, before.self_ns),
            total_ns: more(self.total_ns, before.total_ns),
            wall_ns: more(self.wall_ns, before.wall_ns),
            calls: more(self.calls, before.calls),
            estimated: self.estimated,
        }
    }
}

#[derive(Clone, Debug)]
struct Function {
    name: String,
    module: String,
    /// Its calls are a lower bound: its probe went, or some were lost.
    bound: bool,
    whole: Numbers,
    last: Numbers,
}

/// The view.
#[derive(Debug)]
pub struct Top {
    functions: Vec<Function>,
    sort: Sort,
    since_start: bool,
    search: String,
    searching: bool,
    first: usize,
    title: String,
    trust: String,
    elapsed_ns: u64,
    last_ns: u64,
}

impl Top {
    /// Nothing seen yet.
    pub fn new(sort: Sort) -> Self {
        Self {
            functions: Vec::new(),
            sort,
            since_start: false,
            search: String::new(),
            searching: false,
            first: 0,
            title: String::new(),
            trust: String::new(),
            elapsed_ns: 0,
            last_ns: 0,
        }
    }

    /// Takes the recording as it is now: functions keep their places in it.
    pub fn update(&mut self, report: &Report) {
        let run = &report.run;
        self.last_ns = run.duration_ns.saturating_sub(self.elapsed_ns);
        self.elapsed_ns = run.duration_ns;
        self.title = format!("{} (pid {})", text::clean(&run.command), run.pid);
        let lost = match report.lost {
            0 => "nothing lost".to_owned(),
            lost => format!("{} events lost", units::count(lost)),
        };
        let off = report
            .bounds
            .iter()
            .filter(|bound| bound.since_ns.is_some())
            .count();
        self.trust = format!(
            "{} events, {lost}, {off} {} switched off",
            units::count(report.events),
            functions(off)
        );
        let before = std::mem::take(&mut self.functions);
        let mut before = before.iter().map(|function| function.whole);
        let function = |row: &FunctionRow| {
            let whole = Numbers::of(&row.measures);
            Function {
                name: text::clean(&row.name).into_owned(),
                module: text::clean(&row.module).into_owned(),
                bound: row.state == State::Ran
                    && row.measures.calls.is_some()
                    && row.measures.calls_at_most.is_none(),
                whole,
                last: whole.since(&before.next().unwrap_or_default()),
            }
        };
        self.functions = report.functions.iter().map(function).collect();
    }

    /// Takes a key. False = the user has seen enough.
    pub fn key(&mut self, key: Key) -> bool {
        match (key, self.searching) {
            (Key::Interrupt, _) => return false,
            (Key::Char(letter), true) => self.search.push(letter),
            (Key::Backspace, true) => drop(self.search.pop()),
            (Key::Enter, true) => self.searching = false,
            (Key::Escape, _) => {
                self.search.clear();
                self.searching = false;
            }
            (Key::Char('q'), false) => return false,
            (Key::Char('/'), false) => {
                self.search.clear();
                self.searching = true;
            }
            (Key::Char('a'), false) => self.since_start = !self.since_start,
            (Key::Char(letter), false) => {
                if let Some(sort) = sort_of(letter) {
                    self.sort = sort;
                    self.first = 0;
                }
            }
            (Key::Up, _) => self.first = self.first.saturating_sub(1),
            (Key::Down, _) => self.first += 1,
            (Key::PageUp, _) => self.first = self.first.saturating_sub(PAGE),
            (Key::PageDown, _) => self.first += PAGE,
            (Key::Home, _) => self.first = 0,
            (Key::Enter | Key::Backspace, false) => {}
        }
        if self.searching {
            self.first = 0;
        }
        true
    }

    /// Draws the page.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let [head, table, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let shown = self.shown();
        frame.render_widget(self.head(), head);
        frame.render_widget(self.table(&shown, table), table);
        frame.render_widget(self.foot(shown.len()), foot);
    }

    fn head(&self) -> Paragraph<'_> {
        let what = if self.since_start {
            format!("since the start, {}", units::duration(self.elapsed_ns))
        } else {
            format!(
                "last {} of {}",
                units::duration(self.last_ns),
                units::duration(self.elapsed_ns)
            )
        };
        Paragraph::new(vec![
            Line::from(vec![
                Span::styled(self.title.as_str(), Modifier::BOLD),
                Span::raw(format!("  {what}")),
            ]),
            Line::styled(self.trust.as_str(), Modifier::DIM),
        ])
    }

    fn foot(&self, found: usize) -> Line<'_> {
        if self.searching || !self.search.is_empty() {
            let cursor = if self.searching { "_" } else { "" };
            let functions = functions(found);
            return Line::from(format!("/{}{cursor}  {found} {functions}", self.search));
        }
        Line::styled(
            "q end  s self  t total  w wall  c calls  n name  a since start  / search",
            Modifier::DIM,
        )
    }

    /// What is to be seen of a function: it ran in the time that is shown, and is what is searched for.
    fn shown(&self) -> Vec<(&Function, Numbers)> {
        let wanted = self.search.to_lowercase();
        let numbers = |function: &Function| {
            if self.since_start {
                function.whole
            } else {
                function.last
            }
        };
        let mut shown: Vec<(&Function, Numbers)> = self
            .functions
            .iter()
            .filter(|function| function.name.to_lowercase().contains(&wanted))
            .map(|function| (function, numbers(function)))
            .filter(|(_, n)| {
                [n.calls, n.self_ns, n.total_ns]
                    .iter()
                    .any(|n| *n > Some(0))
            })
            .collect();
        let key = |n: &Numbers| match self.sort {
            Sort::TotalCpu => n.total_ns,
            Sort::SelfWall | Sort::TotalWall => n.wall_ns,
            Sort::Calls => n.calls,
            Sort::Name | Sort::SelfOffCpu | Sort::TotalOffCpu => None,
            Sort::SelfCpu | Sort::Samples => n.self_ns,
        };
        shown.sort_by(|(a, m), (b, n)| {
            (key(n), (self.sort != Sort::Name).then_some(n.calls))
                .cmp(&(key(m), (self.sort != Sort::Name).then_some(m.calls)))
                .then_with(|| a.name.cmp(&b.name))
        });
        shown
    }

    fn table<'a>(&self, shown: &[(&'a Function, Numbers)], area: Rect) -> Table<'a> {
        let time = if self.since_start {
            self.elapsed_ns
        } else {
            self.last_ns
        };
        // The last row stays in sight.
        let rows = usize::from(area.height.saturating_sub(1)).max(1);
        let first = self.first.min(shown.len().saturating_sub(rows));
        let kept = columns(area.width, self.sort);
        let rows = shown
            .iter()
            .skip(first)
            .take(rows)
            .map(|(function, numbers)| row(function, numbers, time, &kept));
        let widths = of(&kept, WIDTHS.map(Constraint::Length)).chain([Constraint::Min(1)]);
        let heading = |name: &'static str, sort: Sort| {
            let style = if sort == self.sort {
                Style::new().add_modifier(Modifier::BOLD)
            } else {
                Style::new().add_modifier(Modifier::DIM)
            };
            Cell::from(Line::from(name).right_aligned()).style(style)
        };
        let headings = [
            heading("CPU", Sort::Samples),
            heading("SELF CPU", Sort::SelfCpu),
            heading("TOTAL CPU", Sort::TotalCpu),
            heading("TOTAL WALL", Sort::TotalWall),
            heading("CALLS", Sort::Calls),
        ];
        let headings = of(&kept, headings).chain([Cell::from("FUNCTION")]);
        Table::new(rows, widths).header(Row::new(headings))
    }
}

const fn functions(count: usize) -> &'static str {
    if count == 1 { "function" } else { "functions" }
}

/// The columns that a page of this width has room for in full: a number that is cut would be another one.
fn columns(width: u16, sort: Sort) -> Vec<usize> {
    let sorted = match sort {
        Sort::TotalCpu => 2,
        Sort::SelfWall | Sort::TotalWall => 3,
        Sort::Calls => 4,
        _ => 1,
    };
    let by_importance = [sorted]
        .into_iter()
        .chain(IMPORTANCE.into_iter().filter(|&column| column != sorted));
    let mut room = width.saturating_sub(NAMES);
    let mut kept = Vec::new();
    for column in by_importance {
        let needs = WIDTHS.get(column).map_or(0, |width| width + 1);
        if needs > room {
            break;
        }
        room -= needs;
        kept.push(column);
    }
    kept.sort_unstable();
    kept
}

/// Those of all columns that are kept.
fn of<T>(kept: &[usize], all: [T; 5]) -> impl Iterator<Item = T> {
    let all = all.into_iter().enumerate();
    all.filter(|(column, _)| kept.contains(column))
        .map(|(_, item)| item)
}

fn sort_of(letter: char) -> Option<Sort> {
    Some(match letter {
        's' => Sort::SelfCpu,
        't' => Sort::TotalCpu,
        'w' => Sort::TotalWall,
        'c' => Sort::Calls,
        'n' => Sort::Name,
        _ => return None,
    })
}

fn row<'a>(function: &'a Function, numbers: &Numbers, time_ns: u64, kept: &[usize]) -> Row<'a> {
    let cell = |text: String| Cell::from(Line::from(text).right_aligned());
    let time = |ns: Option<u64>, estimated: bool| {
        let mark = if estimated && ns.is_some() { "~" } else { "" };
        cell(format!("{mark}{}", units::or_nothing(ns, units::duration)))
    };
    let share = numbers.self_ns.filter(|_| time_ns > 0).map_or_else(
        || units::NOTHING.to_owned(),
        |ns| units::percent(ns as f64 / time_ns as f64),
    );
    let bound = if function.bound { "+" } else { "" };
    let cells = [
        cell(share),
        time(numbers.self_ns, numbers.estimated.0),
        time(numbers.total_ns, numbers.estimated.1),
        time(numbers.wall_ns, false),
        cell(format!(
            "{}{bound}",
            units::or_nothing(numbers.calls, units::count)
        )),
    ];
    let name = Cell::from(Line::from(vec![
        Span::raw(function.name.as_str()),
        Span::styled(format!(" [{}]", function.module), Color::DarkGray),
    ]));
    Row::new(of(kept, cells).chain([name]))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::genome::tests::example;

    fn page(top: &Top, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| top.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| -> String {
            let cells = (0..width).map(|x| buffer[(x, y)].symbol());
            cells.collect::<String>().trim_end().to_owned()
        };
        (0..height).map(line).collect::<Vec<_>>().join("\n")
    }

    fn typed(top: &mut Top, keys: &str) {
        for key in keys.chars() {
            assert!(top.key(Key::Char(key)), "{key}");
        }
    }

    #[test]
    fn a_page_has_the_last_interval_and_then_all_of_it() {
        let report = Report::of(&example(), 0.001);
        let mut top = Top::new(Sort::SelfCpu);
        top.update(&report);
        insta::assert_snapshot!("top_page", page(&top, 90, 12));
        // Nothing has happened since: the last interval is empty, all of it is as before.
        top.update(&report);
        assert!(!page(&top, 90, 12).contains("serve"));
        typed(&mut top, "a");
        assert!(page(&top, 90, 12).contains("serve [shop]"));
    }

    #[test]
    fn keys_sort_search_and_end_it() {
        let report = Report::of(&example(), 0.001);
        let mut top = Top::new(Sort::SelfCpu);
        top.update(&report);
        let names = |top: &Top| -> Vec<String> {
            let shown = top.shown();
            shown
                .iter()
                .map(|(function, _)| function.name.clone())
                .collect()
        };
        let of_self = names(&top);
        typed(&mut top, "c");
        assert_eq!(names(&top)[0], "hash");
        typed(&mut top, "n");
        assert!(names(&top).is_sorted());
        typed(&mut top, "s/HaSq");
        assert_eq!(names(&top), [] as [String; 0]);
        top.key(Key::Backspace);
        assert_eq!(names(&top), ["hash"]);
        assert!(page(&top, 60, 6).contains("/HaS_  1 function"));
        assert!(top.key(Key::Enter) && !top.searching);
        assert_eq!(names(&top), ["hash"]);
        assert!(top.key(Key::Escape));
        assert_eq!(names(&top), of_self);
        assert!(!top.key(Key::Char('q')));
        typed(&mut top, "/q");
        assert!(!top.key(Key::Interrupt), "in a search, too");
    }

    #[test]
    fn the_last_row_stays_in_sight_and_no_page_is_too_small() {
        let report = Report::of(&example(), 0.001);
        let mut top = Top::new(Sort::Name);
        top.update(&report);
        for _ in 0..20 {
            top.key(Key::PageDown);
        }
        let last = top
            .shown()
            .last()
            .map(|(function, _)| function.name.clone());
        assert!(page(&top, 80, 5).contains(&last.unwrap()));
        for (width, height) in [(1, 1), (10, 2), (30, 3)] {
            page(&top, width, height);
        }
    }

    #[test]
    fn a_narrow_page_leaves_columns_out_and_cuts_no_number() {
        let report = Report::of(&example(), 0.001);
        let mut top = Top::new(Sort::SelfCpu);
        top.update(&report);
        let heads = |top: &Top, width: u16| {
            let text = page(top, width, 12);
            let line = text.lines().nth(2).unwrap_or_default().to_owned();
            line.split("  ")
                .map(str::trim)
                .filter(|head| !head.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let all = |top: &Top, width| heads(top, width).join("|");
        assert_eq!(all(&top, 50), "SELF CPU|CALLS FUNCTION");
        assert_eq!(all(&top, 52), "SELF CPU|TOTAL CPU|CALLS FUNCTION");
        assert_eq!(all(&top, 20), "FUNCTION");
        typed(&mut top, "w");
        assert_eq!(all(&top, 30), "TOTAL WALL FUNCTION");
        let widest = page(&top, 120, 12);
        let narrow = page(&top, 40, 12);
        for line in narrow
            .lines()
            .skip(3)
            .take(5)
            .filter(|line| !line.is_empty())
        {
            let number = line.trim_start().split("  ").next().unwrap_or_default();
            let number: String = number.chars().take(6).collect();
            assert!(widest.contains(number.trim()), "{number}: {widest}");
        }
    }

    #[test]
    fn names_of_functions_cannot_drive_the_terminal() {
        let mut report = Report::of(&example(), 0.001);
        report.functions[0].name = "bad\x1b[2J".into();
        let mut top = Top::new(Sort::Name);
        top.update(&report);
        assert!(!page(&top, 80, 12).contains('\x1b'));
    }
}
