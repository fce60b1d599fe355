//! libipt's words: its structures as `intel-pt.h` of 2.0 lays them out (later ones take the older sizes), and its
//! functions by name. The library is loaded when it is first needed, so that nothing depends on it to start.
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// Names under which the library may be installed.
const NAMES: [&str; 2] = ["libipt.so.2", "libipt.so"];

/// The processor that recorded a trace.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RawProcessor {
    /// 1 = Intel.
    pub(super) vendor: u32,
    pub(super) family: u16,
    pub(super) model: u8,
    pub(super) stepping: u8,
}

#[repr(C)]
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) size: usize,
    pub(super) begin: *mut u8,
    pub(super) end: *mut u8,
    pub(super) callback: usize,
    pub(super) context: usize,
    pub(super) processor: RawProcessor,
    pub(super) errata: [u32; 16],
    pub(super) crystal: [u32; 2],
    pub(super) mtc_freq: u8,
    pub(super) nom_freq: u8,
    pub(super) flags: [u32; 4],
    pub(super) filter: [u64; 17],
}

/// A block of instructions that ran.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawBlock {
    pub(super) ip: u64,
    pub(super) end_ip: u64,
    pub(super) section: c_int,
    pub(super) mode: u32,
    pub(super) class: u32,
    pub(super) instructions: u16,
    pub(super) raw: [u8; 15],
    pub(super) size: u8,
    /// Bit 0: speculative. Bit 1: the last instruction goes on in another section.
    pub(super) flags: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawEvent {
    pub(super) kind: u32,
    /// Bit 0: the address is suppressed. Bit 1: status update. Bit 2: has a time stamp.
    pub(super) flags: u32,
    pub(super) tsc: u64,
    pub(super) lost: [u32; 2],
    pub(super) reserved: [u64; 2],
    pub(super) words: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawPacket {
    pub(super) kind: u32,
    pub(super) size: u8,
    pub(super) words: [u64; 2],
}

const _: () = {
    assert!(size_of::<RawProcessor>() == 8);
    assert!(size_of::<Config>() == 280);
    assert!(std::mem::offset_of!(Config, errata) == 48);
    assert!(std::mem::offset_of!(Config, crystal) == 112);
    assert!(std::mem::offset_of!(Config, flags) == 124);
    assert!(std::mem::offset_of!(Config, filter) == 144);
    assert!(size_of::<RawBlock>() == 48);
    assert!(std::mem::offset_of!(RawBlock, flags) == 46);
    assert!(size_of::<RawEvent>() == 64);
    assert!(size_of::<RawPacket>() == 24);
};

impl Config {
    pub(super) fn of(begin: *mut u8, len: usize) -> Self {
        Self {
            size: size_of::<Self>(),
            begin,
            end: begin.wrapping_add(len),
            callback: 0,
            context: 0,
            processor: RawProcessor::default(),
            errata: [0; 16],
            crystal: [0; 2],
            mtc_freq: 0,
            nom_freq: 0,
            flags: [0; 4],
            filter: [0; 17],
        }
    }
}

macro_rules! functions {
    ($($name:ident($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the loaded library.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
            /// Keeps the code mapped; dropped never.
            _library: libloading::Library,
        }

        impl Functions {
            fn of(library: libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the type is that of the function of this name in `intel-pt.h`.
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }?,)*
                    _library: library,
                })
            }
        }
    };
}

type Handle = *mut c_void;

functions! {
    pt_errstr(c_int) -> *const c_char;
    pt_cpu_errata(*mut [u32; 16], *const RawProcessor) -> c_int;
    pt_iscache_alloc(*const c_char) -> Handle;
    pt_iscache_free(Handle);
    pt_iscache_set_limit(Handle, u64) -> c_int;
    pt_iscache_add_file(Handle, *const c_char, u64, u64, u64) -> c_int;
    pt_image_alloc(*const c_char) -> Handle;
    pt_image_free(Handle);
    pt_image_add_cached(Handle, Handle, c_int, *const c_void) -> c_int;
    pt_blk_alloc_decoder(*const Config) -> Handle;
    pt_blk_free_decoder(Handle);
    pt_blk_set_image(Handle, Handle) -> c_int;
    pt_blk_sync_forward(Handle) -> c_int;
    pt_blk_get_offset(Handle, *mut u64) -> c_int;
    pt_blk_next(Handle, *mut RawBlock, usize) -> c_int;
    pt_blk_event(Handle, *mut RawEvent, usize) -> c_int;
    pt_pkt_alloc_decoder(*const Config) -> Handle;
    pt_pkt_free_decoder(Handle);
    pt_pkt_sync_forward(Handle) -> c_int;
    pt_pkt_get_offset(Handle, *mut u64) -> c_int;
    pt_pkt_next(Handle, *mut RawPacket, usize) -> c_int;
    pt_alloc_encoder(*const Config) -> Handle;
    pt_free_encoder(Handle);
    pt_enc_next(Handle, *const RawPacket) -> c_int;
    pt_enc_get_offset(Handle, *mut u64) -> c_int;
}

/// The library; the error says how to get it.
pub(super) fn functions() -> Result<&'static Functions, String> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Functions, String> {
    let mut last = String::new();
    for name in NAMES {
        // SAFETY: loading libipt runs no code of its own that could break anything here.
        match unsafe { libloading::Library::new(name) }.and_then(Functions::of) {
            Ok(functions) => return Ok(functions),
            Err(error) => last = error.to_string(),
        }
    }
    Err(format!(
        "libipt is needed to decode Intel PT, and cannot be loaded ({last}): install Debian's `libipt2`, or your \
         distribution's libipt"
    ))
}
