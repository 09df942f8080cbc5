#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that each check accepts a good tree and fails on a bad one."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class Tree(unittest.TestCase):
    """A test with a small tree of its own."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def run_tool(self, tool, *arguments, **environment):
        return subprocess.run([sys.executable, "-B", str(TOOLS / tool), *arguments],
                              env={**os.environ, **environment}, capture_output=True, text=True,
                              check=False)

    def accepts(self, tool, *arguments):
        result = self.run_tool(tool, "--root", str(self.root), *arguments)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def rejects(self, tool, words, *arguments):
        result = self.run_tool(tool, "--root", str(self.root), *arguments)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn(words, result.stdout)


class Layers(Tree):
    def test_includes_that_point_down_are_fine(self):
        self.write("include/millrace/base/task.h", "#include <utility>\n")
        self.write("include/millrace/loop/event_loop.h", "#include <millrace/base/task.h>\n")
        self.write("include/millrace/millrace.h", "#include <millrace/loop/event_loop.h>\n")
        self.write("src/loop/selector.h", "#pragma once\n")
        self.write("src/loop/loop.cc", '#include "loop/selector.h"\n')
        self.write("tests/loop/a_test.cc", "#include <millrace/transport/embedded/channel.h>\n")
        self.accepts("check_layers.py")

    def test_a_public_header_must_not_point_up(self):
        self.write("include/millrace/base/task.h", "\n  # include <millrace/loop/event_loop.h>\n")
        self.rejects("check_layers.py", "include/millrace/base/task.h:2:")

    def test_a_source_must_not_point_up(self):
        self.write("src/sys/fd.cc", "#include <millrace/buffer/byte_buf.h>\n")
        self.rejects("check_layers.py", "must not know of layer 'buffer'")

    def test_a_public_header_must_not_include_a_private_one(self):
        self.write("src/loop/selector.h", "\n")
        self.write("include/millrace/loop/event_loop.h", '#include "loop/selector.h"\n')
        self.rejects("check_layers.py", "must not include a private one")

    def test_only_the_atomic_shim_may_include_the_explorer(self):
        self.write("include/millrace/base/atomic.h", '#include "explorer_atomic.h"\n')
        self.accepts("check_layers.py")
        self.write("include/millrace/base/task.h", '#include "explorer_atomic.h"\n')
        self.rejects("check_layers.py", "base/task.h:1:")

    def test_private_headers_point_down_too(self):
        self.write("src/sys/table.h", "\n")
        self.write("src/loop/loop.h", "\n")
        self.write("src/loop/loop.cc", '#include "sys/table.h"\n')
        self.accepts("check_layers.py")
        self.write("src/sys/calls.cc", '#include "loop/loop.h"\n')
        self.rejects("check_layers.py", "private header of a layer above")

    def test_private_includes_are_relative_to_src(self):
        self.write("src/loop/selector.h", "\n")
        self.write("src/loop/loop.cc", '#include "selector.h"\n')
        self.rejects("check_layers.py", "relative to src/")

    def test_the_umbrella_is_for_users(self):
        self.write("src/loop/loop.cc", "#include <millrace/millrace.h>\n")
        self.rejects("check_layers.py", "for users only")

    def test_a_test_below_the_loop_must_not_use_channels(self):
        self.write("tests/sys/a_test.cc", "#include <millrace/transport/embedded/channel.h>\n")
        self.rejects("check_layers.py", "tests/sys/a_test.cc:1:")

    def test_an_unknown_layer_is_noticed(self):
        self.write("src/util/a.cc", "#include <string>\n")
        self.rejects("check_layers.py", "in no layer's folder")

    def test_an_example_sees_public_headers_only(self):
        self.write("src/loop/selector.h", "\n")
        self.write("examples/a.cc", '#include "loop/selector.h"\n')
        self.rejects("check_layers.py", "public headers only")


class Reach(Tree):
    def chain(self, length):
        for i in range(length):
            self.write(f"include/millrace/base/h{i}.h", f"#include <millrace/base/h{i + 1}.h>\n")
        self.write(f"include/millrace/base/h{length}.h", "#include <string>\n")

    def test_fifteen_headers_are_fine(self):
        self.chain(15)
        self.accepts("check_reach.py")

    def test_sixteen_headers_are_too_many(self):
        self.chain(16)
        self.rejects("check_reach.py", "millrace/base/h0.h: reaches 16")

    def test_the_umbrella_may_reach_all(self):
        self.chain(15)
        self.write("include/millrace/millrace.h", "#include <millrace/base/h0.h>\n")
        self.accepts("check_reach.py")

    def test_headers_that_include_each_other_are_counted_once(self):
        self.write("include/millrace/base/a.h", "#include <millrace/base/b.h>\n")
        self.write("include/millrace/base/b.h", "#include <millrace/base/a.h>\n")
        self.accepts("check_reach.py")


class Spdx(Tree):
    def test_a_file_with_the_line_is_fine(self):
        self.write("src/a.cc", SPDX)
        self.write("LICENSE", "text\n")
        self.write("fuzz/corpus/a/seed", "\n")
        self.accepts("check_spdx.py")

    def test_a_file_without_the_line_is_named(self):
        self.write("src/a.cc", "int a;\n")
        self.rejects("check_spdx.py", "src/a.cc: no line")


class Format(Tree):
    def setUp(self):
        super().setUp()
        if not (shutil.which("clang-format") or shutil.which("clang-format-14")):
            self.skipTest("clang-format is not installed")
        self.write(".clang-format", "BasedOnStyle: Google\n")

    def test_a_formatted_source_is_fine(self):
        self.write("src/a.cc", "int a = 1;\n")
        self.accepts("check_format.py")

    def test_a_badly_formatted_source_is_named_and_can_be_fixed(self):
        self.write("src/a.cc", "int   a=1;\n")
        self.rejects("check_format.py", "src/a.cc:1:")
        self.accepts("check_format.py", "--fix")
        self.accepts("check_format.py")


class Headers(Tree):
    def arguments(self):
        compiler = shutil.which("g++") or shutil.which("clang++")
        return "--compiler", compiler, "--work", str(self.root / "build")

    def test_a_complete_header_is_fine(self):
        self.write("include/millrace/base/a.h", "#pragma once\n#include <string>\nstd::string f();\n")
        self.accepts("check_headers.py", *self.arguments())

    def test_a_header_that_needs_another_first_is_named(self):
        self.write("include/millrace/base/a.h", "#pragma once\nstd::string f();\n")
        self.rejects("check_headers.py", "millrace/base/a.h: does not compile alone",
                     *self.arguments())

    def test_a_header_without_guard_is_named(self):
        self.write("include/millrace/base/a.h", "struct A {};\n")
        self.rejects("check_headers.py", "millrace/base/a.h", *self.arguments())


class Summary(Tree):
    def sum_up(self, *cases, **environment):
        lines = "".join(f'<testcase name="{name}" status="{status}"/>' for name, status in cases)
        self.write("results/a.xml", f"<testsuite>{lines}</testsuite>")
        self.write("allowed.txt", "# comment\n^known$  # no such device\n")
        result = self.run_tool("test_summary.py", "--allowed", str(self.root / "allowed.txt"),
                               str(self.root / "results"), **{"CI": "", **environment})
        return result.returncode, result.stdout.splitlines()

    def test_the_last_line_counts(self):
        code, lines = self.sum_up(("a", "run"), ("b", "run"), ("known", "notrun"))
        self.assertEqual((code, lines[-1]), (0, "tests: 2 passed, 1 skipped, 0 failed"))
        self.assertIn("skipped: known (no such device)", lines)

    def test_a_failed_test_fails(self):
        code, lines = self.sum_up(("a", "run"), ("b", "fail"))
        self.assertEqual((code, lines[-1]), (1, "tests: 1 passed, 0 skipped, 1 failed"))
        self.assertIn("failed: b", lines)

    def test_a_skip_that_is_not_listed_fails_in_ci_only(self):
        self.assertEqual(self.sum_up(("a", "run"), ("new", "notrun"))[0], 0)
        code, lines = self.sum_up(("a", "run"), ("new", "notrun"), CI="true")
        self.assertEqual((code, lines[-1]), (1, "tests: 1 passed, 0 skipped, 1 failed"))

    def test_tests_within_parts_are_counted_one_by_one(self):
        self.write("results/parts/loop.program.0.xml", """<testsuites><testsuite name="Suite">
            <testcase name="Good" status="run" result="completed" classname="Suite"/>
            <testcase name="Elsewhere" status="notrun" result="suppressed" classname="Suite"/>
            <testcase name="Left" status="run" result="skipped" classname="Suite"/>
            <testcase name="Bad" status="run" result="completed" classname="Suite">
              <failure message="no"/></testcase></testsuite></testsuites>""")
        code, lines = self.sum_up(("a", "run"), ("loop.part.program.0", "fail"))
        self.assertEqual((code, lines[-1]), (1, "tests: 2 passed, 1 skipped, 2 failed"))
        self.assertIn("failed: loop.Suite.Bad", lines)
        self.assertIn("skipped: loop.Suite.Left", "".join(lines))

    def test_nothing_run_is_a_failure(self):
        self.assertEqual(self.sum_up()[0], 1)


if __name__ == "__main__":
    unittest.main()
