#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes each ```cpp block of README.md and docs/**/*.md into --out as a program of its own.

A block without a main() is a fragment: the body of one, after `using namespace` for ours and for
std::chrono_literals. Prints the names of the programs (<page>_<number>, the file is <name>.cc). Files
that would not change are not written, so that nothing is built for nothing.
"""
import pathlib
import re
import sys

import tree

BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRAP = """#include <millrace/millrace.h>

#include <chrono>
#include <cstdio>

using namespace millrace;
using namespace std::chrono_literals;

int main() {{
{line}{text}}}
"""


def program(page, line, text):
    place = f'#line {line} "{page}"\n'
    if re.search(r"\bint main\(", text):
        return place + text
    return WRAP.format(line=place, text=text)


def pages(root):
    return [path for path in tree.files(root)
            if path.suffix == ".md" and path.relative_to(root).parts[0] in ("README.md", "docs")]


def snippets(root):
    """Name and source of every snippet."""
    for path in pages(root):
        page = path.relative_to(root)
        stem = "_".join(part.lower().replace("-", "_") for part in page.with_suffix("").parts)
        text = path.read_text(encoding="utf-8")
        for number, match in enumerate(BLOCK.finditer(text), 1):
            line = text.count("\n", 0, match.start(1)) + 1
            yield f"{stem}_{number}", program(page.as_posix(), line, match[1])


def main():
    args = tree.parse_root(__doc__, lambda parser: parser.add_argument(
        "--out", type=pathlib.Path, required=True))
    args.out.mkdir(parents=True, exist_ok=True)
    for name, source in snippets(args.root):
        file = args.out / f"{name}.cc"
        if not file.exists() or file.read_text(encoding="utf-8") != source:
            file.write_text(source, encoding="utf-8")
        print(name)


if __name__ == "__main__":
    sys.exit(main())
