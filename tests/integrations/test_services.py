# SPDX-License-Identifier: Apache-2.0
"""The command line of docs/integrations/slurm-and-systemd.md with a static program. test_systemd.py
has the drop-in in a real systemd; entry_points/ and hosts/ have the languages."""

import shlex

import pytest

from support import harness, launcher, places


def command_line(program):
    """The page's ExecStart= with this program and this build's launcher."""
    (block,) = [text for text in places.blocks("text", "slurm-and-systemd", "systemd")
                if text.startswith("[Service]")]
    assert places.read("systemd", "cudaguard-run.conf").endswith(block)
    words = shlex.split(block.splitlines()[-1].partition("=")[2])
    start = words.index("/usr/bin/program")
    assert words[:start] == ["/usr/local/bin/cudaguard", "run", "--"]
    return [launcher.LAUNCHER, *words[1:start], *program]


@pytest.mark.parametrize(("options", "printed"), [
    ([], "cannot be guarded: it is a static executable"),
    (["--fence=require"], "the fence refuses CUDA")])
def test_static_service_starts_only_under_the_fence(options, printed):
    words = command_line([harness.program("static_entry_point"), "lib=libcuda.so.1"])
    result = harness.run([*words[:2], *options, *words[2:]], guard=False, world="fake", trace=False)
    assert printed in result.err, str(result)
    assert (result.rc != 125) == bool(options), str(result)
