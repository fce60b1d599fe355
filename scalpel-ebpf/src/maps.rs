//! The maps, as `scalpel_common::kernel::maps` describes them. Sizes given here are placeholders where the loader sets them.

use core::ffi::c_void;
use core::ptr;

use aya_ebpf::bindings::{
    BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BPF_LOCAL_STORAGE_GET_F_CREATE, bpf_map_type,
};
use aya_ebpf::btf_maps::{Array, ArrayOfMaps, HashMap, PerCpuArray, RingBuf};
use aya_ebpf::helpers::generated::bpf_task_storage_get;
use aya_ebpf::macros::btf_map;
use scalpel_common::count::{CountCell, CountHistogram, TimedCalls};
use scalpel_common::event::Event;
use scalpel_common::kernel::{
    CALL_RINGS as RINGS, ControlRecord, LOSS_CLASSES, MAX_FUNCTIONS, OpenCalls, Settings,
    ThreadState, WatchedProcess,
};
use scalpel_common::wait::Wait;

use crate::fields::Task;
use crate::sample::Scratch;

/// A ring of whole events.
pub(crate) type CallRing = RingBuf<Event, { 1 << 20 }>;

#[btf_map]
pub(crate) static SETTINGS: Array<Settings, 1> = Array::new();

#[btf_map]
pub(crate) static WATCHED: HashMap<u32, WatchedProcess, 16384> = HashMap::new();

/// What is kept of a thread. One storage for all of it: each look-up costs a counted call some 40 ns. The open timed calls
/// are used where calls are counted only.
#[repr(C)]
pub(crate) struct ThreadRecord {
    /// First, so that a pointer to the record is one to the state.
    pub(crate) state: ThreadState,
    pub(crate) timed: TimedCalls,
}

#[btf_map]
pub(crate) static THREADS: TaskStorage<ThreadRecord> = TaskStorage::new();

impl TaskStorage<ThreadRecord> {
    /// The task's state, if it has one.
    #[inline(always)]
    pub(crate) fn state(&self, task: Task) -> Option<*mut ThreadState> {
        self.get(task).map(<*mut ThreadRecord>::cast)
    }

    /// The task's state; one of zeros is made if there is none. `None` = as for [`TaskStorage::get_or_insert`].
    #[inline(always)]
    pub(crate) fn state_or_new(&self, task: Task) -> Option<*mut ThreadState> {
        self.get_or_insert(task, ptr::null_mut())
            .map(<*mut ThreadRecord>::cast)
    }
}

#[btf_map]
pub(crate) static OPEN_CALLS: TaskStorage<OpenCalls> = TaskStorage::new();

#[btf_map]
pub(crate) static WAITS: TaskStorage<Wait> = TaskStorage::new();

#[btf_map]
pub(crate) static CALL_RINGS: ArrayOfMaps<CallRing, RINGS> = ArrayOfMaps::new();

#[btf_map]
pub(crate) static SAMPLE_RING: RingBuf<Event, { 1 << 20 }> = RingBuf::new();

#[btf_map]
pub(crate) static CONTROL_RING: RingBuf<ControlRecord, { 1 << 18 }> = RingBuf::new();

#[btf_map]
pub(crate) static HITS: Array<u64, { MAX_FUNCTIONS as usize }, { BPF_F_MMAPABLE as usize }> =
    Array::new();

#[btf_map]
pub(crate) static FUNCTION_LOSSES: Array<
    u64,
    { MAX_FUNCTIONS as usize },
    { BPF_F_MMAPABLE as usize },
> = Array::new();

#[btf_map]
pub(crate) static LOSSES: PerCpuArray<[u64; LOSS_CLASSES], 1> = PerCpuArray::new();

#[btf_map]
pub(crate) static COUNT_CELLS: Array<CountCell, 1024, { BPF_F_MMAPABLE as usize }> = Array::new();

#[btf_map]
pub(crate) static COUNT_HISTOGRAMS: Array<CountHistogram, 16, { BPF_F_MMAPABLE as usize }> =
    Array::new();

#[btf_map]
pub(crate) static COUNT_SLOTS: Array<u32, { MAX_FUNCTIONS as usize }> = Array::new();

#[btf_map]
pub(crate) static COUNT_CLAIMS: Array<u64, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

#[btf_map]
pub(crate) static SAMPLE_SCRATCH: PerCpuArray<Scratch, 1> = PerCpuArray::new();

/// A value per thread, which the kernel frees with the thread. aya-ebpf has the helper, not the map.
#[repr(C)]
pub(crate) struct TaskStorage<T> {
    r#type: *const [i32; bpf_map_type::BPF_MAP_TYPE_TASK_STORAGE as usize],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
}

// SAFETY: the fields only describe the map to the loader: nothing reads or writes them.
unsafe impl<T> Sync for TaskStorage<T> {}

impl<T> TaskStorage<T> {
    const fn new() -> Self {
        Self {
            r#type: ptr::null(),
            key: ptr::null(),
            value: ptr::null(),
            max_entries: ptr::null(),
            map_flags: ptr::null(),
        }
    }

    /// The task's value, if it has one.
    #[inline(always)]
    pub(crate) fn get(&self, task: Task) -> Option<*mut T> {
        self.lookup(task, ptr::null_mut(), 0)
    }

    /// The task's value; one is made from `initial` if there is none. `None` = no memory, or this CPU is already in
    /// the middle of such a call (the kernel refuses to nest them).
    #[inline(always)]
    pub(crate) fn get_or_insert(&self, task: Task, initial: *mut T) -> Option<*mut T> {
        self.lookup(task, initial, u64::from(BPF_LOCAL_STORAGE_GET_F_CREATE))
    }

    #[inline(always)]
    fn lookup(&self, task: Task, initial: *mut T, flags: u64) -> Option<*mut T> {
        let map: *mut c_void = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the map is a task storage and the task a BTF pointer: the verifier checks both.
        let value = unsafe { bpf_task_storage_get(map, task.as_ptr(), initial.cast(), flags) };
        (!value.is_null()).then_some(value.cast())
    }
}
