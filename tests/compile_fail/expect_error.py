#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles a source twice: it must fail with the text it names, and compile with -DGOOD.

  expect_error.py <compiler> <source> <include folder>
"""
import re
import subprocess
import sys


def compile_source(compiler, source, include, *flags):
    return subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{include}", *flags, source],
                          capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})


def main():
    compiler, source, include = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        expected = re.findall(r"^// EXPECT: (.*)$", file.read(), re.MULTILINE)
    if not expected:
        sys.exit(f"{source}: no line '// EXPECT: ...'")
    bad = compile_source(compiler, source, include)
    if bad.returncode == 0:
        sys.exit(f"{source}: compiles, and must not")
    # Compilers break long messages up, and join string literals differently.
    text = " ".join(bad.stderr.split())
    for part in expected:
        if part not in text:
            sys.exit(f"{source}: the message does not say '{part}':\n{bad.stderr}")
    good = compile_source(compiler, source, include, "-DGOOD")
    if good.returncode != 0:
        sys.exit(f"{source}: does not compile even when it is right:\n{good.stderr}")


if __name__ == "__main__":
    main()
