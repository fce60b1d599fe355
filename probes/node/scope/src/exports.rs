//! The functions that JavaScript calls to open and close scopes.
use std::time::Duration;

use napi_sys::napi_value;
use scalpel_scope::handles::{self, Handle, Pause};
use scalpel_scope::trace::Form;
use scalpel_scope::{Budget, Code, Emit, Ending, HwBackend, Options, ScopeError, Site};

use crate::value::Env;
use crate::{Args, Export, memory, traces};

pub(crate) const ALL: &[Export] = &[
    (c"open", open),
    (c"close", close),
    (c"call", call),
    (c"pause", pause),
    (c"resume", resume),
    (c"functionRange", function_range),
    (c"symbol", symbol),
    (c"executable", executable),
    (c"totals", totals),
    (c"addresses", traces::addresses),
    (c"steps", traces::steps),
    (c"text", traces::text),
];

/// What is asked for: start and end (both null = everything), backend, traps, nanoseconds (0 = as usual), file, line,
/// column.
struct Asked {
    form: Form,
    options: Options,
    site: Site,
}

impl Asked {
    fn of(env: Env, args: &[napi_value], all: Form) -> Option<Self> {
        let [start, end, backend, traps, time, file, line, column] = args else {
            return None;
        };
        let form = match (env.to_big(*start), env.to_big(*end)) {
            (Some(start), Some(end)) => Form::Region { start, end },
            _ => all,
        };
        let backend = match env.to_text(*backend)?.as_str() {
            "auto" => HwBackend::Auto,
            "single-step" => HwBackend::SingleStep,
            "intel-pt" => HwBackend::IntelPt,
            "amd-lbr" => HwBackend::AmdLbr,
            _ => return None,
        };
        let mut budget = Budget::default();
        match env.to_count(*traps)? {
            0 => {}
            traps => budget.traps = traps,
        }
        match env.to_count(*time)? {
            0 => {}
            time => budget.time = Duration::from_nanos(time),
        }
        let options = Options {
            backend,
            budget,
            emit: Emit::Off,
        };
        let site = site(env, *file, *line, *column)?;
        Some(Self {
            form,
            options,
            site,
        })
    }
}

fn site(env: Env, file: napi_value, line: napi_value, column: napi_value) -> Option<Site> {
    if handles::off() {
        return Some(Site::nowhere());
    }
    let line = u32::try_from(env.to_count(line)?).ok()?;
    let column = u32::try_from(env.to_count(column)?).ok()?;
    Some(Site::at(&env.to_text(file)?, line, column))
}

/// Opens a scope; the number of its handle. It is armed as the last thing before this returns.
fn open(env: Env, args: &Args) -> Option<napi_value> {
    let pause = Pause::begin();
    let asked = args
        .get(..8)
        .and_then(|args| Asked::of(env, args, Form::Window));
    let Some(Asked {
        form,
        options,
        site,
    }) = asked
    else {
        return env.refuse(c"open: what is asked for is not understood");
    };
    let handle = handles::open(&pause, form, options, site);
    #[expect(clippy::cast_precision_loss, reason = "handles are below 2^53")]
    let number = env.number(handle.number() as f64);
    drop(pause);
    number
}

/// Closes a scope (handle, 0 close, 1 abandon, 2 suspend): what is known and its trace, or the name of the error.
fn close(env: Env, args: &Args) -> Option<napi_value> {
    let pause = Pause::begin();
    let [handle, ending, ..] = args;
    let ending = match env.to_count(*ending)? {
        0 => Ending::Close,
        1 => Ending::Abandon,
        _ => Ending::Suspend,
    };
    let handle = Handle::of(env.to_count(*handle)?);
    let answer = match handles::close(&pause, handle, ending) {
        Ok(trace) => traces::answer(env, trace),
        Err(ScopeError::AlreadyClosed) => env.text("AlreadyClosed"),
        Err(ScopeError::WrongOrder) => env.text("WrongOrder"),
        Err(ScopeError::OtherThread) => env.text("OtherThread"),
        Err(ScopeError::NoSuchScope) => env.text("NoSuchScope"),
    };
    drop(pause);
    answer
}

/// Calls a C function (address, integers, and as for `open`): its result and the trace.
fn call(env: Env, args: &Args) -> Option<napi_value> {
    let pause = Pause::begin();
    let [function, list, rest @ ..] = args;
    let function = usize::try_from(env.to_big(*function)?).ok()?;
    let mut six = [0; 6];
    let given = env.to_items(*list)?;
    if function == 0 || given.len() > six.len() {
        return env.refuse(c"call: a function that is not null, and at most 6 integers");
    }
    for (to, from) in six.iter_mut().zip(given) {
        *to = env.to_big(from)?;
    }
    let Some(asked) = Asked::of(env, rest, Form::Call) else {
        return env.refuse(c"call: what is asked for is not understood");
    };
    // SAFETY: the caller says that this is a C function that is sound with these arguments, and that it returns.
    let (result, trace) = unsafe {
        handles::call(
            &pause,
            (function, &six),
            asked.form,
            asked.options,
            asked.site,
        )
    };
    let answer = env.list([env.big(result), traces::answer(env, trace)]);
    drop(pause);
    answer
}

fn pause(_: Env, _: &Args) -> Option<napi_value> {
    handles::pause();
    None
}

fn resume(_: Env, _: &Args) -> Option<napi_value> {
    handles::resume();
    None
}

/// The range of the function at an address, by the symbols of its file.
fn function_range(env: Env, args: &Args) -> Option<napi_value> {
    let [address, ..] = args;
    let code = Code::function(usize::try_from(env.to_big(*address)?).ok()?)?;
    match code.region() {
        Form::Region { start, end } => env.list([env.big(start), env.big(end)]),
        Form::Call | Form::Window => None,
    }
}

fn symbol(env: Env, args: &Args) -> Option<napi_value> {
    let [name, ..] = args;
    env.big(memory::symbol(env.to_text(*name)?)?)
}

fn executable(env: Env, args: &Args) -> Option<napi_value> {
    let [code, ..] = args;
    env.big(memory::executable(&env.to_bytes(*code)?)?)
}

/// Passes, traps and seconds of a call site.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn totals(env: Env, args: &Args) -> Option<napi_value> {
    let [file, line, column, ..] = args;
    let totals = site(env, *file, *line, *column)?.totals();
    env.list([
        env.number(totals.passes as f64),
        env.number(totals.traps as f64),
        env.number(totals.time.as_secs_f64()),
    ])
}
