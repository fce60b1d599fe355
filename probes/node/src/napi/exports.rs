//! What the preload calls: connect, load a text, find a column, leave a note.
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use napi_sys as sys;
use napi_sys::{napi_callback_info, napi_env, napi_value};
use scalpel::{Hello, Segment, Source as Language, modes};

use super::calls::{self, Isolate};
use super::{Export, stack, turn, value};
use crate::rewrite::{Kind, Mode, Source};
use crate::texts::{self, Loaded, Wanted};

/// The exports of the addon.
pub(super) const ALL: &[Export] = &[
    (c"connect", connect),
    (c"option", option),
    (c"helper", helper),
    (c"load", load),
    (c"column", column),
    (c"offset", offset),
    (c"touched", touched),
    (c"note", note),
    (c"counted", counted),
    (c"deepen", deepen),
    (c"modules", modules),
    (c"turns", turns),
];

/// What this process records; the first isolate decides.
static WANTED: OnceLock<Wanted> = OnceLock::new();

/// `connect(runtime)`: joins the recording; `undefined`, or why not.
unsafe extern "C" fn connect(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([runtime], _) = value::arguments(env, info);
    let runtime = value::text(env, runtime).unwrap_or_default();
    let hello = Hello {
        source: Language::Node,
        runtime: &runtime,
    };
    let joined = scalpel::connect(&hello)
        .map_err(|refusal| refusal.to_string())
        .and_then(want);
    match joined {
        Ok(()) => value::nothing(),
        Err(why) => value::string(env, &why),
    }
}

fn want(segment: &Segment) -> Result<(), String> {
    if WANTED.get().is_some() {
        return Ok(());
    }
    let by_v8 = segment.option("node-coverage") == Some("v8");
    let mode = match segment.modes() {
        modes if modes & modes::CALL != 0 => Some(Mode::Call),
        _ if by_v8 => None,
        _ => Some(Mode::Count),
    };
    let wanted = Wanted::new(
        mode,
        segment.option("node-include"),
        segment.option("node-exclude"),
    )?;
    // Another isolate that came first decided the same.
    WANTED.get_or_init(|| wanted);
    Ok(())
}

/// `option(name)`: `"mode"` is `call`, `count` or `v8`; others as the collector gave them.
unsafe extern "C" fn option(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([name], _) = value::arguments(env, info);
    let name = value::text(env, name).unwrap_or_default();
    let mode = WANTED.get().map(|wanted| match wanted.mode {
        Some(Mode::Call) => "call",
        Some(Mode::Count) => "count",
        None => "v8",
    });
    let found = if name == "mode" {
        mode
    } else {
        scalpel::attached().and_then(|segment| segment.option(&name))
    };
    found.map_or(value::nothing(), |found| value::string(env, found))
}

/// `helper()`: what inserted code calls, for this isolate.
unsafe extern "C" fn helper(env: napi_env, _: napi_callback_info) -> napi_value {
    let isolate: *const Isolate = Isolate::new();
    let helper = value::object(env);
    for (name, function) in calls::ALL {
        value::define(env, helper, name, *function, isolate.cast_mut().cast());
    }
    value::at_end(env, ended, std::ptr::null());
    if let Some(segment) = scalpel::attached() {
        if let Some(switches) = switches(env, segment) {
            value::set(env, helper, c"g", switches);
        }
        let counts = WANTED
            .get()
            .is_some_and(|wanted| wanted.mode == Some(Mode::Count));
        if counts && let Some(counters) = counters(env, segment) {
            value::set(env, helper, c"c", counters);
        }
    }
    helper
}

fn switches(env: napi_env, segment: &Segment) -> Option<napi_value> {
    let (at, words) = segment.switches();
    value::array(
        env,
        at.as_ptr().cast(),
        words * size_of::<u32>(),
        sys::TypedarrayType::uint32_array,
        words,
    )
}

fn counters(env: napi_env, segment: &Segment) -> Option<napi_value> {
    let counters = segment.counters(Language::Node)?;
    value::array(
        env,
        counters.at.as_ptr().cast(),
        counters.len * size_of::<f64>(),
        sys::TypedarrayType::float64_array,
        counters.len,
    )
}

/// The isolate's thread is done with its lane.
unsafe extern "C" fn ended(_: *mut c_void) {
    scalpel::release();
}

