/* scalpel scopes: the exact instructions of one region of a running thread. Complete, or truncated for named reasons.
 *
 * Open, run, close, all on one thread:
 *
 *     struct scalpel_scope_request request = {0};
 *     uint64_t scope;
 *     struct scalpel_trace *trace;
 *     request.size = sizeof request;
 *     request.file = __FILE__;
 *     request.line = __LINE__;
 *     scalpel_scope_open(&request, &scope);
 *     hot_path(data);
 *     scalpel_scope_close(scope, SCALPEL_SCOPE_END_CLOSE, &trace);
 *
 * A handle pairs one open with one close and is never used again, so that a stale one is refused. Nothing here unwinds
 * or calls back. Before the first open nothing is installed or allocated; with SCALPEL_SCOPE=off in the environment
 * nothing ever is. Generated from the sources of scalpel-scope-c: do not edit. MIT OR Apache-2.0. */

#ifndef SCALPEL_SCOPE_H
#define SCALPEL_SCOPE_H

#include <stddef.h>
#include <stdint.h>

// Why a trace may lack something: bits of `reasons`.
// The scope was closed on another thread than it was opened on.
#define SCALPEL_REASON_THREAD_HOP (1u << 0)
// The preallocated log had no room left.
#define SCALPEL_REASON_RING_FULL (1u << 1)
// The budget of traps or time was spent; the rest ran natively.
#define SCALPEL_REASON_BUDGET (1u << 2)
// The trap flag was off at the close, so that the end is missing.
#define SCALPEL_REASON_TRAP_FLAG_LOST (1u << 3)
// A restartable sequence was aborted by the step; the rest ran natively, so that it can commit.
#define SCALPEL_REASON_RESTARTABLE_SEQUENCE (1u << 4)
// A thread or process was made or replaced where that cannot be stepped over.
#define SCALPEL_REASON_FORK_OR_EXEC (1u << 5)
// The scope was opened in a signal handler that returned within it.
#define SCALPEL_REASON_RETURN_FROM_A_SIGNAL_HANDLER (1u << 6)
// Bytes that ran could not be read or decoded.
#define SCALPEL_REASON_DECODE_ERROR (1u << 7)
// Code bytes were replaced between their run and their reading.
#define SCALPEL_REASON_CODE_CHANGED (1u << 8)
// An instruction was followed by one that it cannot lead to.
#define SCALPEL_REASON_UNEXPLAINED_SUCCESSOR (1u << 9)
// An instruction that must be guarded stood where no trap comes; the rest ran natively.
#define SCALPEL_REASON_HIDDEN_INSTRUCTION (1u << 10)
// A system call that changes signals, or forbids system calls, could not be emulated; the rest ran natively.
#define SCALPEL_REASON_UNGUARDED_SYSTEM_CALL (1u << 11)
// The scope was dropped while one opened within it was still open.
#define SCALPEL_REASON_WRONG_ORDER (1u << 12)
// The steps are not those that were counted while they ran.
#define SCALPEL_REASON_COUNT_DIFFERS (1u << 13)
// A probe's breakpoint hid an instruction whose successor cannot be checked.
#define SCALPEL_REASON_UPROBE (1u << 14)
// A callee that ran at full speed did not come back behind its call, or not as it was to.
#define SCALPEL_REASON_CALL_OUT_NOT_VERIFIED (1u << 15)
// A system call did not come back behind its instruction.
#define SCALPEL_REASON_SYSTEM_CALL_NOT_VERIFIED (1u << 16)
// The call was left by an exception, a long jump, a switch of stacks or the end of its thread.
#define SCALPEL_REASON_LEFT_WITHOUT_RETURN (1u << 17)
// The processor dropped packets, because it made more than it could write.
#define SCALPEL_REASON_OVERFLOW_PACKET (1u << 20)
// The kernel or the recording tool dropped trace, because a buffer was full.
#define SCALPEL_REASON_BUFFER_FULL (1u << 21)
// The bytes of an address that ran are not known: its file is missing, another one, or was never mapped in the recording.
#define SCALPEL_REASON_CODE_MISSING (1u << 22)
// Trace before the first synchronisation point, or between an error and the next one, cannot be decoded.
#define SCALPEL_REASON_NO_SYNCHRONISATION_POINT (1u << 23)
// The recording begins or ends in the middle of the flow.
#define SCALPEL_REASON_OPEN_END (1u << 24)
// It is made of samples: what ran between them is not known.
#define SCALPEL_REASON_SAMPLED (1u << 25)
// Something that ran between two steps is missing.
#define SCALPEL_REASON_GAP (1u << 27)
// What tells which thread ran, or what was mapped where, is missing, or lost in part.
#define SCALPEL_REASON_SIDE_BAND (1u << 26)
// The code inside was suspended (an await); what the thread ran from there on is not its own.
#define SCALPEL_REASON_ASYNC_SUSPEND (1u << 30)

