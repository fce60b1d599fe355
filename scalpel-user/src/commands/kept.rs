//! `replay` of a recording with triggers: the kept calls, one by one, each with what it called and where it waited.
//!
//! The stream is read twice: names of sampled addresses stand at its end.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::event::{Event, FuncId, Kind, MonoTime, Pid, Sample, Stream, Tid, flags};
use crate::function::FunctionTable;
use crate::image::Pattern;
use crate::input::{Input, KeptCall, RunInfo, Trigger};
use crate::plan::ReplayPlan;
use crate::sink::timeline::{Filter, Timeline};
use crate::sink::{Style, Tone, text, units};
use crate::source;

/// Frames of a wait that are named, from the innermost.
const WAIT_FRAMES: usize = 6;

/// Functions in which samples were taken that are named.
const SAMPLED_SHOWN: usize = 4;

/// What the whole stream tells.
pub(super) struct Known {
    run: RunInfo,
    functions: FunctionTable,
    symbols: FxHashMap<(Pid, u64), FuncId>,
    triggers: Vec<Trigger>,
}

impl Known {
    /// Reads a stream; `None` if it has no triggers.
    pub(super) fn of(path: &Path) -> anyhow::Result<Option<Self>> {
        let mut known: Option<Self> = None;
        for input in source::replay(path)? {
            match (input, &mut known) {
                (Input::Run(run), _) if has_triggers(&run) => {
                    known = Some(Self {
                        run,
                        functions: FunctionTable::new(),
                        symbols: FxHashMap::default(),
                        triggers: Vec::new(),
                    });
                }
                (Input::Run(_), _) => return Ok(None),
                (Input::Function(func, info), Some(known)) => {
                    known.functions.define(func, info);
                }
                (Input::Symbols(symbols), Some(known)) => {
                    for symbol in symbols {
                        if let Ok(func) = symbol.func {
                            known.symbols.insert((symbol.pid, symbol.address), func);
                        }
                    }
                }
                (Input::Triggers(triggers), Some(known)) => known.triggers = triggers,
                _ => {}
            }
        }
        Ok(known)
    }

    fn name(&self, func: u32) -> String {
        match FuncId::new(func).and_then(|id| self.functions.get(id)) {
            Some(info) => text::clean(&info.name).into_owned(),
            None => format!("<function {func}>"),
        }
    }

    /// Names of a sampled stack, innermost first, as far as it was named: to the innermost call that was seen to begin.
    fn stack(&self, sample: &Sample) -> Vec<String> {
        let kernel = sample.kernel.iter().map(|&address| (Pid(0), address));
        let user = sample
            .user
            .iter()
            .map(|&address| (Pid(sample.event.pid), address));
        let named = |frames: &mut dyn Iterator<Item = (Pid, u64)>| -> Vec<String> {
            // Return addresses are named by the call before them.
            let inside = |(at, (pid, address)): (usize, (Pid, u64))| {
                (
                    pid,
                    if at == 0 {
                        address
                    } else {
                        address.wrapping_sub(1)
                    },
                )
            };
            let known = |key| self.symbols.get(&key).copied();
            let funcs = frames.enumerate().map(inside).map_while(known);
            funcs.map(|func| self.name(func.get())).collect()
        };
        let mut names = named(&mut { kernel });
        names.extend(named(&mut { user }));
        names
    }
}

fn has_triggers(run: &RunInfo) -> bool {
    run.mode.split('+').any(|word| word == "trigger")
}

/// Writes the kept calls that the plan wants.
pub(super) fn show(
    plan: &ReplayPlan,
    pattern: Option<&Pattern>,
    known: &Known,
    style: Style,
    columns: Option<usize>,
    inputs: &mut dyn Iterator<Item = Input>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut show = Show {
        plan,
        pattern,
        known,
        style,
        columns,
        threads: FxHashMap::default(),
        block: None,
        shown: 0,
    };
    for trigger in &known.triggers {
        writeln!(out, "{}", style.paint(Tone::Strong, found(trigger)))?;
    }
    for input in inputs {
        match input {
            Input::Kept(call) if call.items == 0 => show.inside(&call),
            Input::Kept(call) => show.begin(call, out)?,
            Input::Events(events) => {
                for event in events {
                    show.event(event, out)?;
                }
            }
            Input::Sample(sample) => show.sample(&sample, out)?,
            _ => {}
        }
        if plan.limit.is_some_and(|limit| show.shown >= limit) && show.block.is_none() {
            break;
        }
    }
    show.end(out)
}