/// `load(text, file, kind, typescript, alias, lines, columns)`: `{ text, module, imports }`; without `text` the original is
/// to be run. `kind` is 0 script, 1 `CommonJS`, 2 module; `lines` and `columns` stand before the text in its host.
unsafe extern "C" fn load(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([text, file, kind, typescript, alias, lines, columns], _) = value::arguments(env, info);
    let (Some(segment), Some(wanted)) = (scalpel::attached(), WANTED.get()) else {
        return value::nothing();
    };
    let (Some(text), Some(file)) = (value::text(env, text), value::text(env, file)) else {
        return value::nothing();
    };
    let kind = match value::small(env, kind) {
        0 => Kind::Script,
        1 => Kind::CommonJs,
        _ => Kind::Module,
    };
    let offset = |value| i32::try_from(value::number(env, value)).unwrap_or(0);
    let loaded = Loaded {
        source: Source {
            text: &text,
            kind,
            typescript: value::truth(env, typescript),
        },
        file: &file,
        offset: (offset(lines), offset(columns)),
        alias: value::truth(env, alias),
    };
    let answer = texts::load(segment, wanted, &loaded);
    let object = value::object(env);
    if let Some(text) = &answer.text {
        value::set(env, object, c"text", value::string(env, text));
    }
    let module = value::from_number(env, i64::from(answer.module));
    value::set(env, object, c"module", module);
    value::set(
        env,
        object,
        c"imports",
        value::from_truth(env, answer.imports),
    );
    object
}

/// `column(file, line, column)`: the original column, or `undefined` where it is the same.
unsafe extern "C" fn column(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([file, line, column], _) = value::arguments(env, info);
    let Some(file) = value::text(env, file) else {
        return value::nothing();
    };
    let small = |value| i32::try_from(value::number(env, value)).unwrap_or(0);
    texts::column(&file, small(line), small(column)).map_or(value::nothing(), |column| {
        value::from_number(env, i64::from(column))
    })
}

/// `offset(file, offset)`: the original offset.
unsafe extern "C" fn offset(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([file, offset], _) = value::arguments(env, info);
    let Some(file) = value::text(env, file) else {
        return value::nothing();
    };
    let found = texts::offset(&file, value::small(env, offset));
    value::from_number(env, i64::from(found))
}

/// Whether any isolate of this process runs ECMAScript modules.
static MODULES: AtomicBool = AtomicBool::new(false);

/// `modules(used)`: whether any isolate runs ECMAScript modules; with `true` one does.
unsafe extern "C" fn modules(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([used], _) = value::arguments(env, info);
    if value::truth(env, used) {
        MODULES.store(true, Ordering::Relaxed);
    }
    value::from_truth(env, MODULES.load(Ordering::Relaxed))
}

/// `deepen()`: gives the main thread's recursion the room that inserted code takes; whether it could.
unsafe extern "C" fn deepen(env: napi_env, _: napi_callback_info) -> napi_value {
    let deepened = WANTED.get().is_some_and(|wanted| match wanted.mode {
        Some(Mode::Call) => stack::deepen(230),
        Some(Mode::Count) => stack::deepen(125),
        None => true,
    });
    value::from_truth(env, deepened)
}

/// `turns()`: whether it is told when no JavaScript runs any more, by which a module's exception is found out.
unsafe extern "C" fn turns(env: napi_env, _: napi_callback_info) -> napi_value {
    value::from_truth(env, turn::are_told())
}

/// `touched(file, line)`: whether anything was inserted in the line.
unsafe extern "C" fn touched(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([file, line], _) = value::arguments(env, info);
    let line = i32::try_from(value::number(env, line)).unwrap_or(0);
    let touched = value::text(env, file).is_some_and(|file| texts::touched(&file, line));
    value::from_truth(env, touched)
}

/// `note(kind, value, text)`.
unsafe extern "C" fn note(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([kind, number, text], _) = value::arguments(env, info);
    if let (Some(segment), Some(text)) = (scalpel::attached(), value::text(env, text)) {
        let kind = u8::try_from(value::small(env, kind)).unwrap_or(0);
        let number = value::number(env, number).unsigned_abs();
        segment.note(kind, Language::Node, number, &text);
    }
    value::nothing()
}

/// `counted(file, start, end, calls)`: V8 has counted calls of the function with this range; whether there is one.
unsafe extern "C" fn counted(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([file, start, end, calls], _) = value::arguments(env, info);
    let (Some(segment), Some(file)) = (scalpel::attached(), value::text(env, file)) else {
        return value::from_truth(env, false);
    };
    let id = texts::by_range(&file, value::small(env, start), value::small(env, end));
    if id != 0 {
        segment.count(id, value::number(env, calls).unsigned_abs());
    }
    value::from_truth(env, id != 0)
}
