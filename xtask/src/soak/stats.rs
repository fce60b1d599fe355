//! What libFuzzer says at the end of a run. Must not know how it was started.

/// One target's run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stats {
    /// Name of the target.
    pub(super) target: String,
    /// Inputs tried.
    pub(super) executions: u64,
    /// Blocks of code reached.
    pub(super) blocks: u64,
    /// Features reached: edges, how often, and compared values.
    pub(super) features: u64,
    /// Inputs kept because they reached something new.
    pub(super) corpus: u64,
    /// Most memory, in MiB.
    pub(super) memory_mib: u64,
    /// What went wrong, in libFuzzer's words.
    pub(super) finding: Option<String>,
}

impl Stats {
    /// Reads the output of a run with `-print_final_stats=1`.
    pub(super) fn parse(target: &str, output: &str) -> Self {
        let mut stats = Self {
            target: target.into(),
            ..Self::default()
        };
        for line in output.lines() {
            stats.line(line);
        }
        stats
    }

    fn line(&mut self, line: &str) {
        if line.starts_with('#') {
            let words: Vec<&str> = line.split_whitespace().collect();
            for pair in words.windows(2) {
                if let [name, value] = pair {
                    self.progress(name, value);
                }
            }
        } else if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = count.trim().parse().unwrap_or(0);
        } else if let Some(count) = line.strip_prefix("stat::peak_rss_mb:") {
            self.memory_mib = count.trim().parse().unwrap_or(0);
        } else if let Some(what) = line.strip_prefix("SUMMARY: ") {
            self.finding = Some(what.trim().to_owned());
        }
    }

    fn progress(&mut self, name: &str, value: &str) {
        let number = |text: &str| text.split('/').next().and_then(|text| text.parse().ok());
        match name {
            "cov:" => self.blocks = number(value).unwrap_or(self.blocks),
            "ft:" => self.features = number(value).unwrap_or(self.features),
            "corp:" => self.corpus = number(value).unwrap_or(self.corpus),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stats;

    fn check(output: &str, expect: (u64, u64, u64, u64, u64, Option<&str>)) {
        let s = Stats::parse("elf", output);
        let finding = s.finding.as_deref();
        assert_eq!(
            (
                s.executions,
                s.blocks,
                s.features,
                s.corpus,
                s.memory_mib,
                finding
            ),
            expect
        );
    }

    #[test]
    fn the_last_line_of_progress_and_the_final_numbers_count() {
        check(
            "INFO: Seed: 1\n#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb\n\
             #90\tDONE   cov: 40 ft: 99 corp: 7/5kb lim: 64 exec/s: 45 rss: 33Mb\n\
             Done 90 runs in 2 second(s)\nstat::number_of_executed_units: 90\nstat::peak_rss_mb: 33\n",
            (90, 40, 99, 7, 33, None),
        );
    }

    #[test]
    fn a_finding_is_told_in_the_words_of_the_fuzzer() {
        check(
            "#8\tNEW    cov: 4 ft: 5 corp: 2/9b\nSUMMARY: libFuzzer: timeout\n",
            (0, 4, 5, 2, 0, Some("libFuzzer: timeout")),
        );
    }
}