fn found(trigger: &Trigger) -> String {
    format!(
        "{}: {} kept, {} of {} calls over it, slowest {}",
        text::clean(&trigger.text),
        units::count(trigger.kept),
        units::count(trigger.over),
        units::count(trigger.calls),
        if trigger.calls > 0 {
            units::duration(trigger.slowest_ns)
        } else {
            units::NOTHING.to_owned()
        }
    )
}

/// One kept call on its way.
struct Block {
    call: KeptCall,
    /// Events and samples still to come.
    left: u64,
    timeline: Timeline,
    is_headed: bool,
    is_wanted: bool,
    samples: BTreeMap<String, u64>,
    inside: u64,
}

/// What is known of a thread from one kept call to the next.
#[derive(Default)]
struct Thread {
    /// Callers that are open, outermost first, as they began.
    callers: Vec<Event>,
    /// Numbers that come next.
    next: FxHashMap<u8, u32>,
}

struct Show<'a> {
    plan: &'a ReplayPlan,
    pattern: Option<&'a Pattern>,
    known: &'a Known,
    style: Style,
    columns: Option<usize>,
    threads: FxHashMap<(u32, u32), Thread>,
    block: Option<Block>,
    shown: usize,
}

impl Show<'_> {
    fn begin(&mut self, call: KeptCall, out: &mut dyn Write) -> io::Result<()> {
        self.end(out)?;
        let is_wanted = self.wants(&call);
        let filter = Filter {
            depth: self.plan.depth,
            ..Filter::default()
        };
        let timeline = Timeline::new(self.known.run.started, self.style, filter);
        self.block = Some(Block {
            left: call.items,
            call,
            timeline: match self.columns {
                Some(columns) => timeline.within(columns),
                None => timeline,
            },
            is_headed: false,
            is_wanted,
            samples: BTreeMap::new(),
            inside: 0,
        });
        Ok(())
    }

    fn inside(&mut self, _call: &KeptCall) {
        if let Some(block) = &mut self.block {
            block.inside += 1;
        }
    }

    fn wants(&self, call: &KeptCall) -> bool {
        let plan = self.plan;
        let since = call.began.0.saturating_sub(self.known.run.started.0);
        let is_meant = || {
            self.pattern.is_none_or(|pattern| {
                let info = self.known.functions.get(call.func);
                info.is_some_and(|info| pattern.matches_recorded(info))
            })
        };
        plan.pid.is_none_or(|pid| pid == call.pid)
            && plan.tid.is_none_or(|tid| tid == call.tid)
            && (plan.from_ns..=plan.to_ns).contains(&since)
            && plan.limit.is_none_or(|limit| self.shown < limit)
            && is_meant()
    }

    fn event(&mut self, event: Event, out: &mut dyn Write) -> io::Result<()> {
        let thread = self.threads.entry((event.pid, event.tid)).or_default();
        let lost = thread.lost_before(&event);
        let is_callers = thread.is_callers(&event);
        let Some(block) = &mut self.block else {
            return Ok(());
        };
        if !is_callers && block.is_wanted {
            if !block.is_headed {
                block.is_headed = true;
                self.shown += 1;
                let head = head(block, self.known, self.shown, &thread.callers);
                writeln!(out)?;
                let mut lines = head.into_iter();
                if let Some(first) = lines.next() {
                    writeln!(out, "{}", self.style.paint(Tone::Strong, first))?;
                }
                for line in lines {
                    writeln!(out, "{}", self.style.paint(Tone::Faint, line))?;
                }
            }
            if lost > 0 {
                block.timeline.gap(Pid(event.pid), Tid(event.tid), lost);
            }
            block.timeline.events(&[event]);
        }
        self.came(out)
    }

    fn sample(&mut self, sample: &Sample, out: &mut dyn Write) -> io::Result<()> {
        let Some(block) = &mut self.block else {
            return Ok(());
        };
        let names = self.known.stack(sample);
        let (time, pid, tid) = (
            MonoTime(sample.event.time),
            Pid(sample.event.pid),
            Tid(sample.event.tid),
        );
        if !block.is_wanted {
        } else if sample.event.kind == Kind::SwitchIn as u8 {
            block
                .timeline
                .note(time, pid, tid, waited(&sample.event, &names));
        } else {
            let innermost = names.into_iter().next();
            let name = innermost.unwrap_or_else(|| "<no name>".into());
            *block.samples.entry(name).or_default() += 1;
        }
        self.came(out)
    }

    /// Something of the call has come; with the last of it the call is written.
    fn came(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let Some(block) = &mut self.block else {
            return Ok(());
        };
        block.left = block.left.saturating_sub(1);
        if block.left == 0 {
            self.end(out)
        } else {
            Ok(())
        }
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let Some(block) = self.block.take().filter(|block| block.is_headed) else {
            return Ok(());
        };
        let end = block.call.ended;
        block.timeline.finish(end, &self.known.functions, out)?;
        let all: u64 = block.samples.values().sum();
        if all > 0 {
            let mut by_count: Vec<_> = block.samples.into_iter().collect();
            by_count.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let parts: Vec<String> = by_count
                .iter()
                .take(SAMPLED_SHOWN)
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            let samples = if all == 1 { "sample" } else { "samples" };
            let line = format!("  on the processor, {all} {samples}: {}", parts.join(", "));
            writeln!(out, "{}", self.style.paint(Tone::Faint, line))?;
        }
        Ok(())
    }
}

