#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no public header but the umbrella pulls in more than 15 other headers of ours."""
import tree

LIMIT = 15
# A Channel and the messages it is fed with, for programs that test handlers.
LARGER = {"millrace/transport/embedded_channel.h": 19}


def reach(include, header, seen):
    """Adds to `seen` all of our headers that `header` includes, directly or not."""
    for _, quoted, name in tree.includes(header):
        target = include / name
        if not quoted and target not in seen and target.is_file():
            seen.add(target)
            reach(include, target, seen)
    return seen


def main():
    root = tree.parse_root(__doc__).root
    include = root / "include"
    headers = tree.sources(root, "include")
    findings = []
    for header in headers:
        name = header.relative_to(include).as_posix()
        reached = sorted(h.relative_to(include).as_posix()
                         for h in reach(include, header, set()) - {header})
        limit = LARGER.get(name, LIMIT)
        if name != tree.UMBRELLA and len(reached) > limit:
            findings.append(f"{name}: reaches {len(reached)} of our headers, {limit} are allowed: "
                            + ", ".join(reached))
    tree.finish("reach", len(headers), findings)


if __name__ == "__main__":
    main()
