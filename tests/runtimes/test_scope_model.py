# SPDX-License-Identifier: Apache-2.0
"""In random graphs of libraries, each call reaches the same definition unguarded (ld.so's own
answer) and guarded.

A graph has 3 to 8 nodes (programs/scope_node.c), and the first is the program. Some define
cudaSetDevice and cuInit, with versions or without, and all call them. Some are loaded with the
program, some by LD_PRELOAD before or after the guard, the others by dlopen (LOCAL, GLOBAL,
DEEPBIND, by name or path). After each step, every node prints which definitions its calls reach.
Under OFF, and for cudaSetDevice under VALIDATE, the answer has to be ld.so's without the guard.

The return address does not decide some cases, which are left out (tests/lab/limits.md):
- calls in tail position, and through a pointer that other code has looked up;
- a weak reference without a definition: null when unguarded, set by the guard's export;
- a library that is opened with RTLD_GLOBAL when it is loaded already, or after the calling library
  is loaded and before its first call, which a lazily bound reference would reach.

SEED and CASES repeat or lengthen a run.
"""

import os
import random
import shutil
import subprocess
import tempfile

from support import harness

SEED = 20261121
CASES = 2000 if harness.FULL else 300
NODES = os.path.join(harness.BUILD, "tests", "runtimes", "programs")
DEFINES = ("defines", "defines", "defines_v1", "defines_v2", "defines_both", "defines_hidden")
CALLS = ("weak", "weak", "weak_v1", "weak_v2", "strong")
MAINS = ("main", "main", "main", "main_v1", "main_v2", "main_defines")
SLOTS = 4
DEEPEST = 5
NOT_DEFINED = "-1"


def template(kind):
    path = os.path.join(NODES, kind, "owner.so")
    with open(path if os.path.exists(path) else os.path.join(NODES, kind), "rb") as stream:
        return stream.read()


TEMPLATES = {kind: template(kind) for kind in set(DEFINES + CALLS + MAINS)}


def write_over(data, old, new):
    if data.count(old) != 1 or len(old) != len(new):
        raise ValueError("%d times in the built file: %s" % (data.count(old), old))
    return data.replace(old, new)


class Node:
    def __init__(self, number):
        self.number = number
        self.name = "node%d.so" % number if number else "main"
        self.kind = ""
        self.needed = []
        self.soname = True  # False: one that no library needs
        self.depth = 0

    def may_be(self, kind):
        """Returns false for a kind with which ld.so would not start the program: a strong reference
        without a definition, or a version that the first needed library lacks."""
        if kind == "strong":
            return any(node.kind.startswith("defines") for node in self.closure())
        if kind.endswith(("_v1", "_v2")) and not kind.startswith("defines"):
            return bool(self.needed) and (
                not self.needed[0].kind.startswith("defines_") or
                self.needed[0].kind.endswith((kind[-3:], "both", "hidden")))
        return kind != ""

    def contents(self):
        """Returns the built file of its kind with this node's names in it. Slots that it does not
        use keep the names of libraries without definitions."""
        data = TEMPLATES[self.kind]
        data = write_over(data, b"scope-node-number-00", b"scope-node-number-%02d" % self.number)
        if self.number and self.soname:
            data = write_over(data, b"\0owner.so\0", b"\0%s\0" % self.name.encode())
        for slot, node in enumerate(self.needed):
            data = write_over(data, b"\0slot%d.so\0" % slot, b"\0%s\0" % node.name.encode())
        return data

    def closure(self):
        found = [self]
        for node in found:
            found += [needed for needed in node.needed if needed not in found]
        return found

    def __str__(self):
        return "%s %s%s needs %s" % (self.name, self.kind, "" if self.soname else " (other SONAME)",
                                     " ".join(node.name for node in self.needed) or "nothing")


