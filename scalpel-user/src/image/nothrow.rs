//! Imports that an exception cannot come out of.
//!
//! The C library declares these functions as not throwing (`__THROW` in its headers), and a C++ compiler gives calls
//! to them no way for an exception to pass: they take no callbacks, are no cancellation points, and do not return
//! twice. Who replaces one of them (an allocator, a sanitizer) is bound by the same declaration. Functions that call
//! back (`qsort`, `bsearch`), that flush streams of user types, or that C++ code may make throw (`operator new`) are
//! not here.

use rustc_hash::FxHashSet;

use super::dynamic::{Dynamic, Slot};

/// The words of the loader that are bound to such functions.
pub(super) fn words(dynamic: &Dynamic<'_>) -> FxHashSet<u64> {
    let harmless = dynamic.slots.iter().filter(|(_, slot)| match slot {
        Slot::Import(import) => {
            import.version.is_some_and(|v| v.starts_with("GLIBC_")) && is_nothrow(import.name)
        }
        _ => false,
    });
    harmless.map(|(&word, _)| word).collect()
}

fn is_nothrow(name: &str) -> bool {
    let plain = name
        .strip_prefix("__")
        .and_then(|inner| inner.strip_suffix("_chk"))
        .unwrap_or(name);
    MEMORY.contains(&plain)
        || TEXT.contains(&plain)
        || MATH.contains(&plain)
        || SYSTEM.contains(&plain)
}

const MEMORY: &[&str] = &[
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "memchr",
    "memrchr",
    "mempcpy",
    "rawmemchr",
    "memmem",
    "bcmp",
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "posix_memalign",
    "aligned_alloc",
    "malloc_usable_size",
];

const TEXT: &[&str] = &[
    "strlen",
    "strnlen",
    "strcmp",
    "strncmp",
    "strcasecmp",
    "strncasecmp",
    "strchr",
    "strrchr",
    "strchrnul",
    "strstr",
    "strcpy",
    "strncpy",
    "stpcpy",
    "stpncpy",
    "strcat",
    "strncat",
    "strspn",
    "strcspn",
    "strpbrk",
    "strtok_r",
    "strdup",
    "strndup",
    "strtol",
    "strtoul",
    "strtoll",
    "strtoull",
    "strtod",
    "strtof",
    "wcslen",
    "wmemcpy",
    "wmemset",
    "wmemcmp",
    "tolower",
    "toupper",
    "isalnum",
    "isalpha",
    "isdigit",
    "isspace",
    "isupper",
    "islower",
    "isprint",
    "ispunct",
    "isxdigit",
    "__ctype_b_loc",
    "__ctype_tolower_loc",
    "__ctype_toupper_loc",
];

const MATH: &[&str] = &[
    "abs",
    "labs",
    "ceil",
    "ceilf",
    "floor",
    "floorf",
    "round",
    "roundf",
    "trunc",
    "truncf",
    "rint",
    "nearbyint",
    "sqrt",
    "sqrtf",
    "fmod",
    "fmodf",
    "fabs",
    "exp",
    "expf",
    "exp2",
    "expm1",
    "log",
    "logf",
    "log2",
    "log10",
    "log1p",
    "pow",
    "powf",
    "sin",
    "sinf",
    "cos",
    "cosf",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "hypot",
    "cbrt",
    "ldexp",
    "frexp",
    "modf",
    "copysign",
];

const SYSTEM: &[&str] = &[
    "__errno_location",
    "__stack_chk_fail",
    "abort",
    "getpid",
    "gettimeofday",
    "clock_gettime",
    "time",
    "pthread_self",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_mutex_trylock",
    "pthread_getspecific",
    "pthread_setspecific",
    "sched_yield",
    "sysconf",
    "getenv",
    "__tls_get_addr",
];
