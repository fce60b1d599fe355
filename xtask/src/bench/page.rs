//! The page and its data as they lie in the repository, and how sections of a later run take their places there. Pure.
use super::results::Section;

/// The page with these sections in the place of those of the same title; new ones come last.
pub(super) fn with_sections(page: &str, sections: &[Section]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for line in page.split_inclusive('\n') {
        match parts.last_mut() {
            Some(part) if !line.starts_with("## ") => part.push_str(line),
            _ => parts.push(line.to_owned()),
        }
    }
    for section in sections {
        let heading = format!("## {}\n", section.title);
        let text = section.page();
        match parts.iter_mut().find(|part| part.starts_with(&heading)) {
            Some(part) => *part = text,
            None => parts.push(text),
        }
    }
    let parts: Vec<_> = parts.iter().map(|part| part.trim_end()).collect();
    parts.join("\n\n") + "\n"
}

/// The raw data with those of these sections in the place of older ones.
pub(super) fn with_data(csv: &str, sections: &[Section]) -> String {
    let is_old = |line: &&str| {
        let mut titles = sections.iter().map(|section| section.title);
        titles.any(|title| line.starts_with(&format!("\"{title}\",")))
    };
    let mut data: String = csv
        .split_inclusive('\n')
        .filter(|line| !is_old(line))
        .collect();
    for section in sections {
        data += &section.csv();
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(title: &'static str, value: f64) -> Section {
        let mut section = Section {
            title,
            about: "New.".into(),
            unit: "ms",
            ..Section::default()
        };
        section.add("row", value);
        section
    }

    #[test]
    fn a_later_section_takes_the_place_of_the_older_one() {
        let page = "# Page\n\nHead.\n\n## One\n\nOld.\n\n## Two\n\nKept.\n";
        let new = with_sections(page, &[section("One", 1.0), section("Three", 3.0)]);
        let titles: Vec<_> = new.lines().filter(|line| line.starts_with('#')).collect();
        assert_eq!(titles, ["# Page", "## One", "## Two", "## Three"]);
        assert!(
            new.contains("Head.\n\n## One\n\nNew.")
                && new.contains("Kept.")
                && !new.contains("Old.")
        );
        assert!(new.ends_with("|\n"), "{new}");
    }

    #[test]
    fn only_the_data_of_the_same_sections_go() {
        let csv = "section,what\n\"One\",\"row\",1,7,ms\n\"One more\",\"row\",1,8,ms\n";
        assert_eq!(
            with_data(csv, &[section("One", 1.0)]),
            "section,what\n\"One more\",\"row\",1,8,ms\n\"One\",\"row\",1,1,ms\n"
        );
    }
}
