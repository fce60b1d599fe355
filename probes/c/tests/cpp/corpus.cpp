// Every routine of the conformance corpus, in the call form and as a region.
#include "routine.hpp"

namespace {
nlohmann::json corpus() {
  std::ifstream file(CORPUS);
  return nlohmann::json::parse(file).at("routines");
}

bool exact(const Routine& routine, const nlohmann::json& run, std::uint64_t result, const scalpel::Trace& trace) {
  nlohmann::json steps = nlohmann::json::array();
  for (const auto& step : trace.steps()) {
    steps.push_back({step.addr - routine.code.start, step.count});
    const void* there = reinterpret_cast<const void*>(step.addr);
    if (std::memcmp(there, step.bytes, step.len) != 0) return false;
  }
  const auto wanted = run.at("result");
  const bool right = wanted.is_null() || result == std::stoull(wanted.get<std::string>(), nullptr, 16);
  return right && trace.complete() && !trace.truncated() && !trace.skip_reason() &&
         trace.tier() == "single-step" && steps == run.at("steps") &&
         trace.instructions() == run.at("instructions").get<std::uint64_t>();
}
}  // namespace

Tally replay() {
  Tally tally;
  for (const auto& given : corpus()) {
    const Routine routine(given.at("bytes").get<std::string>());
    for (const auto& run : given.at("runs")) {
      const auto a = run.at("args").get<std::vector<std::uint64_t>>();
      auto [result, trace] =
          scalpel::call(quiet(), scalpel::Callee(routine.run), a[0], a[1], a[2], a[3], a[4], a[5]);
      bool both = exact(routine, run, result, trace);
      scalpel::Trace region;
      {
        const scalpel::ScopedTrace scope(routine.code, quiet(), &region);
        result = routine.run(a[0], a[1], a[2], a[3], a[4], a[5]);
      }
      both = both && exact(routine, run, result, region);
      if (!both) MESSAGE("not exact: " << given.at("name") << ": " << trace.reasons_text() << region.reasons_text());
      tally.exact += both ? 1 : 0;
      tally.of += 1;
    }
  }
  return tally;
}

TEST_CASE("the corpus is exact, as calls and as regions") {
  const Tally tally = replay();
  CHECK(tally.exact == tally.of);
  CHECK(tally.of > 30);
}
