#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs our programs beside programs of others; a line for each check. `./dev test interop` calls it.

usage: run.py <folder of the programs> <file for the results> [regex of the names]

A check is skipped where a program of others is not there, and says so. The results are in the form that
tools/test_summary.py reads.
"""
import os
import pathlib
import re
import sys
import time
import unittest
import xml.etree.ElementTree as xml

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "examples")]


def name_of(test):
    """interop.<file>.<Class>.<test>"""
    module, rest = test.id().split(".", 1)
    return f"interop.{module.removesuffix('_test')}.{rest}"


class Lines(unittest.TestResult):
    """Says and writes down how each check ended."""

    def __init__(self, results):
        super().__init__()
        self.suite = xml.SubElement(results, "testsuite", name="interop")
        self.began = 0.0
        self.problems = []
        self.reason = None

    def startTest(self, test):
        super().startTest(test)
        self.began, self.problems, self.reason = time.monotonic(), [], None

    def addError(self, test, err):
        super().addError(test, err)
        self.problems.append(self.errors[-1][1])
        if not isinstance(test, unittest.TestCase):  # of a class or a module
            self.stopTest(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.problems.append(self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.problems.append(f"{subtest}\n{self._exc_info_to_string(err, test)}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.reason = reason

    def stopTest(self, test):
        state = "fail" if self.problems else "notrun" if self.reason else "run"
        name = name_of(test) if isinstance(test, unittest.TestCase) else f"interop.{test.id()}"
        taken = time.monotonic() - self.began
        xml.SubElement(self.suite, "testcase", name=name, status=state, time=f"{taken:.3f}")
        word = {"fail": "FAILED ", "notrun": "skipped", "run": "passed "}[state]
        print(f"{word} {taken:6.1f} s  {name}" + (f" ({self.reason})" if self.reason else ""),
              *self.problems, sep="\n", flush=True)


def selected(suite, pattern):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from selected(each, pattern)
        elif re.search(pattern, name_of(each)):
            yield each


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    target = sys.argv.pop(2)
    pattern = sys.argv.pop(2) if len(sys.argv) == 3 else ""
    tests = unittest.defaultTestLoader.discover(str(HERE), pattern="*_test.py")
    results = xml.Element("testsuites")
    outcome = Lines(results)
    unittest.TestSuite(selected(tests, pattern)).run(outcome)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    xml.ElementTree(results).write(target)
    return 0 if outcome.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
