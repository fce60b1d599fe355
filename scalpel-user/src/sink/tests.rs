//! Every form of the small genome as golden text, at three widths.

use super::table::{Table, TableRow};
use super::tree::{View, Way};
use super::{By, Choice, Columns, Form, Page, Style, choice, csv, json, summary, table, tree};
use crate::doubt::Doubt;
use crate::event::FuncId;
use crate::function::FunctionInfo;
use crate::genome::tests::{example, returning, triggered};
use crate::report::summary::{Cost, Summary};
use crate::report::{Report, Sort, group, select};

const WIDTHS: [usize; 3] = [60, 80, 200];

fn page(width: usize) -> Page {
    Page {
        width,
        style: Style { color: false },
    }
}

fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn function_table(sort: Sort, limit: usize, page: Page) -> String {
    let mut report = Report::of(&example(), 0.001);
    select::sort(&mut report.functions, sort);
    let whole = select::Whole::of(&report.functions, sort);
    let left_out = select::limit_functions(&mut report.functions, limit);
    let rows = report.functions.iter().map(TableRow::function).collect();
    text(|out| {
        table::write(
            &Table {
                what: "FUNCTION",
                rows,
                left_out,
                columns: Columns::Usual,
                sort,
                whole,
            },
            page,
            out,
        )
    })
}

#[test]
fn the_table_fits_its_page() {
    for width in WIDTHS {
        let table = function_table(Sort::SelfCpu, 7, page(width));
        assert!(
            table.lines().all(|line| super::text::width(line) <= width),
            "{table}"
        );
        insta::assert_snapshot!(format!("table_{width}"), table);
    }
}

#[test]
fn the_table_sorts_by_calls_and_colours_what_matters() {
    insta::assert_snapshot!(function_table(
        Sort::Calls,
        0,
        Page {
            width: 100,
            style: Style { color: true }
        }
    ));
}

