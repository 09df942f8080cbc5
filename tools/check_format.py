#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that clang-format would leave every source as it is; --fix lets it change them.

Exit 77 (a skipped test) if clang-format is not installed, but a failure with CI=true.
"""
import os
import re
import shutil
import subprocess
import sys

import tree


def main():
    args = tree.parse_root(__doc__, lambda parser: parser.add_argument("--fix", action="store_true"))
    tool = shutil.which("clang-format") or shutil.which("clang-format-14")
    if tool is None:
        print("clang-format is not installed")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)

    paths = tree.sources(args.root)
    if not paths:
        tree.finish("format", 0, [])
    how = ["-i"] if args.fix else ["--dry-run", "--Werror"]
    result = subprocess.run([tool, "--style=file", *how, *map(str, paths)], cwd=args.root,
                            capture_output=True, text=True, check=False)
    first = {}  # path -> its first line that would change
    for line in result.stderr.splitlines():
        match = re.match(r"(.+?):(\d+):\d+: error:", line)
        if match:
            first.setdefault(os.path.relpath(match[1], args.root), match[2])
    findings = [f"{path}:{line}: not formatted (tools/check_format.py --fix helps)"
                for path, line in sorted(first.items())]
    if result.returncode != 0 and not findings:
        findings = [result.stderr]
    tree.finish("format", len(paths), findings)


if __name__ == "__main__":
    main()
