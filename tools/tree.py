# SPDX-License-Identifier: Apache-2.0
"""What the check scripts share: the files of the tree, their includes, and how findings are told."""
import argparse
import os
import pathlib
import re
import subprocess
import sys

# From the bottom up: an include points into its own layer or a lower one.
LAYERS = ["base", "sys", "buffer", "concurrent", "loop", "channel", "transport", "codec", "handler",
          "bootstrap", "coro", "tls", "http", "console", "tools"]

UMBRELLA = "millrace/millrace.h"

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def parse_root(doc, extra=None):
    """Reads --root (default: the tree that this script is in) and what `extra(parser)` adds."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    if extra:
        extra(parser)
    args = parser.parse_args()
    args.root = args.root.resolve()
    return args


def files(root, *folders):
    """All files that are, or could be, committed; without folders, of the whole tree. Sorted."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files", "-z", "--cached",
             "--others", "--exclude-standard"], capture_output=True, text=True, check=False)
        names = listed.stdout.split("\0") if listed.returncode == 0 else _walk(root)
    else:
        names = _walk(root)
    paths = (pathlib.PurePosixPath(name) for name in names if name)
    return sorted({root / path for path in paths
                   if (not folders or path.parts[0] in folders) and (root / path).is_file()})


def _walk(root):
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in (".git", "build", "__pycache__")]
        for name in names:
            yield pathlib.Path(folder, name).relative_to(root).as_posix()


def sources(root, *folders):
    return [path for path in files(root, *folders) if path.suffix in (".h", ".cc")]


def includes(path):
    """The includes of a file as (line, quoted, name)."""
    text = path.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start()) + 1, match[1] == '"', match[2])
            for match in _INCLUDE.finditer(text)]


def finish(name, looked_at, findings):
    """Prints the findings and ends the script: 0 if there are none, else 1."""
    for finding in findings:
        print(finding)
    print(f"{name}: {looked_at} files, {len(findings)} findings")
    sys.exit(1 if findings else 0)
