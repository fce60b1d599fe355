//! What inserted code calls: one function a kind of event, as short as it can be.
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use napi_sys::{napi_callback_info, napi_env, napi_value};
use scalpel::{Source, flags};

use super::{Export, turn, value};

/// What an isolate keeps. One thread uses it.
pub(super) struct Isolate {
    /// In the upper bits of its frames, so that no two isolates of a process have the same.
    number: u64,
    last: Cell<u64>,
    /// Bodies of modules that run now.
    bodies: RefCell<Vec<Body>>,
}

/// The body of a module that has begun, and neither ended nor waits.
#[derive(Clone, Copy)]
struct Body {
    token: i64,
    id: u32,
    suspends: bool,
}

/// Bits of a frame below its isolate's number; with it they stay exact in a double.
const FRAME_BITS: u32 = 40;

static ISOLATES: AtomicU64 = AtomicU64::new(0);

impl Isolate {
    /// A new one, which stays: the functions that refer to it may outlive anything else.
    pub(super) fn new() -> &'static Self {
        let number = ISOLATES.fetch_add(1, Ordering::Relaxed);
        Box::leak(Box::new(Self {
            number: number << FRAME_BITS,
            last: Cell::new(0),
            bodies: RefCell::default(),
        }))
    }

    /// A body runs from here to its end, to an `await`, or to an exception, of which only the end of the turn tells.
    fn body_runs(&'static self, body: Body) {
        if let Ok(mut bodies) = self.bodies.try_borrow_mut() {
            bodies.push(body);
            turn::at_end(bodies_ended, std::ptr::from_ref(self).cast_mut().cast());
        }
    }

    /// The body with this token runs no more; whether it did.
    fn body_stops(&self, token: i64) -> Option<Body> {
        let mut bodies = self.bodies.try_borrow_mut().ok()?;
        let at = bodies.iter().rposition(|body| body.token == token)?;
        Some(bodies.remove(at))
    }

    fn next(&self) -> i64 {
        let next = self.last.get() + 1;
        self.last.set(next);
        next as i64
    }

    fn frame(&self, token: i64) -> u64 {
        self.number | token.unsigned_abs()
    }
}

/// The functions, each made with its [`Isolate`].
pub(super) const ALL: &[Export] = &[
    (c"e", enter),
    (c"a", enter_suspending),
    (c"x", exit),
    (c"y", exit_suspending),
    (c"s", suspend),
    (c"r", resume),
    (c"m", enter_body),
    (c"z", exit_body),
    (c"p", suspend_body),
    (c"q", resume_body),
    (c"o", count),
];

fn isolate(data: *mut c_void) -> &'static Isolate {
    // SAFETY: each function of `ALL` was made with a leaked `Isolate`, and runs on its thread.
    unsafe { &*data.cast_const().cast() }
}

/// `e(id)`: the token of a call that begins, 0 = it is not recorded.
unsafe extern "C" fn enter(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([id], data) = value::arguments(env, info);
    let isolate = isolate(data);
    let token = isolate.next();
    let recorded = scalpel::enter(
        Source::Node,
        value::small(env, id),
        isolate.frame(token),
        0,
        0,
        0,
    );
    value::from_number(env, if recorded == 0 { 0 } else { token })
}

/// `a(id)`: as `e`, of a call that can be suspended. It is a task of its own.
unsafe extern "C" fn enter_suspending(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([id], data) = value::arguments(env, info);
    let isolate = isolate(data);
    let token = isolate.next();
    let frame = isolate.frame(token);
    let recorded = scalpel::enter(
        Source::Node,
        value::small(env, id),
        frame,
        0,
        frame,
        flags::ASYNC,
    );
    value::from_number(env, if recorded == 0 { 0 } else { token })
}

/// `x(token, id, returned)`: a call ends, by an exception if `returned` is not 1.
unsafe extern "C" fn exit(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([token, id, returned], data) = value::arguments(env, info);
    let frame = isolate(data).frame(value::number(env, token));
    let (id, returned) = (value::small(env, id), value::small(env, returned));
    if returned == 0 {
        scalpel::unwind(1, Source::Node, id, frame, 0, 0);
    } else {
        scalpel::exit(1, Source::Node, id, frame, 0, 0, 0);
    }
    value::nothing()
}

