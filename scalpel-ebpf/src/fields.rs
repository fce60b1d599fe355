//! Fields of kernel structures, read by typed loads at offsets that the collector took from the kernel's BTF.
//!
//! The offsets are read-only globals: constants for the verifier, which then checks each load against the type that the
//! running kernel has at that place. A load through a bad pointer gives 0. `scalpel_common::kernel::KERNEL_FIELDS` is
//! the same list.

use aya_ebpf::Global;
use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::generated::bpf_get_current_task_btf;

macro_rules! fields {
    ($($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            pub(crate) static $name: Global<u64> = Global::new(0);
        )+
    };
}

fields! {
    TASK_PID TASK_TGID TASK_MM TASK_FSBASE TASK_UTASK TASK_LEADER TASK_START_BOOTTIME TASK_EXIT_CODE TASK_SIGNAL
    TASK_COMM TASK_STATE TASK_NVCSW TASK_NIVCSW TASK_RAN SIGNAL_LIVE MM_START_STACK MM_XOL_AREA XOL_AREA_VADDR UTASK_DEPTH UTASK_RETURN_INSTANCES
    RETURN_INSTANCE_STACK RETURN_INSTANCE_ORIGINAL RETURN_INSTANCE_NEXT BPRM_FILENAME
    EXIT_TELLS_LAST LISTED_PROCESS TASK_IO_WAIT TASK_IO_WAIT_MASK
}

/// A pointer to a kernel structure whose type the verifier knows.
#[derive(Clone, Copy)]
pub(crate) struct Kernel(*const u8);

impl Kernel {
    /// The pointer that a BTF tracepoint or helper gave.
    #[inline(always)]
    pub(crate) const fn new<T>(pointer: *const T) -> Self {
        Self(pointer.cast())
    }

    /// The pointer itself.
    #[inline(always)]
    pub(crate) const fn as_ptr(self) -> *const u8 {
        self.0
    }

    /// Address of a field.
    #[inline(always)]
    pub(crate) fn at(self, field: &Global<u64>) -> *const u8 {
        self.0.wrapping_add(field.load() as usize)
    }

    /// A field of 8 bytes.
    #[inline(always)]
    pub(crate) fn u64(self, field: &Global<u64>) -> u64 {
        // SAFETY: the verifier checks the load against the structure's BTF, and the kernel catches a fault.
        unsafe { self.at(field).cast::<u64>().read_volatile() }
    }

    /// A field of 1 byte.
    #[inline(always)]
    pub(crate) fn u8(self, field: &Global<u64>) -> u8 {
        // SAFETY: as in `u64`.
        unsafe { self.at(field).read_volatile() }
    }

    /// A field of 4 bytes.
    #[inline(always)]
    pub(crate) fn u32(self, field: &Global<u64>) -> u32 {
        // SAFETY: as in `u64`.
        unsafe { self.at(field).cast::<u32>().read_volatile() }
    }

    /// A field that points to another structure.
    #[inline(always)]
    pub(crate) fn follow(self, field: &Global<u64>) -> Self {
        // SAFETY: as in `u64`.
        Self(unsafe { self.at(field).cast::<*const u8>().read_volatile() })
    }

    /// Whether the pointer is null.
    #[inline(always)]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A thread.
#[derive(Clone, Copy)]
pub(crate) struct Task(Kernel);

impl Task {
    /// The thread that runs.
    #[inline(always)]
    pub(crate) fn current() -> Self {
        // SAFETY: the helper has no precondition.
        Self(Kernel::new(unsafe { bpf_get_current_task_btf() }))
    }

    /// A thread that a tracepoint names.
    #[inline(always)]
    pub(crate) const fn new(task: *const task_struct) -> Self {
        Self(Kernel::new(task))
    }

    /// As the helpers want it.
    #[inline(always)]
    pub(crate) const fn as_ptr(self) -> *mut task_struct {
        self.0.as_ptr().cast_mut().cast()
    }

    /// The `task_struct`.
    #[inline(always)]
    pub(crate) const fn fields(self) -> Kernel {
        self.0
    }

    /// Thread id in the initial pid namespace.
    #[inline(always)]
    pub(crate) fn tid(self) -> u32 {
        self.0.u32(&TASK_PID)
    }

    /// Thread group id in the initial pid namespace.
    #[inline(always)]
    pub(crate) fn pid(self) -> u32 {
        self.0.u32(&TASK_TGID)
    }

    /// CPU time in ns, by the kernel's own account: exact when the thread leaves the processor, a tick old at most before.
    #[inline(always)]
    pub(crate) fn ran(self) -> u64 {
        self.0.u64(&TASK_RAN)
    }

    /// When its process began, in ns of `CLOCK_BOOTTIME`.
    #[inline(always)]
    pub(crate) fn process_start(self) -> u64 {
        self.0.follow(&TASK_LEADER).u64(&TASK_START_BOOTTIME)
    }
}
