#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs examples/loop_demo: what it prints, how it stops, and its exit codes.

usage: loop_demo_test.py <program>
"""
import os
import pty
import re
import signal
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)
LIMIT = 100  # seconds to fail by
READY = re.compile(r"^running \d+ loops, \w+; Ctrl-C stops$", re.MULTILINE)
FIGURES = re.compile(r"^ +\d+ s: [1-9]\d* tasks, [1-9]\d* timers, \d+ events, \d+ wakeups, "
                     r"\d+ rings of a bell$", re.MULTILINE)
STOPPED = re.compile(r"^stopped: [1-9]\d* tasks ran, \d+ timers cancelled, (\d) watches closed$",
                     re.MULTILINE)


def run(*flags):
    return subprocess.run([PROGRAM, *flags], capture_output=True, text=True, timeout=LIMIT,
                          check=False)


class LoopDemo(unittest.TestCase):
    def test_runs_for_the_seconds_it_is_told(self):
        result = run("--seconds", "1", "--loops", "2")

        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, READY)
        self.assertIn("running 2 loops, epoll;", result.stdout)
        self.assertRegex(result.stdout, FIGURES)
        self.assertEqual(STOPPED.search(result.stdout)[1], "1")

    def test_uses_the_engine_it_is_told(self):
        for engine, watches in ("poll", "1"), ("parking", "0"):
            with self.subTest(engine):
                result = run("--seconds", "1", "--io", engine, "--loops", "1", "--quiet")

                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(f"running 1 loops, {engine};", result.stdout)
                self.assertNotRegex(result.stdout, FIGURES)
                self.assertEqual(STOPPED.search(result.stdout)[1], watches)

    def test_stops_gracefully_on_signals(self):
        for number in signal.SIGINT, signal.SIGTERM:
            with self.subTest(number.name):
                with subprocess.Popen([PROGRAM, "--loops", "1"], stdout=subprocess.PIPE,
                                      text=True) as demo:
                    self.assertRegex(demo.stdout.readline(), READY)
                    demo.send_signal(number)
                    rest, _ = demo.communicate(timeout=LIMIT)

                self.assertEqual(demo.returncode, 0)
                self.assertRegex(rest, r"(?m)^stopped: ")

    def test_shows_a_table_on_a_terminal(self):
        try:
            ours, theirs = pty.openpty()
        except OSError as error:  # a chroot without /dev/pts
            self.skipTest(str(error))
        with subprocess.Popen([PROGRAM, "--seconds", "1", "--loops", "2"], stdout=theirs,
                              stderr=theirs) as demo:
            os.close(theirs)
            shown = b""
            try:
                while chunk := os.read(ours, 65536):
                    shown += chunk
            except OSError:  # how a terminal says that the other side is gone
                pass
        os.close(ours)

        self.assertEqual(demo.returncode, 0)
        self.assertIn(b"\x1b[H", shown)
        self.assertRegex(shown, rb"mr-demo-2 +\d+ +\d+")
        self.assertIn(b"stopped: ", shown)

    def test_explains_its_flags(self):
        result = run("--help")

        self.assertEqual(result.returncode, 0)
        for flag in "--loops", "--io", "--seconds", "--quiet", "--help":
            self.assertIn(flag, result.stdout)

    def test_refuses_wrong_flags(self):
        for flags, text in ((["--lops", "1"], "unknown flag --lops"),
                            (["--loops"], "--loops needs a value"),
                            (["--loops", "-1"], '"-1" is not a number'),
                            (["--seconds", "x"], '"x" is not a number'),
                            (["--io", "nio"], 'no engine is called "nio"')):
            with self.subTest(flags):
                result = run(*flags)

                self.assertEqual(result.returncode, 2)
                self.assertIn(text, result.stderr)
                self.assertIn("usage:", result.stderr)


if __name__ == "__main__":
    unittest.main()
