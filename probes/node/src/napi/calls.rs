//! What inserted code calls: one function a kind of event, as short as it can be.
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use napi_sys::{napi_callback_info, napi_env, napi_value};
use scalpel::{Source, flags};

use super::{Export, value};

/// What an isolate keeps. One thread uses it.
pub(super) struct Isolate {
    /// In the upper bits of its frames, so that no two isolates of a process have the same.
    number: u64,
    last: Cell<u64>,
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
        }))
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
];

fn isolate<'a>(data: *mut c_void) -> &'a Isolate {
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