// Version of this interface. Numbers and fields are appended; what there is does not change.
#define SCALPEL_SCOPE_ABI 1

// Done.
#define SCALPEL_SCOPE_OK 0

// An argument is null, unknown or contradicts another.
#define SCALPEL_SCOPE_INVALID -1

// The scope is closed already.
#define SCALPEL_SCOPE_ALREADY_CLOSED -2

// A scope opened within this one is still open; close that one first.
#define SCALPEL_SCOPE_WRONG_ORDER -3

// The scope belongs to another thread; close it there.
#define SCALPEL_SCOPE_OTHER_THREAD -4

// No scope ever had this handle.
#define SCALPEL_SCOPE_NO_SUCH_SCOPE -5

// No function of known size is there.
#define SCALPEL_SCOPE_NO_SYMBOL -6

// A fault of the library itself; the scope records nothing more.
#define SCALPEL_SCOPE_INTERNAL -7

// Everything that the thread, or a call, runs.
#define SCALPEL_SCOPE_FORM_ALL 0

// Only the instructions from `start` up to `end`.
#define SCALPEL_SCOPE_FORM_REGION 1

// The most faithful tier that is there.
#define SCALPEL_SCOPE_BACKEND_AUTO 0

// EFLAGS.TF and SIGTRAP in the process itself.
#define SCALPEL_SCOPE_BACKEND_SINGLE_STEP 1

// Intel Processor Trace.
#define SCALPEL_SCOPE_BACKEND_INTEL_PT 2

// AMD last branch records.
#define SCALPEL_SCOPE_BACKEND_AMD_LBR 3

// On close a folded call tree of at most 40 lines is written to file descriptor 1.
#define SCALPEL_SCOPE_EMIT_STDOUT 0

// Nothing is written.
#define SCALPEL_SCOPE_EMIT_OFF 1

// Close, or say why that is not possible.
#define SCALPEL_SCOPE_END_CLOSE 0

// For destructors: a wrong order or another thread become reasons of the trace, and the handle is gone.
#define SCALPEL_SCOPE_END_ABANDON 1

// As `ABANDON`, because the code inside is suspended (an await) and other code runs on this thread.
#define SCALPEL_SCOPE_END_SUSPEND 2

// The folded call tree, in at most `lines` lines (0 = 40).
#define SCALPEL_TRACE_TREE 0

// Each distinct instruction once, with how often it ran.
#define SCALPEL_TRACE_FULL 1

// One JSON object with every step in order.
#define SCALPEL_TRACE_JSON 2

// `mov rax, [rdi]`
#define SCALPEL_SYNTAX_INTEL 0

// `mov (%rdi), %rax`
#define SCALPEL_SYNTAX_ATT 1

// The trace of one scope. Its threads are those that you pass it to: one at a time.
struct scalpel_trace;

// How a scope is opened. All zero but `size` is a window of the default budget.
struct scalpel_scope_request {
  // `sizeof` this structure, as the caller knows it.
  uint32_t size;
  // `SCALPEL_SCOPE_FORM_*`.
  uint32_t form;
  // First address of the region.
  uint64_t start;
  // First address behind it.
  uint64_t end;
  // `SCALPEL_SCOPE_BACKEND_*`.
  uint32_t backend;
  // `SCALPEL_SCOPE_EMIT_*`.
  uint32_t emit;
  // Most traps; 0 = 100,000, which is also the most.
  uint64_t max_traps;
  // Most wall time since the open in ns; 0 = 1 s.
  uint64_t max_time_ns;
  // The call site: full path of the source, UTF-8, or null. Copied.
  const char *file;
  // Its line; 0 = not known.
  uint32_t line;
  // Its column; 0 = not known.
  uint32_t column;
};

// The address of a function.
typedef const void *scalpel_function;

// What all passes of a call site took.
struct scalpel_scope_totals {
  // `sizeof` this structure, as the caller knows it.
  uint32_t size;
  // 0.
  uint32_t reserved;
  // Scopes that were opened there, skipped ones with them.
  uint64_t passes;
  // Their traps.
  uint64_t traps;
  // What their threads ran between open and close, where they took traps, in ns.
  uint64_t time_ns;
};

// What is known of a trace. Strings live as long as the trace.
struct scalpel_trace_info {
  // `sizeof` this structure, as the caller knows it.
  uint32_t size;
  // 1 = something was recorded, and all of it: the interrupted flow of this thread, signal handlers excluded.
  uint32_t complete;
  // `SCALPEL_REASON_*` bits: why something may be missing.
  uint32_t reasons;
  // 0.
  uint32_t reserved;
  // How many instructions ran, iterations of `rep` each.
  uint64_t instructions;
  // How many steps there are: a `rep` instruction in a row is one.
  uint64_t steps;
  // How many distinct instructions.
  uint64_t distinct;
  // How many traps the scope took.
  uint64_t traps;
  // Words of `reasons`, joined by ", "; "" = none.
  const char *reasons_text;
  // Why nothing was recorded; null = something was.
  const char *skip_reason;
  // How it was seen: "single-step", "none" ...
  const char *tier;
};

