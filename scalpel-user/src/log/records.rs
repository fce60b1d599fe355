//! The records inside payloads: run, function, sample, control, loss, bound, symbol. Tables: FORMAT.md.

use scalpel_common::kernel::LossClass;

use super::codec::{Get, Malformed, Put};
use crate::event::{Addr, Control, EVENT_SIZE, Event, FuncId, MonoTime, Pid, Sample, Tid};
use crate::function::{ExitStrategy, FunctionInfo, Language, SourcePlace, UnknownReason};
use crate::input::{Bound, Inlined, Loss, ProbeWord, RunInfo, Symbol};

pub(super) fn put_run(put: &mut Put<'_>, run: &RunInfo) {
    put.text(&run.uuid)
        .u32(run.pid.0)
        .text(&run.command)
        .text(&run.host)
        .text(&run.kernel);
    put.u64(run.started_unix_ns)
        .u64(run.started.0)
        .text(&run.mode)
        .text(&run.version);
    put.option(run.probe_cost_ns, |put, (low, high)| {
        put.u64(low).u64(high);
    });
    put.u32(run.sample_hz);
}

pub(super) fn run(get: &mut Get<'_>) -> Result<RunInfo, Malformed> {
    Ok(RunInfo {
        uuid: get.text()?,
        pid: Pid(get.u32()?),
        command: get.text()?,
        host: get.text()?,
        kernel: get.text()?,
        started_unix_ns: get.u64()?,
        started: MonoTime(get.u64()?),
        mode: get.text()?,
        version: get.text()?,
        probe_cost_ns: get.option(|get| Ok((get.u64()?, get.u64()?)))?,
        sample_hz: get.u32()?,
    })
}

pub(super) fn put_function(put: &mut Put<'_>, func: FuncId, info: &FunctionInfo) {
    put.u32(func.get())
        .text(&info.name)
        .text(&info.raw_name)
        .text(&info.module)
        .text(&info.path);
    put.option(info.file.as_deref(), |put, file| {
        put.text(file);
    });
    put.option(info.line, |put, line| {
        put.u32(line);
    });
    put.u8(language_number(info.language))
        .text(&info.build_id)
        .u64(info.file_offset)
        .u64(info.size);
    put.u32(info.site_delta)
        .u8(exit_number(info.exit))
        .text(&info.exit_reason);
    put.option(info.unknown.as_ref(), put_reason)
        .u32(info.ordinal);
    put_place(put, &info.place);
}

fn put_place(put: &mut Put<'_>, place: &SourcePlace) {
    let number = |put: &mut Put<'_>, number: u32| {
        put.u32(number);
    };
    put.option(place.end_line, number)
        .option(place.column, number)
        .option(place.range, |put, (start, end)| {
            put.u32(start).u32(end);
        });
    put.u64(place.body_hash)
        .u64(place.text_hash)
        .u32(place.flags.into());
}

/// The place came later: a log from before ends here.
fn place(get: &mut Get<'_>) -> Result<SourcePlace, Malformed> {
    if get.is_empty() {
        return Ok(SourcePlace::default());
    }
    Ok(SourcePlace {
        end_line: get.option(Get::u32)?,
        column: get.option(Get::u32)?,
        range: get.option(|get| Ok((get.u32()?, get.u32()?)))?,
        body_hash: get.u64()?,
        text_hash: get.u64()?,
        flags: u16::try_from(get.u32()?).or(Err(Malformed("flags of more than 16 bits")))?,
    })
}

pub(super) fn function(get: &mut Get<'_>) -> Result<(FuncId, FunctionInfo), Malformed> {
    let func = func_id(get)?;
    let info = FunctionInfo {
        name: get.text()?,
        raw_name: get.text()?,
        module: get.text()?,
        path: get.text()?,
        file: get.option(Get::text)?,
        line: get.option(Get::u32)?,
        language: by_number(&LANGUAGES, get.u8()?, "unknown language")?,
        build_id: get.text()?,
        file_offset: get.u64()?,
        size: get.u64()?,
        site_delta: get.u32()?,
        exit: by_number(&EXITS, get.u8()?, "unknown exit strategy")?,
        exit_reason: get.text()?,
        unknown: get.option(reason)?,
        ordinal: get.u32()?,
        place: place(get)?,
    };
    Ok((func, info))
}

pub(super) fn put_func(put: &mut Put<'_>, func: &FuncId) {
    put.u32(func.get());
}

pub(super) fn func_id(get: &mut Get<'_>) -> Result<FuncId, Malformed> {
    FuncId::new(get.u32()?).ok_or(Malformed("function id 0"))
}

