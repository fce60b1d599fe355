// What the surface promises: forms, order, threads, versions, off.
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "routine.hpp"

using scalpel::ScopedTrace;

extern "C" long forty_two(long value) { return value * 2; }

// In a process of its own: the environment is read once, at the first open.
TEST_CASE("off") {
  if (std::getenv("SCALPEL_SCOPE") == nullptr) return;
  const auto called = scalpel::call(quiet(), scalpel::Callee(&forty_two), 21);
  CHECK(called.result == 42);
  CHECK(called.trace.skip_reason() == std::string("SCALPEL_SCOPE=off"));
  CHECK(!called.trace.complete());
  CHECK(!handled());
}

TEST_CASE("nothing is installed while scopes are off") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  CHECK(std::system(("SCALPEL_SCOPE=off " + self + " --test-case=off --minimal").c_str()) == 0);
}

TEST_CASE("destructors cannot throw, and scopes cannot be copied") {
  static_assert(std::is_nothrow_destructible_v<ScopedTrace>);
  static_assert(!std::is_copy_constructible_v<ScopedTrace> && !std::is_move_constructible_v<ScopedTrace>);
  static_assert(std::is_nothrow_move_constructible_v<scalpel::Trace>);
  CHECK(scalpel_scope_abi() == SCALPEL_SCOPE_ABI);
}

TEST_CASE("a function is found by its symbol") {
  const auto code = scalpel::Code::function(&forty_two);
  CHECK(code.start == reinterpret_cast<std::uintptr_t>(&forty_two));
  CHECK(code.end > code.start);
  CHECK_THROWS_AS(scalpel::Code::function(reinterpret_cast<const void*>(8)), scalpel::ScopeError);
}

TEST_CASE("a window shows what the thread runs") {
  const Routine spin(SPIN);
  ScopedTrace scope(quiet());
  spin.run(2, 0, 0, 0, 0, 0);
  const auto trace = scope.close();
  CHECK(trace.complete());
  Offsets inside;
  for (auto offset : spin.offsets(trace))
    if (offset < spin.code.end - spin.code.start) inside.push_back(offset);
  CHECK(inside == Offsets{0, 2, 4, 2, 4, 6});
}

TEST_CASE("a double close is an error") {
  const Routine spin(SPIN);
  ScopedTrace scope(spin.code, quiet());
  spin.run(1, 0, 0, 0, 0, 0);
  CHECK(scope.close().complete());
  CHECK_THROWS_AS(scope.close(), scalpel::AlreadyClosed);
}

TEST_CASE("a wrong order is an error and a reason") {
  const Routine spin(SPIN);
  scalpel::Trace lost;
  auto outer = std::make_unique<ScopedTrace>(spin.code, quiet(), &lost);
  ScopedTrace inner(spin.code, quiet());
  CHECK_THROWS_AS(outer->close(), scalpel::WrongOrder);
  outer.reset();
  spin.run(1, 0, 0, 0, 0, 0);
  const auto trace = inner.close();
  CHECK((lost.reasons() & SCALPEL_REASON_WRONG_ORDER) != 0);
  CHECK(spin.offsets(trace) == Offsets{0, 2, 4, 6});
}

TEST_CASE("a close on another thread is an error and a reason") {
  const Routine spin(SPIN);
  for (int turn = 0; turn < 20; turn++) {
    scalpel::Trace lost;
    auto scope = std::make_unique<ScopedTrace>(spin.code, quiet(), &lost);
    scalpel_scope_pause();
    bool refused = false;
    std::thread([&] {
      try {
        scope->close();
      } catch (const scalpel::OtherThread&) {
        refused = true;
      }
      scope.reset();
    }).join();
    scalpel_scope_resume();
    CHECK(refused);
    CHECK((lost.reasons() & SCALPEL_REASON_THREAD_HOP) != 0);
    CHECK(!lost.complete());
    const auto again = scalpel::call(quiet(), scalpel::Callee(spin.run), 1, 0, 0, 0, 0, 0);
    CHECK(spin.offsets(again.trace) == Offsets{0, 2, 4, 6});
    CHECK(again.trace.complete());
  }
}

TEST_CASE("sixteen nest and the seventeenth is skipped, and ends no other") {
  const Routine spin(SPIN);
  std::vector<scalpel::Trace> traces(17);
  std::vector<std::unique_ptr<ScopedTrace>> scopes;
  for (auto& trace : traces) scopes.push_back(std::make_unique<ScopedTrace>(spin.code, quiet(), &trace));
  spin.run(1, 0, 0, 0, 0, 0);
  while (!scopes.empty()) scopes.pop_back();
  REQUIRE(traces[16].skip_reason());
  CHECK(traces[16].skip_reason()->find("16") != std::string::npos);
  for (int at = 0; at < 16; at++) {
    CHECK(traces[at].complete());
    CHECK(spin.offsets(traces[at]) == Offsets{0, 2, 4, 6});
  }
}

TEST_CASE("a tier that is asked for by name is never replaced") {
  const Routine spin(SPIN);
  for (auto backend : {scalpel::HwBackend::IntelPt, scalpel::HwBackend::AmdLbr}) {
    auto options = quiet();
    options.backend = backend;
    const auto called = scalpel::call(options, scalpel::Callee(spin.run), 1, 0, 0, 0, 0, 0);
    CHECK(called.trace.tier() != "single-step");
    CHECK(called.trace.skip_reason().has_value() == (called.trace.tier() == "none"));
  }
}