impl Thread {
    /// Keeps up with the callers. True = the event is about one of them.
    fn is_callers(&mut self, event: &Event) -> bool {
        let earlier = event.flags & flags::EARLIER != 0;
        if earlier && event.kind == Kind::Enter as u8 {
            self.callers.push(*event);
            return true;
        }
        let is_end = |caller: &Event| {
            caller.frame == event.frame && caller.func == event.func && caller.time == event.site
        };
        match self.callers.last() {
            Some(last) if earlier && is_end(last) => {
                self.callers.pop();
                true
            }
            // What tells of the thread's CPU time is no call.
            _ => event.kind == Kind::SwitchIn as u8,
        }
    }

    fn lost_before(&mut self, event: &Event) -> u64 {
        let stream = Stream::of(event.source);
        let after = event.seq.wrapping_add(1);
        let expected = self.next.insert(stream as u8, after);
        let missing = expected.map_or(0, |expected| event.seq.wrapping_sub(expected));
        // A lower number is a new thread's.
        if stream == Stream::Switches || missing >= 1 << 31 {
            return 0;
        }
        u64::from(missing)
    }
}

/// The lines above a kept call.
fn head(block: &Block, known: &Known, number: usize, callers: &[Event]) -> Vec<String> {
    let call = &block.call;
    let wall_ns = call.wall_ns();
    let since = call.began.0.saturating_sub(known.run.started.0);
    let mut first = format!(
        "#{number}  {}  {}",
        known.name(call.func.get()),
        units::duration(wall_ns)
    );
    if let Some(cpu) = call.cpu_ns {
        first.push_str(&format!(
            " = {} CPU + {} off it",
            units::duration(cpu),
            units::duration(wall_ns.saturating_sub(cpu))
        ));
    }
    first.push_str(&format!(
        "  thread {}  at {}.{:06} s",
        call.tid,
        since / 1_000_000_000,
        since / 1000 % 1_000_000
    ));
    if call.end != crate::input::CallEnd::Returned {
        first.push_str(&format!("  [{}]", call.end.word()));
    }
    let mut lines = vec![first];
    if !callers.is_empty() {
        let names: Vec<String> = callers
            .iter()
            .map(|caller| known.name(caller.func))
            .collect();
        lines.push(format!("  in {}", names.join(" > ")));
    }
    if call.lost + call.left_out > 0 {
        lines.push(format!(
            "  {} events inside were lost, {} left out for want of memory",
            call.lost, call.left_out
        ));
    }
    if block.inside > 0 {
        lines.push(format!("  with {} more kept calls inside", block.inside));
    }
    lines
}