/// Numbers in the file: position in these lists, from 0. Append only.
const LANGUAGES: [Language; 14] = [
    Language::Native,
    Language::C,
    Language::Cpp,
    Language::Rust,
    Language::Go,
    Language::Python,
    Language::JavaScript,
    Language::Kernel,
    Language::Ruby,
    Language::Php,
    Language::Java,
    Language::Dotnet,
    Language::Lua,
    Language::Zig,
];
const EXITS: [ExitStrategy; 5] = [
    ExitStrategy::Return,
    ExitStrategy::RetOffsets,
    ExitStrategy::EntryOnly,
    ExitStrategy::None,
    ExitStrategy::Probe,
];
const LOSSES: [LossClass; 11] = [
    LossClass::Enter,
    LossClass::Exit,
    LossClass::Sample,
    LossClass::Control,
    LossClass::ThreadState,
    LossClass::ReturnRefused,
    LossClass::RecursionMiss,
    LossClass::Switch,
    LossClass::CountCell,
    LossClass::CountHistogram,
    LossClass::Wait,
];

fn by_number<T: Copy>(list: &[T], number: u8, unknown: &'static str) -> Result<T, Malformed> {
    list.get(usize::from(number))
        .copied()
        .ok_or(Malformed(unknown))
}

const fn language_number(language: Language) -> u8 {
    match language {
        Language::Native => 0,
        Language::C => 1,
        Language::Cpp => 2,
        Language::Rust => 3,
        Language::Go => 4,
        Language::Python => 5,
        Language::JavaScript => 6,
        Language::Kernel => 7,
        Language::Ruby => 8,
        Language::Php => 9,
        Language::Java => 10,
        Language::Dotnet => 11,
        Language::Lua => 12,
        Language::Zig => 13,
    }
}

const fn exit_number(exit: ExitStrategy) -> u8 {
    match exit {
        ExitStrategy::Return => 0,
        ExitStrategy::RetOffsets => 1,
        ExitStrategy::EntryOnly => 2,
        ExitStrategy::None => 3,
        ExitStrategy::Probe => 4,
    }
}

fn put_reason(put: &mut Put<'_>, reason: &UnknownReason) {
    let (number, detail) = match reason {
        UnknownReason::Stripped => (0, ""),
        UnknownReason::Unmapped => (1, ""),
        UnknownReason::Anonymous => (2, ""),
        UnknownReason::FileGone(detail) => (3, detail.as_str()),
        UnknownReason::FileChanged => (4, ""),
        UnknownReason::BadFile(detail) => (5, detail.as_str()),
        UnknownReason::NoSymbol => (6, ""),
        UnknownReason::KernelHidden => (7, ""),
        UnknownReason::ProcessGone => (8, ""),
        UnknownReason::UndefinedId => (9, ""),
        UnknownReason::Nameless => (10, ""),
        UnknownReason::NameLost => (11, ""),
    };
    put.u8(number).text(detail);
}

fn reason(get: &mut Get<'_>) -> Result<UnknownReason, Malformed> {
    let (number, detail) = (get.u8()?, get.text()?);
    Ok(match number {
        0 => UnknownReason::Stripped,
        1 => UnknownReason::Unmapped,
        2 => UnknownReason::Anonymous,
        3 => UnknownReason::FileGone(detail),
        4 => UnknownReason::FileChanged,
        5 => UnknownReason::BadFile(detail),
        6 => UnknownReason::NoSymbol,
        7 => UnknownReason::KernelHidden,
        8 => UnknownReason::ProcessGone,
        9 => UnknownReason::UndefinedId,
        10 => UnknownReason::Nameless,
        11 => UnknownReason::NameLost,
        _ => return Err(Malformed("unknown reason")),
    })
}

pub(super) fn put_sample(put: &mut Put<'_>, sample: &Sample) {
    put.bytes(&sample.event.to_bytes());
    for frames in [&sample.user, &sample.kernel] {
        put.u32(u32::try_from(frames.len()).unwrap_or(u32::MAX));
        for &address in frames {
            put.u64(address);
        }
    }
}

pub(super) fn sample(get: &mut Get<'_>) -> Result<Sample, Malformed> {
    let event = Event::from_bytes(&get.array::<EVENT_SIZE>()?);
    Ok(Sample {
        event,
        user: get.list(Get::u64)?,
        kernel: get.list(Get::u64)?,
        copy: None,
    })
}

