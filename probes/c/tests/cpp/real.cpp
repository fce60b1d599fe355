// Real code within scopes: what it computes is what it computes without.
#include <algorithm>
#include <numeric>
#include <sstream>
#include <thread>

#include "routine.hpp"

namespace {
// The body in a window of its own.
template <class Body>
scalpel::Trace scoped(Body body) {
  scalpel::Trace trace;
  {
    const scalpel::ScopedTrace scope(quiet(), &trace);
    body();
  }
  CHECK(!trace.skip_reason());
  CHECK(trace.instructions() > 0);
  return trace;
}

struct Counts {
  int* destroyed;
  ~Counts() { ++*destroyed; }
};
}  // namespace

TEST_CASE("std::sort sorts, and is complete") {
  std::vector<int> values(60);
  std::iota(values.rbegin(), values.rend(), 0);
  const auto trace = scoped([&] { std::sort(values.begin(), values.end()); });
  CHECK(trace.complete());
  CHECK(std::is_sorted(values.begin(), values.end()));
}

TEST_CASE("iostream writes what it would") {
  std::ostringstream out;
  const auto trace = scoped([&] { out << "answer " << 42 << ' ' << 2.5 << '\n'; });
  CHECK(out.str() == "answer 42 2.5\n");
  CHECK(trace.complete());
}

TEST_CASE("an exception passes its destructors and is caught") {
  int destroyed = 0;
  std::string caught;
  const auto trace = scoped([&] {
    try {
      const Counts first{&destroyed};
      const Counts second{&destroyed};
      throw std::runtime_error("thrown");
    } catch (const std::exception& error) {
      caught = error.what();
    }
  });
  CHECK(caught == "thrown");
  CHECK(destroyed == 2);
  const bool known = trace.complete() || trace.reasons() == SCALPEL_REASON_BUDGET;
  CHECK_MESSAGE(known, trace.reasons_text());
}

TEST_CASE("an exception that leaves the scope closes it") {
  scalpel::Trace trace;
  const Routine spin(SPIN);
  CHECK_THROWS_AS(
      [&] {
        const scalpel::ScopedTrace scope(spin.code, quiet(), &trace);
        spin.run(1, 0, 0, 0, 0, 0);
        throw std::runtime_error("out");
      }(),
      std::runtime_error);
  CHECK(trace.complete());
  CHECK(spin.offsets(trace) == Offsets{0, 2, 4, 6});
}

TEST_CASE("a thread started inside is not followed, which the trace tells, and both live") {
  int sum = 0;
  const auto trace = scoped([&] {
    std::thread other([&] { sum = 42; });
    other.join();
  });
  CHECK(sum == 42);
  const bool told = trace.json().find("started inside are not followed") != std::string::npos;
  CHECK(told);
  CHECK((trace.complete() || trace.reasons() == SCALPEL_REASON_FORK_OR_EXEC));
}