#[test]
fn suspensions_and_estimates_have_columns_where_there_are_some() {
    let mut report = Report::of(&example(), 0.001);
    let sort = Sort::SelfCpu;
    let write = |report: &Report| {
        let table = Table {
            what: "FUNCTION",
            rows: report.functions.iter().map(TableRow::function).collect(),
            left_out: select::LeftOut::default(),
            columns: Columns::Usual,
            sort,
            whole: None,
        };
        text(|out| table::write(&table, page(200), out))
    };
    assert!(!write(&report).contains("SUSPENDED"));
    let row = &mut report.functions[0];
    row.measures.suspended_ns = Some(3_000_000);
    row.measures.pre_await_ns = Some(2_000);
    row.measures.self_cpu_ns = Some(5_000);
    row.measures.cpu_estimated = true;
    let shown = write(&report);
    for part in [
        "SUSPENDED",
        "PRE-AWAIT",
        "3.00 ms",
        "~5.00 µs",
        "   ~ estimated   ",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn what_single_calls_took_fits_its_page_and_shows_what_it_is_sorted_by() {
    let genome = example();
    let choice = |sort| Choice {
        form: Form::Table,
        by: By::Function,
        columns: Columns::PerCall,
        sort,
        limit: 40,
        returned: false,
        func: None,
        only_seen: false,
        max_loss: 0.001,
    };
    for width in [60, 80, 132] {
        let table = text(|out| choice::write(&genome, &choice(None), page(width), out));
        assert!(
            table.lines().all(|line| super::text::width(line) <= width),
            "{table}"
        );
        insta::assert_snapshot!(format!("per_call_{width}"), table);
    }
    let by_self = choice(Some(Sort::SelfCpu));
    assert!(text(|out| choice::write(&genome, &by_self, page(80), out)).contains("SELF CPU"));
}

#[test]
fn threads_are_rows_too() {
    let rows = group::threads(&example());
    let whole = select::Whole::of(&rows, Sort::SelfCpu);
    let rows = rows.iter().map(TableRow::group).collect();
    let table = Table {
        what: "THREAD",
        rows,
        left_out: select::LeftOut::default(),
        columns: Columns::Usual,
        sort: Sort::SelfCpu,
        whole,
    };
    insta::assert_snapshot!(text(|out| table::write(&table, page(80), out)));
}

fn check_tree(way: Way, sort: Sort, limit: usize, func: Option<&dyn Fn(FuncId) -> bool>) -> String {
    text(|out| {
        tree::write(
            &example(),
            &View {
                way,
                sort,
                limit,
                func,
                caller: None,
                depth: usize::MAX,
                least: 0,
            },
            page(80),
            out,
        )
    })
}

#[test]
fn callees_hang_below_their_callers() {
    insta::assert_snapshot!(check_tree(Way::Callees, Sort::TotalWall, 0, None));
}

#[test]
fn what_is_cut_off_is_summed_up() {
    insta::assert_snapshot!(check_tree(Way::Callees, Sort::SelfCpu, 3, None));
}

#[test]
fn the_heaviest_nodes_are_shown_wherever_they_hang() {
    let tree = check_tree(Way::Callees, Sort::SelfCpu, 4, None);
    let shown: Vec<&str> = tree
        .lines()
        .filter(|line| line.contains(']'))
        .map(str::trim_start)
        .collect();
    let weights: Vec<&str> = shown
        .iter()
        .filter_map(|line| line.split(" s").next())
        .collect();
    assert_eq!(
        weights,
        [
            "4.50",
            "4.00",
            "2.45",
            "926 ms  17.1 %  1.23 M  hash [shop]"
        ],
        "{tree}"
    );
}

#[test]
fn callers_hang_below_what_they_called() {
    insta::assert_snapshot!(check_tree(
        Way::Callers,
        Sort::SelfCpu,
        0,
        Some(&|func| matches!(func.get(), 2 | 8))
    ));
}

/// A graph of `hash` and what is around it.
fn check_graph(func: u32, caller: Option<u32>, depth: usize, least: u64) -> (bool, String) {
    let wanted = |id: FuncId| id.get() == func;
    let above = |id: FuncId| Some(id.get()) == caller;
    let graph = tree::Graph {
        func: &wanted,
        caller: caller.is_some().then_some(&above),
        depth,
        least,
        sort: Sort::TotalCpu,
        limit: 0,
    };
    let mut found = false;
    let text = text(|out| {
        found = tree::write_graph(&example(), &graph, page(80), out)?;
        Ok(())
    });
    (found, text)
}

#[test]
fn a_graph_shows_callers_and_callees_of_one_function() {
    let (found, text) = check_graph(2, None, usize::MAX, 0);
    assert!(found);
    insta::assert_snapshot!(text);
}

#[test]
fn a_graph_is_cut_by_levels_time_and_caller() {
    let rows = |text: &str| text.lines().filter(|line| line.contains('[')).count();
    let (_, whole) = check_graph(2, None, usize::MAX, 0);
    let (_, one) = check_graph(2, None, 1, 0);
    assert!(rows(&one) < rows(&whole), "{one} {whole}");
    assert!(!one.contains("   └─ "), "{one}");
    let (_, heavy) = check_graph(2, None, usize::MAX, u64::MAX);
    assert_eq!(rows(&heavy), 2, "only the function itself: {heavy}");
    assert!(heavy.contains("more"), "{heavy}");
    assert_eq!(check_graph(2, Some(9999), 9, 0), (false, String::new()));
    assert_eq!(check_graph(9999, None, 9, 0), (false, String::new()));
    assert_eq!(
        check_graph(2, Some(1), usize::MAX, 0).1,
        whole,
        "serve leads to all"
    );
}

#[test]
fn samples_weigh_where_nothing_else_was_measured() {
    insta::assert_snapshot!(check_tree(Way::Callers, Sort::Samples, 0, None));
}

#[test]
fn json_has_the_promised_shape() {
    let json = text(|out| json::write(&Report::of(&example(), 0.001), out));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&value).unwrap());
}

#[test]
fn csv_has_a_heading_and_a_line_a_row() {
    let functions = text(|out| csv::functions(&Report::of(&example(), 0.001).functions, out));
    let modules = text(|out| csv::groups("module", &group::modules(&example()), out));
    insta::assert_snapshot!(format!("{functions}\n{modules}"));
}

