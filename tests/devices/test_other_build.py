# SPDX-License-Identifier: Apache-2.0
"""The guard refuses a proxy that was built from other headers, because the proxy's table of
functions may have another layout."""

import os
import re
import shutil
import struct
import subprocess
import tempfile

import pytest

from support import box, harness, messages

STEPS = {"driver": ["cu.see", "rt12.see"], "nvml": ["nv.see"]}


def interface_id(source):
    """Returns a source tree's interface number, as the build computes it."""
    with tempfile.TemporaryDirectory(prefix="cg-") as directory:
        header = os.path.join(directory, "interface_id.h")
        subprocess.run(["cmake", "-DOUT=" + header, "-P",
                        os.path.join(source, "shim", "guard", "proxy_loader", "interface_id.cmake")],
                       check=True)
        return int(re.search(r"CUDAGUARD_INTERFACE_ID (0x[0-9a-f]{8})U",
                             harness.read(header))[1], 16)


def run_with(guards_id, kind, allow):
    """Runs the steps with a guard whose table has this interface number."""
    with tempfile.TemporaryDirectory(prefix="cg-lib-") as directory:
        shutil.copytree(harness.LIB, directory, symlinks=True, dirs_exist_ok=True)
        guard = os.path.join(directory, "libcudaguard.so")
        content = harness.bytes_of(guard)
        own = struct.pack("=I", interface_id(harness.SOURCE))
        assert content.count(own) == 1
        with open(guard, "wb") as stream:
            stream.write(content.replace(own, struct.pack("=I", guards_id)))
        return box.run(STEPS[kind], guard=False, preload=[guard], allow=allow,
                       policy="VALIDATE")


@pytest.mark.parametrize("allow", ["0,1", None])
@pytest.mark.parametrize(("kind", "steps"), STEPS.items())
def test_proxy_with_another_interface_number_is_refused(case, kind, steps, allow):
    own = interface_id(harness.SOURCE)
    result = run_with(own ^ 1, kind, allow)
    # Under a list, the guard checks the driver's proxy first, and FORCE_CPU then
    # applies to all.
    first = "driver" if allow else kind
    refused = {"driver": ("!100", "!9"), "nvml": ("!-999",)}[first]
    for step in steps:
        assert box.seen(result.answers[step]) in refused, str(result)
    assert messages.find(result.err, "proxy_broken" if first == "driver" else "file_broken",
                         file=re.compile(".*/libcudaguard-%s.so" % first),
                         why=messages.text("other_build")), str(result)
    assert "cuInit" not in result.fake_calls, str(result)
    # Control: the same copy works with its own number.
    result = run_with(own, kind, allow)
    case.silent(result)
    for step in steps:
        assert len(box.seen(result.answers[step])) == (2 if allow else 8), str(result)


def test_swapped_fields_change_the_interface_number():
    """A copy of the tree has the same number, but with two fields swapped it has another."""
    with tempfile.TemporaryDirectory(prefix="cg-source-") as directory:
        for part in ("policy", "shim"):
            shutil.copytree(os.path.join(harness.SOURCE, part), os.path.join(directory, part))
        assert interface_id(directory) == interface_id(harness.SOURCE)
        path = os.path.join(directory, "shim", "guard", "proxy_loader", "services.h")
        lines = harness.read(path).split("\n")
        first = next(i for i, line in enumerate(lines) if " note_count = " in line)
        second = next(i for i, line in enumerate(lines) if " check_fork = " in line)
        lines[first], lines[second] = lines[second], lines[first]
        with open(path, "w", encoding="utf-8") as stream:
            stream.write("\n".join(lines))
        assert interface_id(directory) != interface_id(harness.SOURCE)