fn waited(event: &Event, names: &[String]) -> String {
    let why = match event.flags {
        flag if flag & flags::PREEMPTED != 0 => " for a processor",
        flag if flag & flags::IO_WAIT != 0 => " for a device",
        _ => "",
    };
    let shown: Vec<&str> = names.iter().take(WAIT_FRAMES).map(String::as_str).collect();
    let place = match shown.as_slice() {
        [] => String::new(),
        names => format!(" in {}", names.join(" < ")),
    };
    format!("[waited {}{why}{place}]", units::duration(event.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::ExitStrategy;
    use crate::genome::tests::{function, run};
    use crate::input::{CallEnd, Symbol};
    use crate::log::Writer;

    fn event(kind: Kind, func: u32, seq: u32, ms: u64, flags: u16) -> Event {
        Event {
            time: 1_000_000_000 + ms * 1_000_000,
            pid: 7,
            tid: 8,
            func,
            seq,
            frame: 0x8000 - u64::from(func) * 0x100,
            kind: kind as u8,
            source: 1,
            flags,
            ..Event::default()
        }
    }

    /// `serve` called `handle` three times: the second waited in `nap`, of the third an event was lost.
    fn inputs() -> Vec<Input> {
        let names = ["serve", "handle", "parse", "nap"];
        let mut inputs = vec![Input::Run(RunInfo {
            mode: "trace+sample+off-cpu+trigger".into(),
            ..run()
        })];
        for (id, name) in (1..).zip(names) {
            let info = function(name, ExitStrategy::Return);
            inputs.push(Input::Function(FuncId::new(id).unwrap(), info.into()));
        }
        inputs.push(Input::Triggers(vec![Trigger {
            text: "handle>10ms".into(),
            calls: 3,
            over: 2,
            kept: 2,
            slowest_ns: 40_000_000,
            ..Trigger::default()
        }]));
        let call = |began: u64, ended: u64, lost: u64, items: u64| {
            Input::Kept(KeptCall {
                trigger: 0,
                func: FuncId::new(2).unwrap(),
                pid: Pid(7),
                tid: Tid(8),
                began: MonoTime(1_000_000_000 + began * 1_000_000),
                ended: MonoTime(1_000_000_000 + ended * 1_000_000),
                end: if lost > 0 {
                    CallEnd::Unwound
                } else {
                    CallEnd::Returned
                },
                cpu_ns: Some(3_000_000),
                waits: 1,
                waited_ns: 30_000_000,
                lost,
                left_out: 0,
                items,
            })
        };
        let sample = |kind, ms, value, user: &[u64]| {
            Input::Sample(Sample {
                event: Event {
                    value,
                    flags: 0,
                    ..event(kind, 0, 0, ms, 0)
                },
                user: user.to_vec(),
                kernel: Vec::new(),
                copy: None,
            })
        };
        let earlier = flags::EARLIER;
        inputs.extend([
            call(100, 140, 0, 7),
            Input::Events(vec![
                event(Kind::Enter, 1, 1, 50, earlier),
                event(Kind::Enter, 2, 2, 100, 0),
                event(Kind::Enter, 3, 3, 101, 0),
                event(Kind::Exit, 3, 4, 102, 0),
            ]),
            sample(Kind::Sample, 103, 0, &[0x51, 0x62]),
            sample(Kind::SwitchIn, 135, 30_000_000, &[0x41, 0x52, 0x99]),
            Input::Events(vec![event(Kind::Exit, 2, 5, 140, 0)]),
            call(200, 220, 2, 3),
            Input::Events(vec![
                event(Kind::Enter, 2, 6, 200, 0),
                event(Kind::Enter, 3, 9, 210, 0),
                Event {
                    site: 1_200_000_000,
                    ..event(Kind::Unwind, 2, 10, 220, earlier)
                },
            ]),
        ]);
        let named = |address, func| Symbol {
            pid: Pid(7),
            address,
            func: Ok(FuncId::new(func).unwrap()),
        };
        inputs.push(Input::Symbols(vec![named(0x41, 4), named(0x51, 2)]));
        inputs.push(Input::End(MonoTime(2_000_000_000)));
        inputs
    }

    fn shown(change: impl Fn(&mut ReplayPlan)) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = Writer::create(file.path()).unwrap();
        inputs()
            .iter()
            .for_each(|input| writer.write(input).unwrap());
        writer.finish().unwrap();
        let mut plan = ReplayPlan {
            file: file.path().to_owned(),
            pid: None,
            tid: None,
            from_ns: 0,
            to_ns: u64::MAX,
            func: None,
            depth: None,
            limit: None,
            output: None,
        };
        change(&mut plan);
        let known = Known::of(&plan.file).unwrap().unwrap();
        let (mut out, mut reader) = (Vec::new(), source::replay(&plan.file).unwrap());
        let style = Style { color: false };
        show(&plan, None, &known, style, None, &mut reader, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn kept_calls_are_shown_one_by_one_with_their_waits_in_place() {
        insta::assert_snapshot!(shown(|_| {}));
    }

    #[test]
    fn a_part_of_them_can_be_chosen() {
        let one = shown(|plan| plan.limit = Some(1));
        assert!(one.contains("#1") && !one.contains("#2"), "{one}");
        let late = shown(|plan| plan.from_ns = 150_000_000);
        assert!(
            late.contains("at 0.200000 s") && !late.contains("0.100000"),
            "{late}"
        );
        assert!(!shown(|plan| plan.tid = Some(Tid(9))).contains('#'));
    }
}
