// scalpel scopes for C++17: the exact instructions of one region of a running thread. Header only, over scalpel_scope.h.
//
//     {
//         scalpel::ScopedTrace scope(scalpel::Code::function(&hot_path));  // named by this line, closed by the brace
//         hot_path(data);
//     }
//
// A trace is complete, or truncated for named reasons; never a part that looks like all. MIT OR Apache-2.0.
#ifndef SCALPEL_HPP
#define SCALPEL_HPP

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "scalpel_scope.h"

// Clang knows the column of a call; GCC does not.
#if defined(__has_builtin)
#if __has_builtin(__builtin_COLUMN)
#define SCALPEL_COLUMN __builtin_COLUMN()
#endif
#endif
#ifndef SCALPEL_COLUMN
#define SCALPEL_COLUMN 0
#endif

namespace scalpel {

// How instructions are seen. One that is asked for by name is used, or skipped with the reason, never replaced.
enum class HwBackend : std::uint32_t {
  Auto = SCALPEL_SCOPE_BACKEND_AUTO,
  SingleStep = SCALPEL_SCOPE_BACKEND_SINGLE_STEP,
  IntelPt = SCALPEL_SCOPE_BACKEND_INTEL_PT,
  AmdLbr = SCALPEL_SCOPE_BACKEND_AMD_LBR,
};

enum class Syntax : std::uint32_t { Intel = SCALPEL_SYNTAX_INTEL, Att = SCALPEL_SYNTAX_ATT };

// A scope that cannot be closed; `code()` is one of SCALPEL_SCOPE_*.
class ScopeError : public std::runtime_error {
 public:
  explicit ScopeError(std::int32_t code) : std::runtime_error(scalpel_scope_error(code)), code_(code) {}
  std::int32_t code() const noexcept { return code_; }

 private:
  std::int32_t code_;
};
class AlreadyClosed : public ScopeError { using ScopeError::ScopeError; };
class WrongOrder : public ScopeError { using ScopeError::ScopeError; };
class OtherThread : public ScopeError { using ScopeError::ScopeError; };

namespace detail {
inline void check(std::int32_t code) {
  switch (code) {
    case SCALPEL_SCOPE_OK: return;
    case SCALPEL_SCOPE_ALREADY_CLOSED: throw AlreadyClosed(code);
    case SCALPEL_SCOPE_WRONG_ORDER: throw WrongOrder(code);
    case SCALPEL_SCOPE_OTHER_THREAD: throw OtherThread(code);
    default: throw ScopeError(code);
  }
}
// The scopes of this thread stand still while the code of this header runs: it is in no trace.
struct Pause {
  Pause() noexcept { scalpel_scope_pause(); }
  ~Pause() { scalpel_scope_resume(); }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;
};
}  // namespace detail

// Native code from one address up to another.
struct Code {
  std::uint64_t start = 0;
  std::uint64_t end = 0;

  static Code range(const void* start, std::size_t length) noexcept {
    const auto from = reinterpret_cast<std::uintptr_t>(start);
    return {from, from + length};
  }
  // The whole function, as its file's symbols say. Throws ScopeError if no symbol of known size is there.
  static Code function(const void* address) {
    Code code;
    detail::check(scalpel_scope_function(address, &code.start, &code.end));
    return code;
  }
  template <class Result, class... Args>
  static Code function(Result (*address)(Args...)) {
    return function(reinterpret_cast<const void*>(address));
  }
};

// How a scope is opened.
struct Options {
  HwBackend backend = HwBackend::Auto;
  // On close a folded call tree of at most 40 lines is written here; nullptr = nothing.
  std::FILE* emit = stdout;
  // 0 = 100,000, which is also the most.
  std::uint64_t max_traps = 0;
  // Since the open; 0 = 1 s.
  std::chrono::nanoseconds max_time{0};
};

// What one scope brought back.
class Trace {
 public:
  Trace() noexcept = default;
  // Takes over what scalpel_scope_close wrote.
  explicit Trace(scalpel_trace* raw) noexcept : raw_(raw) {
    info_.size = sizeof info_;
    scalpel_trace_get_info(raw, &info_);
  }