pub(super) fn put_control(put: &mut Put<'_>, control: &Control) {
    match control {
        Control::Fork {
            time,
            parent,
            child,
            tid,
            name,
        } => {
            put.u8(1)
                .u64(time.0)
                .u32(parent.0)
                .u32(child.0)
                .u32(tid.0)
                .text(name);
        }
        Control::Exec { time, pid, path } => {
            put.u8(2).u64(time.0).u32(pid.0).text(path);
        }
        Control::Exit {
            time,
            pid,
            tid,
            process_ended,
        } => {
            put.u8(3)
                .u64(time.0)
                .u32(pid.0)
                .u32(tid.0)
                .option(*process_ended, |put, status| {
                    put.u32(status);
                });
        }
        Control::Map {
            time,
            pid,
            start,
            end,
            offset,
            path,
        } => {
            put.u8(4)
                .u64(time.0)
                .u32(pid.0)
                .u64(start.0)
                .u64(end.0)
                .u64(*offset)
                .text(path);
        }
    }
}

pub(super) fn control(get: &mut Get<'_>) -> Result<Control, Malformed> {
    let (kind, time, pid) = (get.u8()?, MonoTime(get.u64()?), Pid(get.u32()?));
    Ok(match kind {
        1 => Control::Fork {
            time,
            parent: pid,
            child: Pid(get.u32()?),
            tid: Tid(get.u32()?),
            name: get.text()?,
        },
        2 => Control::Exec {
            time,
            pid,
            path: get.text()?,
        },
        3 => Control::Exit {
            time,
            pid,
            tid: Tid(get.u32()?),
            process_ended: get.option(Get::u32)?,
        },
        4 => Control::Map {
            time,
            pid,
            start: Addr(get.u64()?),
            end: Addr(get.u64()?),
            offset: get.u64()?,
            path: get.text()?,
        },
        _ => return Err(Malformed("unknown control kind")),
    })
}

pub(super) fn put_loss(put: &mut Put<'_>, loss: &Loss) {
    put.u8(loss.class as u8);
    put.option(loss.cpu, |put, cpu| {
        put.u32(cpu);
    });
    put.u32(loss.func.map_or(0, FuncId::get)).u64(loss.count);
}

pub(super) fn loss(get: &mut Get<'_>) -> Result<Loss, Malformed> {
    Ok(Loss {
        class: by_number(&LOSSES, get.u8()?, "unknown loss class")?,
        cpu: get.option(Get::u32)?,
        func: FuncId::new(get.u32()?),
        count: get.u64()?,
    })
}

pub(super) fn put_bound(put: &mut Put<'_>, bound: &Bound) {
    put.u32(bound.func.get());
    put.option(bound.since, |put, since| {
        put.u64(since.0);
    });
    put.text(&bound.reason);
}

pub(super) fn bound(get: &mut Get<'_>) -> Result<Bound, Malformed> {
    Ok(Bound {
        func: func_id(get)?,
        since: get.option(Get::u64)?.map(MonoTime),
        reason: get.text()?,
    })
}

pub(super) fn put_word(put: &mut Put<'_>, word: &ProbeWord) {
    put.u32(word.pid.0).u8(word.source).u8(word.kind);
    put.u64(word.time.0).u64(word.value).text(&word.text);
}

pub(super) fn word(get: &mut Get<'_>) -> Result<ProbeWord, Malformed> {
    Ok(ProbeWord {
        pid: Pid(get.u32()?),
        source: get.u8()?,
        kind: get.u8()?,
        time: MonoTime(get.u64()?),
        value: get.u64()?,
        text: get.text()?,
    })
}

pub(super) fn put_inlined(put: &mut Put<'_>, inlined: &Inlined) {
    put.u32(inlined.pid.0).u64(inlined.address);
    put.u32(u32::try_from(inlined.functions.len()).unwrap_or(u32::MAX));
    for func in &inlined.functions {
        put.u32(func.get());
    }
}

pub(super) fn inlined(get: &mut Get<'_>) -> Result<Inlined, Malformed> {
    let func = |get: &mut Get<'_>| FuncId::new(get.u32()?).ok_or(Malformed("function 0"));
    Ok(Inlined {
        pid: Pid(get.u32()?),
        address: get.u64()?,
        functions: get.list(func)?,
    })
}

pub(super) fn put_symbol(put: &mut Put<'_>, symbol: &Symbol) {
    put.u32(symbol.pid.0).u64(symbol.address);
    match &symbol.func {
        Ok(func) => put.u32(func.get()),
        Err(reason) => {
            put.u32(0);
            put_reason(put, reason);
            put
        }
    };
}

pub(super) fn symbol(get: &mut Get<'_>) -> Result<Symbol, Malformed> {
    let (pid, address, func) = (Pid(get.u32()?), get.u64()?, get.u32()?);
    let func = match FuncId::new(func) {
        Some(func) => Ok(func),
        None => Err(reason(get)?),
    };
    Ok(Symbol { pid, address, func })
}
