// Scopes a native function in both ways, and shows its trace.
#include <cstdio>
#include <cstdlib>

#include "scalpel.hpp"

extern "C" long triple(long value) {
  volatile long sum = 0;
  for (int turn = 0; turn < 3; turn++) sum = sum + value;
  return sum;
}

int main() {
  {
    scalpel::ScopedTrace scope(scalpel::Code::function(&triple));  // the call tree goes to stdout at the brace
    triple(14);
  }
  const auto called = scalpel::call({}, scalpel::Callee(&triple), 14);
  std::printf("%ld\n%s", called.result, called.trace.assembly().c_str());
  return called.trace.complete() ? EXIT_SUCCESS : EXIT_FAILURE;
}