class RandomGraph:
    def write(self, directory):
        for node in self.nodes:
            path = os.path.join(directory, node.name)
            if os.path.exists(path):
                os.unlink(path)
            with open(path, "wb") as stream:
                stream.write(node.contents())
            os.chmod(path, 0o755)

    def run(self, directory, policy=None):
        """Returns the lines of answers. policy None: without the guard."""
        libraries = [os.path.join(directory, node.name) for node in self.preload[False]]
        libraries += [harness.GUARD] if policy else []
        libraries += [os.path.join(directory, node.name) for node in self.preload[True]]
        env = {"LD_PRELOAD": ":".join(libraries), "LC_ALL": "C"}
        if policy:
            env["CUDAGUARD_POLICY"] = policy
        if policy == "VALIDATE":
            # A driver may be installed, and cuInit is NVIDIA's own there.
            env["SCOPE_RUNTIME_ONLY"] = "1"
        if self.now:
            env["LD_BIND_NOW"] = "1"
        argv = [os.path.join(directory, "main")]
        for flags, node, by_path in self.opens:
            argv.append("%s:%s" % (flags, os.path.join(directory, node.name) if by_path else node.name))
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, close_fds=False, timeout=60)
        return done.returncode, done.stdout.decode("utf-8", "replace").splitlines()

    def __str__(self):
        return "\n".join(
            [str(node) for node in self.nodes] +
            ["preloaded %s the guard: %s" % ("after" if is_after else "before", node.name)
             for is_after, nodes in self.preload.items() for node in nodes] +
            ["LD_BIND_NOW"] * self.now +
            ["dlopen %s (%s)%s" % (node.name, flags, " by path" * by_path)
             for flags, node, by_path in self.opens])

    def __init__(self, rng):
        self.nodes = [Node(number) for number in range(rng.randint(3, 8))]
        self.preload = {False: [], True: []}  # whether they follow the guard
        self.opens = []  # (flags, node, whether it is opened by its path)
        plugins = rng.choice((0.2, 0.4, 0.6))
        for node in self.nodes[1:]:
            # A node without a parent is for dlopen.
            for _ in range(0 if rng.random() < plugins else rng.choice((1, 1, 2))):
                self.connect(rng.choice(self.nodes[:node.number]), node)
        for _ in range(rng.choice((0, 0, 1, 2))):  # adds further paths, and cycles, too
            self.connect(*rng.sample(self.nodes, 2))
        for node in self.nodes:
            rng.shuffle(node.needed)
            node.soname = rng.random() < 0.85
        for node in rng.sample(self.nodes[1:], rng.randint(1, max(2, len(self.nodes) // 2))):
            node.kind = rng.choice(DEFINES)
        for node in self.nodes:
            while not node.may_be(node.kind):
                node.kind = rng.choice(CALLS if node.number else MAINS)
        for node in self.nodes[1:]:
            if rng.random() < 0.06:
                self.preload[rng.random() < 0.5].append(node)
        self.now = rng.random() < 0.3  # LD_BIND_NOW
        loaded = set(self.nodes[0].closure())
        for node in self.preload[False] + self.preload[True]:
            loaded.update(node.closure())
        for _ in range(rng.randint(1, 5)):
            rest = [node for node in self.nodes if node not in loaded]
            node = rng.choice(rest if rest and rng.random() < 0.8 else self.nodes[1:])
            flags = rng.choice(("", "", "g", "g", "d", "gd")) + rng.choice(("", "l"))
            if node in loaded:
                flags = flags.replace("g", "")
            loaded.update(node.closure())
            self.opens.append((flags, node, rng.random() < 0.5))

    def connect(self, parent, child):
        if child in parent.needed or child.number == 0 or len(parent.needed) == SLOTS:
            return
        if child.number > parent.number:
            if parent.depth == DEEPEST:
                return
            child.depth = max(child.depth, parent.depth + 1)
        parent.needed.append(child)


def differences(unguarded, guarded, policy):
    """Returns [(step, caller, unguarded, guarded)]. Calls that reach no definition unguarded
    are not compared."""
    if policy == "VALIDATE":
        unguarded = unguarded[0], [" ".join(word for word in line.split() if "driver" not in word)
                                   for line in unguarded[1]]
    if (unguarded[0], [len(line.split()) for line in unguarded[1]]) != (
            guarded[0], [len(line.split()) for line in guarded[1]]):
        return [("exit code and output", "", unguarded, guarded)]
    return [(step, ours.split("=")[0], bares, ours) for step in range(len(unguarded[1]))
            for bares, ours in zip(unguarded[1][step].split(), guarded[1][step].split())
            if bares != ours and bares.split("=")[1] != NOT_DEFINED]


def test_calls_reach_the_same_definitions_as_unguarded():
    wrong, answers, null, reached = [], 0, 0, set()
    with tempfile.TemporaryDirectory(prefix="cg-") as directory:
        shutil.copytree(os.path.join(NODES, "needed"), directory, dirs_exist_ok=True)
        for case in range(CASES):
            graph = RandomGraph(random.Random("%d %d" % (SEED, case)))
            graph.write(directory)
            unguarded = graph.run(directory)
            assert unguarded[0] == 0, "case %d: %s\n%s" % (case, unguarded[1], graph)
            words = " ".join(unguarded[1]).split()
            answers += len(words)
            null += sum(word.endswith("=" + NOT_DEFINED) for word in words)
            reached.update(word.split("=")[1] for word in words)
            for policy in ("OFF", "VALIDATE") if case % 8 == 0 else ("OFF",):
                found = differences(unguarded, graph.run(directory, policy), policy)
                if found:
                    wrong.append("case %d, %s: (step, caller, unguarded, guarded) %s\n%s" % (
                        case, policy, found, graph))
    print("%d graphs (seed %d), %d answers (%d null when unguarded), %d definitions reached; "
          "%d graphs differ" % (CASES, SEED, answers, null, len(reached), len(wrong)))
    # Control: most calls reach a definition, and many different ones.
    assert answers - null > CASES
    assert len(reached) > (15 if CASES > 500 else 4)
    assert not wrong, "%d of %d graphs\n%s" % (len(wrong), CASES, "\n".join(wrong[:3]))