// One instruction that ran.
struct scalpel_trace_step {
  // Its address.
  uint64_t addr;
  // What ran next.
  uint64_t next;
  // How often in a row: above 1 only for `rep` string instructions.
  uint32_t count;
  // Length of the instruction in bytes.
  uint8_t len;
  // Its bytes as they were when it ran; zeros behind.
  uint8_t bytes[15];
  // 0.
  uint32_t reserved;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the interface that this library has: at least the `SCALPEL_SCOPE_ABI` that you were built with.
uint32_t scalpel_scope_abi(void);

// Opens a scope on this thread and writes its handle. What cannot be recorded is no error: the trace says why
// (`skip_reason`). Every handle is to be closed once. `INVALID` opens none and writes 0.
//
// # Safety
// `request` is null or points to as many bytes as its `size` says, its `file` is null or a C string; `handle` is null
// or writable.
int32_t scalpel_scope_open(const struct scalpel_scope_request *request,
                           uint64_t *handle);

// Ends a scope (`SCALPEL_SCOPE_END_*`) and writes its trace, which is yours to free; a null `trace` is for those who do
// not want it. On an error it is set to null; after `WRONG_ORDER` and `OTHER_THREAD` the scope is still open.
//
// # Safety
// `trace` is null or writable.
int32_t scalpel_scope_close(uint64_t handle,
                            uint32_t end,
                            struct scalpel_trace **trace);

// Calls the C function at `function` with `count` integer arguments (at most 6) in a scope of its own: it is armed just
// before and closed just behind, so that nothing else is in the trace. `FORM_ALL` shows all that the call ran. `result`
// and `trace` may be null. If the call is not made, the code says why.
//
// # Safety
// As for `open` and `close`; `args` are `count` readable numbers; the function is sound with them, and it returns: it
// does not unwind or jump out.
int32_t scalpel_scope_call(const struct scalpel_scope_request *request,
                           scalpel_function function,
                           const uint64_t *args,
                           size_t count,
                           uint64_t *result,
                           struct scalpel_trace **trace);

// The scopes of this thread stand still until `resume`: the code of a binding is in no trace. Pairs nest.
void scalpel_scope_pause(void);

// Ends the last pause of this thread.
void scalpel_scope_resume(void);

// The range of the function that holds `address`, by the symbols of its file; `NO_SYMBOL` if they do not tell.
//
// # Safety
// `start` and `end` are writable, or null.
int32_t scalpel_scope_function(scalpel_function address,
                               uint64_t *start,
                               uint64_t *end);

// What all passes of the call site of `request` took.
//
// # Safety
// As for `open`; `totals` is null or points to as many bytes as its `size` says.
int32_t scalpel_scope_get_totals(const struct scalpel_scope_request *request,
                                 struct scalpel_scope_totals *totals);

// A sentence for a code, for ever.
const char *scalpel_scope_error(int32_t code);

// The word for one bit of `reasons` (0 to 31), for ever; null if this library has none for it.
const char *scalpel_scope_reason(uint32_t bit);

// What is known of the trace.
//
// # Safety
// `trace` is null or was written by `close` or `call` and is not freed; `info` is null or points to as many bytes as
// its `size` says.
int32_t scalpel_trace_get_info(const struct scalpel_trace *trace,
                               struct scalpel_trace_info *info);

// The addresses in the order they ran, each as often as it ran: at most `room` of them are written to `addrs`, and how
// many there are to `count`.
//
// # Safety
// As for `info`; `addrs` has room for as many as `room` says; `count` is writable, or null.
int32_t scalpel_trace_addresses(const struct scalpel_trace *trace,
                                uint64_t *addrs,
                                size_t room,
                                size_t *count);

// The steps from number `first` on: at most `room` of them are written to `steps`, and how many there are from `first`
// on to `count`.
//
// # Safety
// As for `addresses`.
int32_t scalpel_trace_steps(const struct scalpel_trace *trace,
                            size_t first,
                            struct scalpel_trace_step *steps,
                            size_t room,
                            size_t *count);

// The trace as text (`SCALPEL_TRACE_*`, `SCALPEL_SYNTAX_*`), UTF-8 with a closing NUL: it lives until the next text of
// this trace, or until it is freed. `lines` is for the tree. `length` may be null.
//
// # Safety
// As for `info`; `text` is writable, or null.
int32_t scalpel_trace_text(struct scalpel_trace *trace,
                           uint32_t how,
                           uint32_t syntax,
                           size_t lines,
                           const char **text,
                           size_t *length);

// Frees a trace; null is nothing.
//
// # Safety
// As for `info`; it is not used again.
void scalpel_trace_free(struct scalpel_trace *trace);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SCALPEL_SCOPE_H */
