# SPDX-License-Identifier: Apache-2.0
"""Runs a program in the test machine (tests/fakes/box.h) and reads which GPUs it saw."""

import os
import re
import tempfile

from support import harness, launcher, messages, settings

DIRECTORY = os.path.join(harness.BUILD, "tests", "devices")


def rows():
    """Returns the rows of box.h: (uuid, bus, serial) of each GPU, and the UUIDs of GPU 6's parts.
    """
    text = harness.read("tests", "fakes", "box.h")
    gpus = re.findall(r'\{"([0-9a-f-]{36})", (0x\w\w), "(\d+)", "Box GPU \d"\}', text)
    migs = re.findall(r'\{"([0-9a-f-]{36})", 6, \d\}', text)
    return [(uuid, int(bus, 16), serial) for uuid, bus, serial in gpus], migs


# The launcher preloads these for programs that are linked to the driver.
PROXIES = tuple(os.path.join(harness.NULL_DRIVER_DIR, "libcudaguard-%s.so" % kind)
                   for kind in ("driver", "nvml"))
GPUS, MIGS = rows()
ALL = list(range(8))
FASTEST = [3, 0, 1, 2, 7, 4, 5, 6]
NAMES = {uuid: index for index, (uuid, _, _) in enumerate(GPUS)}
NAMES.update({uuid: "M%d" % index for index, uuid in enumerate(MIGS)})
NAMES.update({"MIG-" + uuid: "M%d" % index for index, uuid in enumerate(MIGS)})


def uuid(gpu, length=None):
    """Returns "GPU-..." of a GPU by its PCI position, or only the first `length` digits of the
    UUID."""
    return "GPU-" + GPUS[gpu][0][:length]


def mig(part):
    return "MIG-" + MIGS[part]


def bus_id(gpu):
    return "00000000:%02X:00.0" % GPUS[gpu][1]


def program(name):
    return os.path.join(DIRECTORY, "programs", name)


def environment(allow=None, own=None, policy=None, box="lazy", **more):
    """Returns the variables of a run: the allow-list, the program's own list, the policy, the
    driver."""
    directory = os.path.join(harness.FAKES, box)
    if not os.path.isdir(directory):
        raise RuntimeError("no such driver: " + directory)
    env = {"LD_LIBRARY_PATH": directory, "CUDAGUARD_VISIBLE_DEVICES": allow,
           "CUDA_VISIBLE_DEVICES": own, "CUDAGUARD_POLICY": policy}
    env.update(more)
    return env


def start(words, guard=False, **more):
    """Runs these words in the test machine. `more` takes environment()'s arguments and any variable.
    """
    return harness.run(words, world="none", guard=guard, trace=False, env=environment(**more))


def run(steps, name="open", guard=True, preload=(), timeout=settings.PATIENCE, trace=False,
        **more):
    """Runs a program's steps. `more` takes environment()'s arguments and any variable."""
    return harness.run([program(name)] + list(steps), world="none", guard=guard, trace=trace,
                       env=environment(**more), preload=preload, timeout=timeout)


def launch(options, steps, name="open", **more):
    """Runs a program's steps under `cudaguard run` with these options."""
    return start([launcher.LAUNCHER, "run", *options, "--", program(name), *steps], **more)


def lines(result):
    """Returns the lines that the guard printed."""
    return [line for line in result.err.splitlines() if "cudaguard" in line]


def seen(answer):
    """Returns the GPUs in an answer of the steps see and list, or "!N" if a call failed with N.

    "0:0:2:UUID,UUID" is [2, 5]; "100:3:-7:" is "!100".
    """
    parts = answer.split(":")
    for code in parts[:-2]:
        if code != "0":
            return "!" + code
    found = [NAMES.get(word, word) for word in parts[-1].split(",") if word]
    if len(found) != int(parts[-2]):
        raise ValueError("a count that is not the list's length: " + answer)
    return found


class Case(harness.Case):
    """A test case that compares which GPUs a program saw."""

    def sees(self, result, **wanted):
        """sees(result, cu=[2, 5], nv=...) compares what the steps NAME.see printed; _ in NAME is a
        dot."""
        for name, gpus in wanted.items():
            key = name.replace("_", ".") + ".see"
            self.assertIn(key, result.answers, result)
            self.assertEqual(seen(result.answers[key]), gpus, "%s\n%s" % (key, result))

    def run_reported(self, steps, name="open", **more):
        """Returns the run and the records that it wrote."""
        with tempfile.TemporaryDirectory(prefix="cg-report-") as directory:
            path = os.path.join(directory, "report.jsonl")
            result = run(steps, name, CUDAGUARD_REPORT=path, **more)
            records = harness.records(path)
        self.assertEqual(result.rc, 0, result)
        return result, records

    def silent(self, result):
        self.assertEqual(lines(result), [], result)
        self.assertEqual(result.rc, 0, result)

    def refused(self, result, *words, name="list_refused"):
        """Fails unless the driver was not entered, FORCE_CPU applies, and one line gives the
        reason."""
        self.explained(result, *words, name=name)
        self.assertNotIn("cuInit:initialised", result.fake_calls, result)

    def explained(self, result, *words, name="list_refused"):
        """Fails unless exactly one line, which is this message and contains these words, says why
        the list was given up."""
        reasons = messages.without("\n".join(lines(result)), *messages.DENIED)
        self.assertEqual(len(reasons.splitlines()), 1, result)
        self.assertEqual(len(messages.find(reasons, name)), 1, result)
        for word in words + ("CUDAGUARD_VISIBLE_DEVICES",):
            self.assertIn(word, reasons, result)
        # FORCE_CPU adds its own lines, at most one for CUDA and one for NVML.
        self.assertLessEqual(len(lines(result)), 3, result)

    def message(self, result, name, **values):
        """Fails unless the guard printed exactly one line, which is this message with these values
        (tests/support/messages.py). Returns its fields."""
        self.assertEqual(len(lines(result)), 1, result)
        found = messages.find(result.err, name, **values)
        self.assertEqual(len(found), 1, "%s %s\n%s" % (name, values, result))
        return found[0]