/// `y(token, id, returned)`: as `x`, of a call that can be suspended; a negative token is of one that is.
unsafe extern "C" fn exit_suspending(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([token, id, returned], data) = value::arguments(env, info);
    let token = value::number(env, token);
    let frame = isolate(data).frame(token);
    let (id, returned) = (value::small(env, id), value::small(env, returned));
    if token < 0 {
        scalpel::resume(1, Source::Node, id, frame, frame, flags::ASYNC);
    }
    if returned == 0 {
        scalpel::unwind(1, Source::Node, id, frame, frame, flags::ASYNC);
    } else {
        scalpel::exit(1, Source::Node, id, frame, frame, 0, flags::ASYNC);
    }
    value::nothing()
}

/// `s(token, id)`: a call is suspended; answers its token as that of a suspended one.
unsafe extern "C" fn suspend(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([token, id], data) = value::arguments(env, info);
    let token = value::number(env, token).abs();
    let frame = isolate(data).frame(token);
    scalpel::suspend(
        1,
        Source::Node,
        value::small(env, id),
        frame,
        frame,
        flags::ASYNC,
    );
    value::from_number(env, -token)
}

/// `r(token, id)`: a suspended call goes on; answers its token.
unsafe extern "C" fn resume(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([token, id], data) = value::arguments(env, info);
    let token = value::number(env, token).abs();
    let frame = isolate(data).frame(token);
    scalpel::resume(
        1,
        Source::Node,
        value::small(env, id),
        frame,
        frame,
        flags::ASYNC,
    );
    value::from_number(env, token)
}

/// `o(id)`: a call that is only counted.
unsafe extern "C" fn count(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([id], _) = value::arguments(env, info);
    if let Some(segment) = scalpel::attached() {
        segment.count(value::small(env, id), 1);
    }
    value::nothing()
}

/// `m(id, suspends)`: as `e`, or as `a`, of the body of a module.
unsafe extern "C" fn enter_body(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([id, suspends], data) = value::arguments(env, info);
    let isolate = isolate(data);
    let body = Body {
        token: isolate.next(),
        id: value::small(env, id),
        suspends: value::small(env, suspends) != 0,
    };
    let (frame, task, flags) = body.of(isolate);
    if scalpel::enter(Source::Node, body.id, frame, 0, task, flags) == 0 {
        return value::from_number(env, 0);
    }
    isolate.body_runs(body);
    value::from_number(env, body.token)
}

/// `z(token, id, suspends)`: the body of a module ends.
unsafe extern "C" fn exit_body(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([token], data) = value::arguments(env, info);
    let isolate = isolate(data);
    if let Some(body) = isolate.body_stops(value::number(env, token)) {
        let (frame, task, flags) = body.of(isolate);
        scalpel::exit(1, Source::Node, body.id, frame, task, 0, flags);
    }
    value::nothing()
}

/// `p(token, id)`: as `s`, of the body of a module.
unsafe extern "C" fn suspend_body(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([token, ..], data) = value::arguments::<2>(env, info);
    isolate(data).body_stops(value::number(env, token));
    // SAFETY: the call is handed on as it is.
    unsafe { suspend(env, info) }
}

/// `q(token, id)`: as `r`, of the body of a module.
unsafe extern "C" fn resume_body(env: napi_env, info: napi_callback_info) -> napi_value {
    let ([token, id], data) = value::arguments(env, info);
    isolate(data).body_runs(Body {
        token: value::number(env, token).abs(),
        id: value::small(env, id),
        suspends: true,
    });
    // SAFETY: the call is handed on as it is.
    unsafe { resume(env, info) }
}

/// No JavaScript runs: bodies of modules that have neither ended nor wait were left by exceptions, the innermost first.
unsafe extern "C" fn bodies_ended(data: *mut c_void) {
    let isolate = isolate(data);
    let Ok(mut bodies) = isolate.bodies.try_borrow_mut() else {
        return;
    };
    while let Some(body) = bodies.pop() {
        let (frame, task, flags) = body.of(isolate);
        scalpel::unwind(1, Source::Node, body.id, frame, task, flags);
    }
}

impl Body {
    /// Its frame, task and flags.
    fn of(self, isolate: &Isolate) -> (u64, u64, u16) {
        let frame = isolate.frame(self.token);
        if self.suspends {
            (frame, frame, flags::ASYNC)
        } else {
            (frame, 0, 0)
        }
    }
}