  // Whether there is one: false before the close.
  explicit operator bool() const noexcept { return raw_ != nullptr; }
  // Something was recorded, and all of it: the interrupted flow of this thread, signal handlers excluded.
  bool complete() const noexcept { return info_.complete != 0; }
  // Something may be missing: see reasons().
  bool truncated() const noexcept { return info_.reasons != 0; }
  // SCALPEL_REASON_* bits.
  std::uint32_t reasons() const noexcept { return info_.reasons; }
  // Their words, joined by ", ".
  std::string reasons_text() const { return text(info_.reasons_text); }
  // Why nothing was recorded; nothing if something was.
  std::optional<std::string> skip_reason() const {
    if (info_.skip_reason == nullptr) return std::nullopt;
    return std::string(info_.skip_reason);
  }
  // How it was seen: "single-step", "none" ...
  std::string tier() const { return text(info_.tier); }
  // How many instructions ran, iterations of `rep` each.
  std::uint64_t instructions() const noexcept { return info_.instructions; }
  std::uint64_t traps() const noexcept { return info_.traps; }

  // The addresses in the order they ran, each as often as it ran.
  std::vector<std::uint64_t> addresses() const {
    return all<std::uint64_t>([this](std::uint64_t* to, std::size_t room, std::size_t* count) {
      return scalpel_trace_addresses(raw_.get(), to, room, count);
    });
  }
  // The instructions in the order they ran; a repeated `rep` is one step.
  std::vector<scalpel_trace_step> steps() const {
    return all<scalpel_trace_step>([this](scalpel_trace_step* to, std::size_t room, std::size_t* count) {
      return scalpel_trace_steps(raw_.get(), 0, to, room, count);
    });
  }
  // The folded call tree.
  std::string tree(std::size_t lines = 40) const { return rendered(SCALPEL_TRACE_TREE, Syntax::Intel, lines); }
  // The assembly that ran, each instruction once, with how often it ran.
  std::string assembly(Syntax syntax = Syntax::Intel) const { return rendered(SCALPEL_TRACE_FULL, syntax, 0); }
  // One JSON object with every step in order.
  std::string json(Syntax syntax = Syntax::Intel) const { return rendered(SCALPEL_TRACE_JSON, syntax, 0); }

 private:
  struct Free {
    void operator()(scalpel_trace* raw) const noexcept { scalpel_trace_free(raw); }
  };

  static std::string text(const char* from) { return from == nullptr ? std::string() : std::string(from); }

  template <class Item, class Fill>
  std::vector<Item> all(Fill fill) const {
    const detail::Pause pause;
    std::size_t count = 0;
    if (raw_ == nullptr) return {};
    detail::check(fill(nullptr, 0, &count));
    std::vector<Item> items(count);
    detail::check(fill(items.data(), items.size(), &count));
    return items;
  }

  std::string rendered(std::uint32_t how, Syntax syntax, std::size_t lines) const {
    const detail::Pause pause;
    const char* from = nullptr;
    std::size_t length = 0;
    if (raw_ == nullptr) return {};
    detail::check(
        scalpel_trace_text(raw_.get(), how, static_cast<std::uint32_t>(syntax), lines, &from, &length));
    return std::string(from, length);
  }

  std::unique_ptr<scalpel_trace, Free> raw_;
  scalpel_trace_info info_{};
};

namespace detail {
struct Place {
  const char* file;
  int line;
  int column;
};

inline scalpel_scope_request request(const Options& options, const Place& place) noexcept {
  scalpel_scope_request made{};
  made.size = sizeof made;
  made.backend = static_cast<std::uint32_t>(options.backend);
  made.emit = SCALPEL_SCOPE_EMIT_OFF;
  made.max_traps = options.max_traps;
  made.max_time_ns = options.max_time.count() > 0 ? static_cast<std::uint64_t>(options.max_time.count()) : 0;
  made.file = place.file;
  made.line = static_cast<std::uint32_t>(place.line);
  made.column = static_cast<std::uint32_t>(place.column);
  return made;
}

// A destructor must not throw: what cannot be written is not.
inline void emit(std::FILE* to, const Place& place, const Trace& trace) noexcept {
  if (to == nullptr) return;
  try {
    std::fprintf(to, "scope %s:%d\n%s", place.file, place.line, trace.tree().c_str());
  } catch (...) {
  }
}
}  // namespace detail

// A scope: opened here, closed by close() or by its destructor, on the same thread. It cannot be copied or moved.
class ScopedTrace {
 public:
  // Everything that this thread runs, within the budget.
  explicit ScopedTrace(const Options& options = {}, Trace* to = nullptr, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE(), int column = SCALPEL_COLUMN)
      : ScopedTrace(std::nullopt, options, to, {file, line, column}) {}

