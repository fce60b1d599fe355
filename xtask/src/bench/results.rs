//! Everything a bench measured: one value a line as raw data, and the tables of the page. Pure.
use super::numbers::{Series, Spread};

/// One section of the page.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// Heading.
    pub(super) title: &'static str,
    /// What was done, and what the figures are, in Markdown.
    pub(super) about: String,
    /// When, with which command and under what load, where that is not the page's.
    pub(super) measured: String,
    /// Unit of the values.
    pub(super) unit: &'static str,
    /// Name of what ratios are taken against; empty = no ratios.
    pub(super) base: &'static str,
    /// Rows, in order.
    pub(super) rows: Vec<Row>,
    /// Remarks below the table, one a line: what was not measured, and why.
    pub(super) remarks: Vec<String>,
}

/// One thing measured again and again.
#[derive(Debug)]
pub(super) struct Row {
    /// What.
    pub(super) name: String,
    /// Its values by round.
    pub(super) series: Series,
    /// The row that ratios are taken against, when it is not the section's.
    pub(super) base: Option<String>,
    /// The target of the ratio or value, as a word; empty = none.
    pub(super) target: &'static str,
}

impl Section {
    /// Adds a value to the row of this name.
    pub(super) fn add(&mut self, name: &str, value: f64) {
        match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.series.0.push(value),
            None => self.rows.push(Row {
                name: name.to_owned(),
                series: Series(vec![value]),
                base: None,
                target: "",
            }),
        }
    }

    /// The section as Markdown.
    pub(super) fn page(&self) -> String {
        let mut page = format!("## {}\n\n{}\n\n", self.title, self.about);
        if !self.measured.is_empty() {
            page += &format!("{}\n\n", self.measured);
        }
        if !self.rows.is_empty() {
            self.table(&mut page);
        }
        for remark in &self.remarks {
            page += &format!("\n{remark}\n");
        }
        page
    }

    fn table(&self, page: &mut String) {
        let ratios = !self.base.is_empty() || self.rows.iter().any(|row| row.base.is_some());
        *page += &format!(
            "| what | {} (least - most) |{}\n",
            self.unit,
            if ratios {
                " ratio (least - most) | to | target |"
            } else {
                " target |"
            }
        );
        *page += if ratios {
            "|---|---|---|---|---|\n"
        } else {
            "|---|---|---|\n"
        };
        for row in &self.rows {
            let value = row.series.spread().map_or_else(|| "-".into(), show);
            *page += &format!("| {} | {value} |", row.name);
            if ratios {
                let base = row.base.as_deref().unwrap_or(self.base);
                let ratio = self.ratio(row, base).map_or_else(|| "-".into(), show);
                *page += &format!(" {ratio} | {base} |");
            }
            *page += &format!(" {} |\n", row.target);
        }
    }

    fn ratio(&self, row: &Row, base: &str) -> Option<Spread> {
        let base = self.rows.iter().find(|other| other.name == base)?;
        row.series.over(&base.series).spread()
    }

    /// Raw data: `section,what,round,value,unit`.
    pub(super) fn csv(&self) -> String {
        let mut csv = String::new();
        for row in &self.rows {
            for (round, value) in row.series.0.iter().enumerate() {
                let line = format!(
                    "\"{}\",\"{}\",{},{value},{}\n",
                    self.title,
                    row.name,
                    round + 1,
                    self.unit
                );
                csv += &line;
            }
        }
        csv
    }
}

/// Three digits that mean something.
fn show(spread: Spread) -> String {
    let mut text = digits(spread.median);
    if spread.least < spread.most {
        text += &format!(" ({} - {})", digits(spread.least), digits(spread.most));
    }
    text
}

fn digits(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 100.0 || size.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_values_and_ratios_with_their_spread() {
        let mut section = Section {
            title: "Calls",
            about: "About.".into(),
            unit: "ns",
            base: "floor",
            ..Section::default()
        };
        for (floor, ours) in [(100.0, 110.0), (200.0, 240.0)] {
            section.add("floor", floor);
            section.add("ours", ours);
        }
        let page = section.page();
        assert!(
            page.contains("| ours | 175 (110 - 240) | 1.15 (1.10 - 1.20) | floor |  |"),
            "{page}"
        );
        assert_eq!(section.csv().lines().count(), 4);
        assert!(section.csv().starts_with("\"Calls\",\"floor\",1,100,ns\n"));
    }

    #[test]
    fn what_has_no_base_has_no_ratio() {
        let mut section = Section {
            unit: "s",
            ..Section::default()
        };
        section.add("attach", 0.25);
        assert!(
            section.page().contains("| attach | 0.250 |  |"),
            "{}",
            section.page()
        );
    }
}
