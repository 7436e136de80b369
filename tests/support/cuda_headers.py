# SPDX-License-Identifier: Apache-2.0
"""Reads the driver's functions in CUDA's headers."""

import glob
import os
import re

from support import harness

SETS = ("cuda-11", "cuda-12.2", "cuda-12", "cuda-13")
PROTOTYPE = r"\bCUresult\s+CUDAAPI\s+(cu\w+)\s*\(([^;{]*?)\)\s*;"
VERSION = re.compile(r"(_v\d+)?(_pt[ds][sz])?$")


def text_of(name):
    """The text of all the driver's headers of a set; empty if they are not there."""
    found = ""
    for path in sorted(glob.glob(os.path.join(harness.DEPS, name, "include", "cuda*.h"))):
        if not re.search(r"/cuda(GL|VDPAU|EGL)?\.h$", path):
            continue
        with open(path, encoding="utf-8", errors="replace") as stream:
            found += re.sub(r"/\*.*?\*/|//[^\n]*", "", stream.read(), flags=re.S)
    return found


def words(text):
    return set(re.findall(r"\w+", text))


def types_with(name, types):
    """These types, and those that have one of them as a member, however deep."""
    text = text_of(name)
    bodies = {}
    for start in re.finditer(r"\bstruct\s+(\w+)\s*\{", text):
        end, depth = start.end(), 1
        while depth > 0:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        alias = re.match(r"\s*(\w*)", text[end:])[1]  # "typedef struct ... { ... } alias"
        bodies[start[1]] = bodies[alias or start[1]] = words(text[start.end():end])
    for old, new in re.findall(r"\btypedef\s+(?:struct\s+)?(\w+)\s+(\w+)\s*;", text):
        bodies.setdefault(new, {old})
    found, before = set(types), set()
    while found != before:
        before = set(found)
        found |= {one for one, body in bodies.items() if body & found}
    return found


def functions(name):
    """Returns {function without its version: the words of its parameters, in all its forms}."""
    found = {}
    for function, parameters in re.findall(PROTOTYPE, text_of(name)):
        found.setdefault(VERSION.sub("", function), set()).update(words(parameters))
    return found