fn chosen(form: Form, by: By, func: Option<&dyn Fn(&FunctionInfo) -> bool>) -> String {
    let choice = Choice {
        form,
        by,
        columns: Columns::Usual,
        sort: None,
        limit: 40,
        returned: false,
        func,
        only_seen: false,
        max_loss: 0.001,
    };
    text(|out| choice::write(&example(), &choice, page(100), out))
}

#[test]
fn a_report_opens_with_what_it_is_and_how_far_to_trust_it() {
    insta::assert_snapshot!(chosen(Form::Table, By::Function, None));
}

#[test]
fn a_filter_keeps_functions_and_the_edges_that_touch_them() {
    let json = chosen(Form::Json, By::Function, Some(&|info| info.name == "hash"));
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["functions"].as_array().unwrap().len(), 1);
    assert_eq!(report["edges"].as_array().unwrap().len(), 1);
    assert_eq!(report["edges"][0]["caller"], "c:shop:walk");
}

#[test]
fn every_form_can_be_chosen() {
    assert!(chosen(Form::Tree(Way::Callees), By::Function, None).contains("├─ walk [shop]"));
    assert!(chosen(Form::Table, By::Module, None).contains("libc.so.6"));
    assert!(chosen(Form::Csv, By::Thread, None).starts_with("thread,calls"));
}

fn end(width: usize) -> String {
    let genome = example();
    let report = Report::of(&genome, 0.001);
    let cost = Cost {
        target_share: Some((0.004, 0.021)),
        programs_ns: Some(1_200_000),
        collector_cpu_ns: Some(310_000_000),
    };
    text(|out| {
        summary::write(
            &Summary::of(&genome, &report, cost),
            &report.doubts,
            page(width),
            out,
        )
    })
}

#[test]
fn the_summary_says_what_is_not_known() {
    for width in [60, 100] {
        insta::assert_snapshot!(format!("summary_{width}"), end(width));
    }
}

#[test]
fn foreign_words_in_a_doubt_cannot_drive_the_terminal() {
    let doubt = Doubt {
        what: "bad\x1b[2J".into(),
        why: String::new(),
        do_: String::new(),
    };
    assert!(!text(|out| super::doubts::write(&[doubt], page(80), out)).contains('\x1b'));
}

#[test]
fn kept_calls_stand_above_the_functions_and_the_end_says_how_many() {
    let choice = Choice {
        form: Form::Table,
        by: By::Function,
        columns: Columns::Usual,
        sort: None,
        limit: 40,
        returned: false,
        func: None,
        only_seen: false,
        max_loss: 0.001,
    };
    let report = text(|out| choice::write(&triggered(), &choice, page(100), out));
    let genome = triggered();
    let rows = Report::of(&genome, 0.001);
    let end = Summary::of(&genome, &rows, Cost::default());
    let end = text(|out| summary::write(&end, &rows.doubts, page(100), out));
    insta::assert_snapshot!(format!("{report}\n{end}"));
}

#[test]
fn return_values_stand_below_the_functions_where_they_are_asked_for() {
    let genome = returning();
    let choice = |returned| Choice {
        form: Form::Table,
        by: By::Function,
        columns: Columns::Usual,
        sort: None,
        limit: 1,
        returned,
        func: None,
        only_seen: false,
        max_loss: 0.001,
    };
    let shown = text(|out| choice::write(&genome, &choice(true), page(80), out));
    insta::assert_snapshot!(shown);
    let hint = text(|out| choice::write(&genome, &choice(false), page(80), out));
    assert!(
        hint.ends_with("return values of 2 functions: --return-values shows them\n"),
        "{hint}"
    );
    let plain = text(|out| choice::write(&example(), &choice(true), page(80), out));
    assert!(!plain.contains("returned"), "{plain}");
}

#[test]
fn csv_has_return_values_in_one_field() {
    let report = Report::of(&returning(), 0.001);
    let csv = text(|out| csv::functions(&report.functions, out));
    let fields = ",0x0=9000; 0xffffffff=1500; 0x7f1234567000=100; other=150; none=50,";
    assert!(csv.contains(fields), "{csv}");
}
