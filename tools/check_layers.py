#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that includes only point down the layers.

  include/  <millrace/...> of the own layer or a lower one; nothing private
  src/      the same, and private headers of the own layer or a lower one, quoted and relative to src/
  tests/    of a layer: the same for public headers; from `loop` up also <millrace/transport/embedded...>
  examples/ public headers, and quoted ones beside the example
"""
import tree

# The one public header with a quoted include: the tests under the explorer provide the file.
EXPLORER = ("include/millrace/base/atomic.h", "explorer_atomic.h")


def rank(layer):
    return tree.LAYERS.index(layer) if layer in tree.LAYERS else None


def public_problem(where, layer, name):
    """What is wrong with <millrace/...> in a file of this layer of `where`, or None."""
    if name == tree.UMBRELLA:
        return "the umbrella header is for users only"
    target = name.split("/")[1]
    if rank(target) is None:
        return f"'{target}' is no layer"
    if rank(target) <= rank(layer):
        return None
    if (where == "tests" and rank(layer) >= rank("loop")
            and name.startswith("millrace/transport/embedded")):
        return None
    return f"layer '{layer}' must not know of layer '{target}', which is above it"


def private_problem(root, layer, name):
    """What is wrong with a quoted include in src/<layer>, or None."""
    if not (root / "src" / name).is_file():
        return "no such file under src/ (private includes are written relative to src/)"
    other = name.split("/")[0]
    if rank(other) is None or rank(layer) is None or rank(other) > rank(layer):
        return f"a private header of a layer above '{layer}'"
    return None


def check(root, path):
    relative = path.relative_to(root)
    where = relative.parts[0]
    below = relative.parts[2:] if where == "include" else relative.parts[1:]
    layer = below[0] if len(below) > 1 else None
    is_umbrella = relative.as_posix() == "include/" + tree.UMBRELLA

    for line, quoted, name in tree.includes(path):
        problem = None
        if where == "examples":
            if quoted and not (path.parent / name).is_file():
                problem = "examples use public headers only"
        elif is_umbrella:
            if quoted:
                problem = "a public header must not include a private one"
        elif rank(layer) is None:
            if where != "tests":
                problem = "this file is in no layer's folder"
        elif not quoted:
            if name.startswith("millrace/"):
                problem = public_problem(where, layer, name)
        elif where == "include":
            if (relative.as_posix(), name) != EXPLORER:
                problem = "a public header must not include a private one"
        elif where == "src":
            problem = private_problem(root, layer, name)
        if problem:
            yield f'{relative}:{line}: "{name}": {problem}'


def main():
    root = tree.parse_root(__doc__).root
    paths = tree.sources(root, "include", "src", "tests", "examples")
    tree.finish("layers", len(paths), [text for path in paths for text in check(root, path)])


if __name__ == "__main__":
    main()
