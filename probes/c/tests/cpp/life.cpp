// Scopes by the thousand, and processes with less: nothing is left behind.
#include <dirent.h>
#include <dlfcn.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "routine.hpp"

namespace {
void become_nobody() {
  if (setgroups(0, nullptr) != 0 || setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)
    _exit(3);
  // As a program that nobody has started.
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

void deny() {
  const sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 298, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 321, 2, 0),  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 101, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
  };
  const sock_fprog program = {sizeof rules / sizeof rules[0], const_cast<sock_filter*>(rules)};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(3);
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != -1) _exit(4);
}

std::string line_of(const char* path, const std::string& head) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(head, 0) == 0) return line.substr(head.size());
  return {};
}

struct Left {
  long descriptors = 0;
  long mappings = 0;
  long kib = 0;
};

Left left() {
  Left now;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) now.descriptors++;
  closedir(folder);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) now.mappings++;
  now.kib = std::stol(line_of("/proc/self/status", "VmRSS:"));
  return now;
}
}  // namespace

bool handled() { return (std::stoull(line_of("/proc/self/status", "SigCgt:"), nullptr, 16) & 1 << 4) != 0; }

bool in_child(const std::string& gate, const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (gate == "nobody") become_nobody();
    if (gate == "seccomp") deny();
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("the corpus is exact as nobody, without a capability") {
  if (getuid() != 0) {
    MESSAGE("skipped: only root can become nobody");
    return;
  }
  CHECK(in_child("nobody", [] {
    const Tally tally = replay();
    return tally.of > 30 && tally.exact == tally.of;
  }));
}

TEST_CASE("the corpus is exact under a filter that denies perf, bpf and ptrace") {
  CHECK(in_child("seccomp", [] {
    const Tally tally = replay();
    return tally.of > 30 && tally.exact == tally.of;
  }));
}

TEST_CASE("a second engine of the process refuses, and leaves the first one exact") {
  const std::string copy = "/tmp/scalpel_scope_second." + std::to_string(getpid()) + ".so";
  {
    std::ifstream from(LIBRARY, std::ios::binary);
    std::ofstream to(copy, std::ios::binary);
    to << from.rdbuf();
  }
  void* second = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(copy.c_str());
  REQUIRE(second != nullptr);
  const auto open = reinterpret_cast<decltype(&scalpel_scope_open)>(dlsym(second, "scalpel_scope_open"));
  const auto close = reinterpret_cast<decltype(&scalpel_scope_close)>(dlsym(second, "scalpel_scope_close"));
  const auto info = reinterpret_cast<decltype(&scalpel_trace_get_info)>(dlsym(second, "scalpel_trace_get_info"));
  const auto release = reinterpret_cast<decltype(&scalpel_trace_free)>(dlsym(second, "scalpel_trace_free"));
  const bool two = open != &scalpel_scope_open;
  REQUIRE(two);
  // Why a window of the second engine records nothing.
  const auto refused = [&] {
    scalpel_scope_request request = {};
    request.size = sizeof request;
    request.emit = SCALPEL_SCOPE_EMIT_OFF;
    std::uint64_t handle = 0;
    scalpel_trace* trace = nullptr;
    if (open(&request, &handle) != 0 || close(handle, SCALPEL_SCOPE_END_CLOSE, &trace) != 0) return std::string("no");
    scalpel_trace_info told = {};
    told.size = sizeof told;
    info(trace, &told);
    const std::string why = told.skip_reason != nullptr ? told.skip_reason : "";
    release(trace);
    return why;
  };
  const Routine spin(SPIN);
  const auto first = [&](bool within) {
    scalpel::Trace trace;
    std::string told;
    {
      const scalpel::ScopedTrace scope(spin.code, quiet(), &trace);
      spin.run(1, 0, 0, 0, 0, 0);
      if (within) told = refused();
      spin.run(1, 0, 0, 0, 0, 0);
    }
    CHECK(trace.complete());
    CHECK(trace.instructions() == 8);
    return told;
  };
  first(false);
  const std::string outside = refused();
  CHECK(outside.find("another copy of the scope engine") == 0);
  CHECK(first(true).find("another copy of the scope engine") == 0);
  CHECK(refused() == outside);
  first(false);
}

TEST_CASE("a thousand scopes leave nothing") {
  const Routine spin(SPIN);
  const auto once = [&] {
    scalpel::Trace trace;
    {
      const scalpel::ScopedTrace scope(spin.code, quiet(), &trace);
      spin.run(1, 0, 0, 0, 0, 0);
    }
    return trace.complete() && trace.instructions() == 4;
  };
  for (int turn = 0; turn < 50; turn++) REQUIRE(once());
  const Left before = left();
  for (int turn = 0; turn < 1000; turn++) REQUIRE(once());
  const Left after = left();
  CHECK(after.descriptors == before.descriptors);
  CHECK(after.mappings <= before.mappings + 2);
  CHECK(after.kib <= before.kib + 1024);
}

TEST_CASE("a million passes of one site are bounded") {
  const Routine spin(SPIN);
  scalpel::Trace last;
  scalpel::Options options = quiet();
  const auto passes = [&](int times) {
    for (int turn = 0; turn < times; turn++) {
      const scalpel::ScopedTrace scope(spin.code, options, &last);
      spin.run(400, 0, 0, 0, 0, 0);
    }
  };
  passes(2000);
  const Left before = left();
  passes(998000);
  const Left after = left();
  CHECK(after.kib <= before.kib + 1024);
  CHECK(after.mappings <= before.mappings + 2);
  REQUIRE(last.skip_reason());
  CHECK(last.skip_reason()->rfind("budget spent", 0) == 0);
}