  // The instructions of `code`. When the destructor closes it, the trace is put at `to`, unless that is null.
  explicit ScopedTrace(const Code& code, const Options& options = {}, Trace* to = nullptr,
                       const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                       int column = SCALPEL_COLUMN)
      : ScopedTrace(std::optional<Code>(code), options, to, {file, line, column}) {}

  ScopedTrace(const ScopedTrace&) = delete;
  ScopedTrace& operator=(const ScopedTrace&) = delete;

  // What is wrong (another thread, a wrong order) is a reason of the trace.
  ~ScopedTrace() noexcept {
    const detail::Pause pause;
    if (handle_ == 0) return;
    scalpel_trace* raw = nullptr;
    if (scalpel_scope_close(handle_, SCALPEL_SCOPE_END_ABANDON, &raw) != SCALPEL_SCOPE_OK) return;
    Trace trace(raw);
    detail::emit(emit_, place_, trace);
    if (to_ != nullptr) *to_ = std::move(trace);
  }

  // Ends the scope. Throws AlreadyClosed, WrongOrder or OtherThread; after the last two it is still open.
  Trace close() {
    const detail::Pause pause;
    if (handle_ == 0) throw AlreadyClosed(SCALPEL_SCOPE_ALREADY_CLOSED);
    scalpel_trace* raw = nullptr;
    detail::check(scalpel_scope_close(handle_, SCALPEL_SCOPE_END_CLOSE, &raw));
    handle_ = 0;
    Trace trace(raw);
    detail::emit(emit_, place_, trace);
    return trace;
  }

 private:
  ScopedTrace(const std::optional<Code>& code, const Options& options, Trace* to, const detail::Place& place)
      : to_(to), emit_(options.emit), place_(place) {
    scalpel_scope_request asked = detail::request(options, place);
    if (code) {
      asked.form = SCALPEL_SCOPE_FORM_REGION;
      asked.start = code->start;
      asked.end = code->end;
    }
    detail::check(scalpel_scope_open(&asked, &handle_));
  }

  std::uint64_t handle_ = 0;
  Trace* to_;
  std::FILE* emit_;
  detail::Place place_;
};

// What a call brought back.
template <class Result>
struct Called {
  Result result;
  Trace trace;
};

// A C function and where it is called: what call() takes, so that the place can be a default argument.
template <class Result, class... Args>
struct Callee {
  Callee(Result (*function)(Args...), const char* file = __builtin_FILE(), int line = __builtin_LINE(),
         int column = SCALPEL_COLUMN) noexcept
      : function(function), place{file, line, column} {}
  Result (*function)(Args...);
  detail::Place place;
};

// Calls a C function of at most six integers or pointers in a scope of its own, and nothing else in it. The function
// returns: it does not throw or jump out.
template <class Result, class... Args>
Called<Result> call(const Options& options, const Callee<Result, Args...>& callee,
                    std::common_type_t<Args>... args) {
  static_assert(sizeof...(Args) <= 6, "a traced call has at most six arguments");
  static_assert(((std::is_integral_v<Args> || std::is_pointer_v<Args>) && ...), "integers and pointers only");
  static_assert(std::is_integral_v<Result> || std::is_pointer_v<Result>, "an integer or a pointer");
  const detail::Pause pause;
  // As registers hold them: sign-extended where they are signed.
  const std::array<std::uint64_t, 6> six{{(std::uint64_t)(args)...}};
  const scalpel_scope_request asked = detail::request(options, callee.place);
  std::uint64_t result = 0;
  scalpel_trace* raw = nullptr;
  detail::check(scalpel_scope_call(&asked, reinterpret_cast<const void*>(callee.function), six.data(),
                                   sizeof...(Args), &result, &raw));
  Trace trace(raw);
  detail::emit(options.emit, callee.place, trace);
  return {(Result)(result), std::move(trace)};
}

}  // namespace scalpel

#endif  // SCALPEL_HPP