TEST_CASE("a spent budget really stops") {
  const Routine spin(SPIN);
  auto options = quiet();
  options.max_traps = 500;
  const auto called = scalpel::call(options, scalpel::Callee(spin.run), 100000000, 0, 0, 0, 0, 0);
  CHECK(called.trace.reasons() == SCALPEL_REASON_BUDGET);
  CHECK(called.trace.traps() <= 501);
}

TEST_CASE("two threads at once are exact") {
  std::vector<int> wrong(2);
  const auto work = [](int* bad) {
    const Routine spin(SPIN);
    for (std::uint64_t turns = 1; turns < 60; turns++) {
      const auto called = scalpel::call(quiet(), scalpel::Callee(spin.run), turns, 0, 0, 0, 0, 0);
      *bad += called.trace.complete() && called.trace.instructions() == 2 + 2 * turns ? 0 : 1;
    }
  };
  std::thread one(work, &wrong[0]), two(work, &wrong[1]);
  one.join();
  two.join();
  CHECK(wrong == std::vector<int>{0, 0});
}

TEST_CASE("the pid and errno of the program are its own") {
  const Routine spin(SPIN);
  errno = 7;
  {
    const ScopedTrace scope(spin.code, quiet());
    spin.run(1, 0, 0, 0, 0, 0);
  }
  CHECK(errno == 7);
}

TEST_CASE("handles, sizes and arguments that are wrong are refused") {
  std::uint64_t handle = 9;
  scalpel_scope_request request{};
  CHECK(scalpel_scope_open(&request, &handle) == SCALPEL_SCOPE_INVALID);
  CHECK(handle == 0);
  CHECK(scalpel_scope_open(nullptr, &handle) == SCALPEL_SCOPE_INVALID);
  request.size = sizeof request;
  CHECK(scalpel_scope_open(&request, nullptr) == SCALPEL_SCOPE_INVALID);
  for (std::uint32_t wrong : {1U, 2U, 99U}) {
    request.form = wrong;  // a region of nothing, and forms that are not there
    CHECK(scalpel_scope_open(&request, &handle) == SCALPEL_SCOPE_INVALID);
  }
  request.form = SCALPEL_SCOPE_FORM_ALL;
  request.backend = 77;
  CHECK(scalpel_scope_open(&request, &handle) == SCALPEL_SCOPE_INVALID);
  for (std::uint64_t stale : {std::uint64_t{0}, std::uint64_t{5}, ~std::uint64_t{0}}) {
    scalpel_trace* trace = nullptr;
    CHECK(scalpel_scope_close(stale, SCALPEL_SCOPE_END_ABANDON, &trace) == SCALPEL_SCOPE_NO_SUCH_SCOPE);
    CHECK(trace == nullptr);
  }
  CHECK(scalpel_scope_call(&request, nullptr, nullptr, 0, nullptr, nullptr) == SCALPEL_SCOPE_INVALID);
  scalpel_trace_info info{};
  CHECK(scalpel_trace_get_info(nullptr, &info) == SCALPEL_SCOPE_INVALID);
  scalpel_trace_free(nullptr);
  CHECK(std::string(scalpel_scope_reason(2)) == "budget");
  CHECK(scalpel_scope_reason(29) == nullptr);
  CHECK(scalpel_scope_reason(4000) == nullptr);
}

TEST_CASE("a structure of an older version is read and written in part") {
  // A request that ends behind `emit`, and nothing readable behind it that would make sense.
  struct Old {
    std::uint32_t size, form;
    std::uint64_t start, end;
    std::uint32_t backend, emit;
    unsigned char other[64];
  } old{};
  std::memset(old.other, 0xff, sizeof old.other);
  old.size = offsetof(Old, other);
  old.emit = SCALPEL_SCOPE_EMIT_OFF;
  std::uint64_t handle = 0;
  scalpel_trace* trace = nullptr;
  REQUIRE(scalpel_scope_open(reinterpret_cast<scalpel_scope_request*>(&old), &handle) == SCALPEL_SCOPE_OK);
  REQUIRE(scalpel_scope_close(handle, SCALPEL_SCOPE_END_CLOSE, &trace) == SCALPEL_SCOPE_OK);
  scalpel_trace_info info{};
  info.size = offsetof(scalpel_trace_info, reasons);
  info.reasons = 0xdead;
  CHECK(scalpel_trace_get_info(trace, &info) == SCALPEL_SCOPE_OK);
  CHECK(info.complete == 1);
  CHECK(info.reasons == 0xdead);
  CHECK(info.size == offsetof(scalpel_trace_info, reasons));
  scalpel_trace_free(trace);
}

TEST_CASE("renderings say what ran, and where the scope stood") {
  const Routine spin(SPIN);
  std::FILE* file = std::tmpfile();
  auto options = quiet();
  options.emit = file;
  const auto called = scalpel::call(options, scalpel::Callee(spin.run), 3, 0, 0, 0, 0, 0);
  const int line = __LINE__ - 1;
  std::rewind(file);
  char told[512] = {};
  CHECK(std::fread(told, 1, sizeof told - 1, file) > 0);
  std::fclose(file);
  CHECK(std::string(told).rfind("scope " __FILE__ ":" + std::to_string(line), 0) == 0);
  CHECK(called.trace.assembly().find("dec ecx x3") != std::string::npos);
  CHECK(called.trace.assembly(scalpel::Syntax::Att).find("decl %ecx x3") != std::string::npos);
  CHECK(nlohmann::json::parse(called.trace.json()).at("status") == "complete");
}
