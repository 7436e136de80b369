# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check --pack: collects in one directory what a machine without compiler and network
needs."""

import glob
import os
import re
import shutil
import subprocess
import sys

LIMIT = 64 * 2**20
# The files of the build tree by directory. The rest of tests/programs are links to other
# directories and copies of drivers, which only the entry-point matrix' own sandbox uses.
BUILT = ("bin", "lib", os.path.join("tests", "programs"), os.path.join("tests", "gpu"))
LEFT_OUT = shutil.ignore_patterns("CMakeFiles", "*.cmake", "Makefile", "static_entry_point",
                                  "renamed")
SOURCES = ("scripts/gpu-check", "tests/gpu/*.py", "tests/support/*.py", "tests/golden/messages.txt",
           "tests/entry_points/languages/*", "shim/api/guarded.inc")


def commit_of(source):
    """Returns the commit and whether the tree has changes. A packed directory keeps both in a file.
    """
    kept = os.path.join(source, "COMMIT")
    if os.path.exists(kept):
        with open(kept, encoding="utf-8") as stream:
            return stream.read().strip()
    try:
        # Another user may own the checkout.
        git = ["git", "-c", "safe.directory=*", "-C", source]
        done = [subprocess.run([*git, *words], capture_output=True, text=True, timeout=20)
                for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "-uno"))]
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    if done[0].returncode != 0:
        return "unknown"
    return done[0].stdout.strip() + (" with changes" if done[1].stdout.strip() else "")


def size_of(directory):
    return sum(os.lstat(os.path.join(where, name)).st_size
               for where, _, names in os.walk(directory) for name in names)


def pack_strace(to):
    """Copies strace, its libraries and their ld.so, which start it on a machine with another libc."""
    strace = shutil.which("strace")
    done = subprocess.run(["ldd", strace], capture_output=True, text=True, check=True)
    os.mkdir(to)
    for path in [strace, *re.findall(r"(/\S+) \(0x", done.stdout)]:
        name = os.path.basename(path)
        shutil.copy(path, os.path.join(to, "ld.so" if name.startswith("ld-linux") else name))


def pack(source, build, lib, to):
    """Collects the files in the new directory `to`; returns the exit code."""
    if os.path.exists(to) and os.listdir(to) and not os.path.exists(os.path.join(to, "COMMIT")):
        print("gpu-check: %s exists and is no packed directory" % to, file=sys.stderr)
        return 2
    needed = [os.path.join(lib, "libcudaguard.so"), os.path.join(build, "tests", "gpu",
                                                                 "gpu_driver"),
              os.path.join(build, "tests", "programs", "entry_point")]
    missing = [path for path in needed if not os.path.exists(path)]
    if missing:
        print("gpu-check: not built: %s\nBuild it first: scripts/fetch-cuda build/_deps all && "
              "cmake --preset ci && cmake --build build/ci" % ", ".join(missing), file=sys.stderr)
        return 2
    if not shutil.which("strace"):
        print("gpu-check: not installed: strace", file=sys.stderr)
        return 2
    fresh = to.rstrip("/") + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    for directory in BUILT:
        path = lib if directory == "lib" else os.path.join(build, directory)
        shutil.copytree(path, os.path.join(fresh, directory), symlinks=True, ignore=LEFT_OUT)
    pack_strace(os.path.join(fresh, "strace"))
    for pattern in SOURCES:
        for path in glob.glob(os.path.join(source, pattern)):
            target = os.path.join(fresh, os.path.relpath(path, source))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.isfile(path):
                shutil.copy2(path, target)
    with open(os.path.join(fresh, "COMMIT"), "w", encoding="utf-8") as stream:
        stream.write(commit_of(source) + "\n")
    size = size_of(fresh)
    shutil.rmtree(to, ignore_errors=True)
    os.rename(fresh, to)
    runtimes = sorted(name[len("gpu_runtime_"):] for name in os.listdir(
        os.path.join(to, "tests", "gpu")) if name.startswith("gpu_runtime_"))
    proxies = sorted(name for name in os.listdir(os.path.join(to, "lib", "cudaguard"))
                        if name.startswith("libcudaguard-") and "null_driver" not in name)
    print("gpu-check: %s: %.1f MiB of 64; runtimes: %s; proxies: %s" % (
        to, size / 2**20, " ".join(runtimes) or "none", " ".join(proxies) or "none"))
    print("There: %s/scripts/gpu-check --from %s --out DIR" % (to, to))
    return 0 if size < LIMIT else 1
