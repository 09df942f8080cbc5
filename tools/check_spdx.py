#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every file names its licence in one of its first lines."""
import tree

LINE = "SPDX-License-Identifier: Apache-2.0"
FIRST_LINES = 5


def needs_line(relative):
    """All but the licence itself and data that cannot hold a comment."""
    return relative.name != "LICENSE" and relative.parts[:2] != ("fuzz", "corpus")


def has_line(path):
    with open(path, "rb") as file:
        return any(LINE.encode() in file.readline() for _ in range(FIRST_LINES))


def main():
    root = tree.parse_root(__doc__).root
    paths = [path for path in tree.files(root) if needs_line(path.relative_to(root))]
    tree.finish("spdx", len(paths), [f"{path.relative_to(root)}: no line '{LINE}'"
                                     for path in paths if not has_line(path)])


if __name__ == "__main__":
    main()
