// What the tests share: routines in executable memory, the corpus, and processes with less.
#pragma once
#include <sys/mman.h>

#include <cstring>
#include <doctest/doctest.h>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "scalpel.hpp"

// Time is no matter here: other work may run on this machine.
inline scalpel::Options quiet() {
  scalpel::Options options;
  options.emit = nullptr;
  options.max_time = std::chrono::seconds(60);
  return options;
}

struct Routine {
  using Run = std::uint64_t (*)(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                                std::uint64_t);
  Run run;
  scalpel::Code code;

  explicit Routine(const std::string& hex) {
    std::vector<unsigned char> bytes;
    for (std::size_t at = 0; at + 1 < hex.size(); at += 2)
      bytes.push_back(static_cast<unsigned char>(std::stoi(hex.substr(at, 2), nullptr, 16)));
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    std::memcpy(memory, bytes.data(), bytes.size());
    run = reinterpret_cast<Run>(memory);
    code = scalpel::Code::range(memory, bytes.size());
  }

  std::vector<std::uint64_t> offsets(const scalpel::Trace& trace) const {
    std::vector<std::uint64_t> all = trace.addresses();
    for (auto& addr : all) addr -= code.start;
    return all;
  }
};

// mov ecx, edi; dec ecx; jnz; ret: 2 + 2n instructions.
inline const char* const SPIN = "89f9ffc975fcc3";
using Offsets = std::vector<std::uint64_t>;

// In a forked child, after it gave up what `gate` says: what `work` answers.
bool in_child(const std::string& gate, const std::function<bool()>& work);
// Whether SIGTRAP has a handler.
bool handled();
// How many runs of the corpus there are, and are exact.
struct Tally {
  std::size_t exact = 0;
  std::size_t of = 0;
};
Tally replay();
