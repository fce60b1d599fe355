"""Runs the tests for one interpreter: ``python tests``, with the environment that ``support`` reads.

Prints each test, and a closing line in the form of cargo's test runner.
"""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    """Run all tests, or those named."""
    sys.path.insert(0, HERE)
    loader = unittest.TestLoader()
    names = sys.argv[1:]
    suite = loader.loadTestsFromNames(names) if names else loader.discover(HERE)
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    passed = result.testsRun - failed - skipped
    word = "FAILED" if failed else "ok"
    print("test result: %s. %d passed; %d failed; %d ignored" % (word, passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
