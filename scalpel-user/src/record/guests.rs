//! What a recording does with probes in language runtimes while it runs: hears what they say of themselves, keeps them
//! within their budget, and tells in the end what became of them.

use scalpel_common::segment::{note_kind, unseen};

use super::entering::Entering;
use super::live::Live;
use super::now_mono;
use super::subject::Subject;
use crate::event::{FuncId, Pid};
use crate::input::{Input, ProbeWord};
use crate::output::Output;
use crate::probe::{self, Takeover};

impl Live {
    /// Switches off what costs the programs more than is allowed.
    pub(super) fn govern(&mut self) {
        let (Some(governor), Some(runtimes)) = (&mut self.governor, &self.runtimes) else {
            return;
        };
        let bounds = governor.judge(now_mono());
        let funcs: Vec<FuncId> = bounds.iter().map(|bound| bound.func).collect();
        if !funcs.is_empty() {
            runtimes.switch_off(&funcs);
        }
        for bound in bounds {
            self.take(Input::Bound(bound));
        }
    }

    /// A probe that speaks of its runtime is there: the kernel tells when its threads go on.
    pub(super) fn word(&mut self, word: ProbeWord) {
        // Only the server knows when it was: notes of a segment have the time of another clock.
        if word.kind == note_kind::RUNTIME
            && word.value != 0
            && let Some(runtime) = self.entering.heard(word.pid, word.source)
        {
            self.family.heard(word.pid, runtime, word.time);
        }
        if word.kind == note_kind::RUNTIME
            && let Some(tracer) = &mut self.tracer
            && let Err(error) = tracer.tell_switches(word.pid)
        {
            let text = format!("no CPU times of functions in process {}: {error}", word.pid);
            self.take(Input::Note(text));
        }
        if word.kind == note_kind::RUNTIME
            && let Some(governor) = &mut self.governor
        {
            governor.watch(&word);
        }
        self.take(Input::Probe(word));
    }

    /// Loads probes into runtimes that run already. Says which cannot be entered, and what of them is seen.
    pub(super) fn enter(&mut self, subject: &Subject, output: &Output) {
        let Some(runtimes) = &self.runtimes else {
            return;
        };
        let takeovers = runtimes.takeovers().to_vec();
        self.entering = Entering::begin(&subject.processes, runtimes.socket(), &takeovers);
        self.taken_over(&takeovers, output);
        for refused in std::mem::take(&mut self.entering.refused) {
            output.warn(&refused);
            self.take(Input::Note(refused));
        }
        let asked = self.entering.asked();
        if asked > 0 {
            output.detail(&format!("{asked} runtimes were asked to load their probe"));
        }
    }

    /// Probes that were loaded for an earlier recording write for this one.
    fn taken_over(&mut self, takeovers: &[Takeover], output: &Output) {
        for takeover in takeovers {
            if let Ok((words, note)) = &takeover.outcome {
                for word in words {
                    self.word(word.clone());
                    // What ran for the other recording is not told again.
                    self.unseen(word.pid, word.source, unseen::BEFORE);
                }
                output.detail(note);
                self.take(Input::Note(note.clone()));
            }
        }
    }

    /// Whatever is written in a language may have run without being seen.
    pub(super) fn unseen(&mut self, pid: Pid, source: u8, why: u64) {
        self.take(Input::Probe(ProbeWord {
            pid,
            source,
            kind: note_kind::UNSEEN,
            time: now_mono(),
            value: why,
            text: String::new(),
        }));
    }

    /// Says what the watched processes did outside of what is watched.
    pub(super) fn note_unwatched(&mut self) {
        let mut notes = self.unwatched.notes();
        let silence = self.family.finish(self.side_band_lost);
        notes.extend(self.entering.missing(&silence));
        for (pid, source) in self.entering.unseen(&silence) {
            self.unseen(pid, source as u8, unseen::UNWATCHED);
        }
        for note in notes {
            self.take(Input::Note(note));
        }
    }

    pub(super) fn tell_of_runtimes(&mut self, report: &probe::ProbeReport, output: &Output) {
        output.detail(&format!(
            "{} processes with probes, {} events from them, times within {} ns",
            report.segments, report.events, report.clock_error_ns
        ));
        self.clock_error_ns = (report.events > 0).then_some(report.clock_error_ns);
        if self.tracer.is_none() && report.events > 0 {
            self.take(Input::Note(
                "CPU times are estimates: without kernel tracing each thread's account is read every 5 ms, and spread evenly \
                 over that time. A function that waits for less gets CPU time of its neighbours; wall times are measured"
                    .into(),
            ));
        }
        for note in report.notes() {
            self.take(Input::Note(note));
        }
    }
}
