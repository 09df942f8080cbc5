#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums up the results of ctest; the last line is `tests: N passed, M skipped, K failed`.

The folder of results holds what ctest wrote, and in parts/ what programs wrote of which ctest knows only
whether they went well as a whole.

Lists every failed and every skipped test. A skipped test is expected if a line of the file given
with --allowed, `<regex of the name>  # reason`, matches its name. With CI=true in the environment
an unexpected skip is a failure. Exit 0: nothing failed and something ran. Exit 1 otherwise.
"""
import argparse
import os
import pathlib
import re
import sys
import xml.etree.ElementTree


def read_allowed(path):
    """The (regex, reason) pairs of the file; a line without a reason is an error."""
    pairs = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            regex, mark, reason = line.partition("  #")
            if not mark or not reason.strip():
                sys.exit(f"{path}:{number}: expected `<regex>  # reason`")
            pairs.append((re.compile(regex.strip()), reason.strip()))
    return pairs


def ctest_results(folder):
    """(name, kind) of every test that ctest knows, but for parts that went well."""
    for path in sorted(folder.glob("*.xml")):
        for case in xml.etree.ElementTree.parse(path).iter("testcase"):
            kind = {"run": "passed", "notrun": "skipped", "disabled": "skipped"}.get(
                case.get("status"), "failed")
            if ".part." not in case.get("name") or kind == "failed":
                yield case.get("name"), kind


def part_results(folder):
    """(name, kind) of every test in the parts, named as ctest would name them."""
    for path in sorted((folder / "parts").glob("*.xml")):
        prefix = path.name.partition(".")[0]
        for case in xml.etree.ElementTree.parse(path).iter("testcase"):
            if case.get("status") == "notrun":
                continue  # it belongs to another part
            kind = "skipped" if case.get("result") == "skipped" else "passed"
            if case.find("failure") is not None:
                kind = "failed"
            yield f"{prefix}.{case.get('classname')}.{case.get('name')}", kind


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allowed", required=True)
    parser.add_argument("results", type=pathlib.Path)
    args = parser.parse_args()

    allowed = read_allowed(args.allowed)
    in_ci = os.environ.get("CI") == "true"
    state = {}  # name -> passed, skipped or failed; a test that ran twice keeps its worst
    worse = ["passed", "skipped", "failed"]
    for name, kind in [*ctest_results(args.results), *part_results(args.results)]:
        state[name] = max(kind, state.get(name, kind), key=worse.index)

    for name, kind in sorted(state.items()):
        if kind == "failed":
            print(f"failed: {name}")
        elif kind == "skipped":
            reason = next((why for regex, why in allowed if regex.search(name)), None)
            if reason is None and in_ci:
                state[name] = "failed"
                print(f"failed: {name} (skipped, but not listed in {args.allowed})")
            else:
                print(f"skipped: {name} ({reason or 'not listed in ' + args.allowed})")

    if not state:
        print("no test matches")
    count = {kind: sum(k == kind for k in state.values()) for kind in worse}
    print("tests: {passed} passed, {skipped} skipped, {failed} failed".format(**count))
    return 0 if state and not count["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
