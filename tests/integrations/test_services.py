# SPDX-License-Identifier: Apache-2.0
"""Services in Go, Java, Rust and Node find no GPU when they are started with the command line of
docs/integrations/slurm-and-systemd.md. test_systemd.py has the drop-in in a real systemd."""

import os
import shlex
import subprocess

import pytest

from support import fixtures, harness, hosts, launcher, places, rows_languages

SECTION = "A service in Go, Rust, Java or Node"
LANGUAGES = {row[0]: row for row in rows_languages.LANGUAGES}


def command_line(program):
    """The page's ExecStart= with this program and this build's launcher."""
    (block,) = [text for text in places.blocks("text", "slurm-and-systemd", "systemd")
                if text.startswith("[Service]")]
    assert places.read("systemd", "cudaguard-run.conf").endswith(block)
    words = shlex.split(block.splitlines()[-1].partition("=")[2])
    start = words.index("/usr/bin/program")
    assert words[:start] == ["/usr/local/bin/cudaguard", "run", "--"]
    return [launcher.LAUNCHER, *words[1:start], *program]


def node(case):
    case.need("node")
    return ["node", os.path.join(hosts.PROGRAMS, "asks.js"), os.path.join(hosts.BIN, "node_asks.node")]


def rust(case):
    case.need("rustc")
    words = ["rustc", "-O", "-o", case.path("asks"), os.path.join(hosts.PROGRAMS, "asks.rs")]
    subprocess.run(words, check=True, capture_output=True)
    return [case.path("asks")]


def language(name, *words):
    def program(case):
        _, _, command, needs, packages = LANGUAGES[name]
        if not all(map(os.path.exists, needs)):
            harness.skip(case, "install " + packages)
        return [*command, *words]
    return program


SERVICES = {
    "Go, NVML": (language("cgo", "nvml", "libnvidia-ml.so.1"), "nvmlInit", "9"),
    "Java, NVML": (language("jna", "nvml", "libnvidia-ml.so.1"), "nvmlInit", "9"),
    "Rust": (rust, "cuInit", "100"), "Node": (node, "cuInit", "100")}


make_case = fixtures.lent("case", launcher.Case)


@pytest.mark.full
@pytest.mark.parametrize("name", SERVICES)
def test_service_finds_no_gpu(case, name):
    program, call, answer = SERVICES[name]
    words = program(case)
    unguarded = harness.run(words, guard=False, world="fake", trace=False)
    assert unguarded.answers[call] == "0", str(unguarded)
    result = harness.run(command_line(words), guard=False, world="fake", trace=False)
    assert (result.rc, result.answers[call], result.fake_calls) == (0, answer, []), str(result)


@pytest.mark.parametrize(("options", "printed"), [
    ([], "cannot be guarded: it is a static executable"),
    (["--fence=require"], "the fence refuses CUDA")])
def test_static_service_starts_only_under_the_fence(options, printed):
    words = command_line([harness.program("static_entry_point"), "lib=libcuda.so.1"])
    result = harness.run([*words[:2], *options, *words[2:]], guard=False, world="fake", trace=False)
    assert printed in result.err, str(result)
    assert (result.rc != 125) == bool(options), str(result)
