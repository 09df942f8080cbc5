#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every public header compiles alone, and twice in one source, without a warning.

Needs --compiler and --work, a folder for the small sources and objects. ccache makes a second run
cheap, if it is there.
"""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess

import tree

FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wold-style-cast", "-Werror",
         "-c"]


def compile_alone(compiler, work, root, header):
    """The compiler's words if the header does not compile, else None."""
    name = header.relative_to(root / "include").as_posix()
    source = work / (name.replace("/", "_") + ".cc")
    text = f"#include <{name}>\n#include <{name}>\n"
    if not source.is_file() or source.read_text(encoding="utf-8") != text:
        source.write_text(text, encoding="utf-8")
    launcher = [shutil.which("ccache")] if shutil.which("ccache") else []
    result = subprocess.run(
        [*launcher, compiler, *FLAGS, f"-I{root / 'include'}", str(source), "-o",
         str(source.with_suffix(".o"))], capture_output=True, text=True, check=False)
    return f"{name}: does not compile alone\n{result.stderr}" if result.returncode else None


def main():
    def arguments(parser):
        parser.add_argument("--compiler", required=True)
        parser.add_argument("--work", type=pathlib.Path, required=True)

    args = tree.parse_root(__doc__, arguments)
    args.work.mkdir(parents=True, exist_ok=True)
    headers = tree.sources(args.root, "include")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda h: compile_alone(args.compiler, args.work, args.root, h), headers)
        tree.finish("headers", len(headers), [text for text in results if text])


if __name__ == "__main__":
    main()
