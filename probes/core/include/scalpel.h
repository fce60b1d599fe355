/* libscalpel: what an in-process probe of scalpel writes its events with.
 *
 *     if (scalpel_connect(SCALPEL_SOURCE_C, "my runtime 1.0") != 0) return;
 *     uint32_t func = scalpel_new_function();
 *     struct scalpel_name name = {.source = SCALPEL_SOURCE_C, .line = 7, .column = UINT32_MAX, .start = UINT32_MAX,
 *                                 .end = UINT32_MAX, .name = "work", .file = "app.c"};
 *     scalpel_name_function(func, &name);
 *     uint64_t token = scalpel_enter(SCALPEL_SOURCE_C, func, frame, 0, 0, 0);
 *     ...
 *     if (token) scalpel_exit(token, SCALPEL_SOURCE_C, func, frame, 0, 0, 0);
 *
 * Nothing here unwinds, locks, or touches errno, and no call but scalpel_connect blocks (two seconds at most). Generated
 * from the sources of scalpel-probe: do not edit. MIT OR Apache-2.0. */

#ifndef SCALPEL_H
#define SCALPEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCALPEL_SOURCE_UPROBE 1
#define SCALPEL_SOURCE_SCHED 2
#define SCALPEL_SOURCE_SAMPLER 3
#define SCALPEL_SOURCE_PYTHON 4
#define SCALPEL_SOURCE_NODE 5
#define SCALPEL_SOURCE_RUBY 6
#define SCALPEL_SOURCE_PHP 7
#define SCALPEL_SOURCE_JAVA 8
#define SCALPEL_SOURCE_GO 9
#define SCALPEL_SOURCE_RUST 10
#define SCALPEL_SOURCE_DOTNET 11
#define SCALPEL_SOURCE_LUA 12
#define SCALPEL_SOURCE_C 13
#define SCALPEL_KIND_ENTER 1
#define SCALPEL_KIND_EXIT 2
#define SCALPEL_KIND_COMPLETE 3
#define SCALPEL_KIND_SUSPEND 4
#define SCALPEL_KIND_RESUME 5
#define SCALPEL_KIND_UNWIND 6
#define SCALPEL_KIND_SAMPLE 7
#define SCALPEL_KIND_SWITCH_IN 8
#define SCALPEL_KIND_SWITCH_OUT 9
#define SCALPEL_KIND_COUNT 10
#define SCALPEL_KIND_LOST 11
#define SCALPEL_KIND_THREAD_START 12
#define SCALPEL_KIND_THREAD_END 13
#define SCALPEL_FLAG_ASYNC 1
#define SCALPEL_FLAG_TAIL_CALL 2
#define SCALPEL_FLAG_INFERRED 4
#define SCALPEL_FLAG_C_FUNCTION 16
#define SCALPEL_FLAG_CLASS_BODY 32
#define SCALPEL_MODE_CALL 1
#define SCALPEL_MODE_COUNT 2
#define SCALPEL_MODE_NATIVE 4
#define SCALPEL_NAME_ASYNC 1
#define SCALPEL_NAME_GENERATOR 2
#define SCALPEL_NAME_NATIVE 4
#define SCALPEL_NAME_GENERATED 8
#define SCALPEL_NAME_CLASS_BODY 16
#define SCALPEL_NAME_MODULE 32
#define SCALPEL_NAME_ANONYMOUS 64
#define SCALPEL_NAME_STANDARD_LIBRARY 128
#define SCALPEL_NAME_THIRD_PARTY 256
#define SCALPEL_NOTE_RUNTIME 1
#define SCALPEL_NOTE_BLIND_SPOT 2
#define SCALPEL_NOTE_GAP 3
#define SCALPEL_NOTE_REFUSAL 4
#define SCALPEL_NOTE_NOTE 5
#define SCALPEL_NOTE_EXCLUDED 6


// A function as its probe knows it. Texts are UTF-8, ended by a zero byte; a null pointer is an empty text.
struct scalpel_name {
  // Number of the probe in the event format.
  uint8_t source;
  // 0.
  uint8_t reserved;
  // Flags of a name record.
  uint16_t flags;
  // First line from 1, 0 = not known.
  uint32_t line;
  // Last line, 0 = not known.
  uint32_t end_line;
  // Column of the start in UTF-16 units from 0, `UINT32_MAX` = not known.
  uint32_t column;
  // Start in the loaded text in UTF-16 units, `UINT32_MAX` = not known.
  uint32_t start;
  // End in the loaded text, `UINT32_MAX` = not known.
  uint32_t end;
  // Qualified name.
  const char *name;
  // Path or URL of the source.
  const char *file;
  // Module, class or package.
  const char *owner;
  // Hash of the body, 0 = none.
  uint64_t body_hash;
  // Hash of the loaded text, 0 = none.
  uint64_t text_hash;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Joins the recording that `$SCALPEL_SOCKET` names, once a process. 0 = joined; else why not: 1 no recording, 2 not
// reached, 3 no answer in time, 4 refused, 5 other version, 6 cannot map, 7 no clock, 8 bad argument.
//
// # Safety
// `runtime` is null or a text ended by a zero byte.
int scalpel_connect(uint8_t source,
                    const char *runtime);

// Bits of what the recording asks for (1 calls, 2 counts, 4 native functions); 0 without a recording.
uint8_t scalpel_modes(void);

// A fresh function id; 0 = none is left, or no recording.
uint32_t scalpel_new_function(void);

// Tells what an id stands for, before its first event. `false`: no room, or no recording.
//
// # Safety
// `name` is null or points to a name whose texts are null or ended by a zero byte.
bool scalpel_name_function(uint32_t func, const struct scalpel_name *name);

// Leaves a text for the reader of the result. Kinds: 1 runtime, 2 blind spot, 3 gap, 4 refusal, 5 note, 6 excluded.
//
// # Safety
// `text` is null or ended by a zero byte.
void scalpel_note(uint8_t kind,
                  uint8_t source,
                  uint64_t value,
                  const char *text);

// A number that changes when functions were switched off or on.
uint32_t scalpel_generation(void);

// Whether a function is switched off.
bool scalpel_is_off(uint32_t func);

// Adds counted calls.
void scalpel_count(uint32_t func, uint64_t calls);

// A call begins; the answer is its token, 0 = write nothing more of it.
uint64_t scalpel_enter(uint8_t source,
                       uint32_t func,
                       uint64_t frame,
                       uint64_t site,
                       uint64_t task,
                       uint16_t flags);

// A call ends.
void scalpel_exit(uint64_t token,
                  uint8_t source,
                  uint32_t func,
                  uint64_t frame,
                  uint64_t task,
                  uint64_t value,
                  uint16_t flags);

// A call ends by an exception.
void scalpel_unwind(uint64_t token,
                    uint8_t source,
                    uint32_t func,
                    uint64_t frame,
                    uint64_t task,
                    uint16_t flags);

// A call leaves its thread.
void scalpel_suspend(uint64_t token,
                     uint8_t source,
                     uint32_t func,
                     uint64_t frame,
                     uint64_t task,
                     uint16_t flags);

// A call goes on.
void scalpel_resume(uint64_t token,
                    uint8_t source,
                    uint32_t func,
                    uint64_t frame,
                    uint64_t task,
                    uint16_t flags);

// The calling thread writes no more for now.
void scalpel_release(void);

// The hash for bodies and texts; never 0.
//
// # Safety
// `bytes` points to `len` readable bytes, or `len` is 0.
uint64_t scalpel_hash(const uint8_t *bytes, uintptr_t len);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SCALPEL_H */
