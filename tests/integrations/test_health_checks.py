# SPDX-License-Identifier: Apache-2.0
"""The snippets of docs/health.md work in a real Slurm, in a real systemd and in a sandbox."""

import os
import re

import pytest

from support import harness, manager, places, slurm_node

SICK_DRIVER = os.path.join(harness.FAKES, "sick")  # cuInit returns 100
WHY = "driver: not healthy: cuInit failed with 100 (CUDA_ERROR_NO_DEVICE)"


def snippet(beginning):
    """The block of docs/health.md that starts with this text."""
    blocks = re.findall(r"(?ms)^```text\n(.*?)^```$", harness.read("docs", "health.md"))
    (block,) = [block for block in blocks if block.startswith(beginning)]
    return block


@pytest.mark.parametrize(("driver", "ran", "line"),
                         [(harness.FAKE_DRIVER, True, "driver: healthy, with 1 GPU\n"),
                          (SICK_DRIVER, False, WHY)])
def test_service_starts_only_if_the_driver_is_healthy(case, driver, ran, line):
    systemd = manager.Manager(case.directory, places.usr_local(case.path("tree")))
    if missing := systemd.missing():
        harness.skip(case, "no systemd of our own: " + missing)
    drop_in = snippet("[Service]").replace("/usr/bin/cudaguard", "/usr/local/bin/cudaguard")
    more = ("Type=oneshot", "Environment=LD_LIBRARY_PATH=" + driver,
            "StandardOutput=append:" + case.path("out"),
            "ExecStart=/usr/bin/touch " + case.path("ran"))
    case.make("units/demo.service", drop_in + "\n".join(more) + "\n", 0o644)
    done = systemd.run("systemctl --user start demo")
    assert done.returncode == 0, str(done)
    assert harness.read(case.path("out"))[:len(line)] == line
    assert os.path.exists(case.path("ran")) == ran


@pytest.mark.parametrize(("driver", "code"), [(harness.FAKE_DRIVER, 0), (SICK_DRIVER, 1)])
def test_probe_fails_if_the_driver_is_sick(case, driver, code):
    """No node's agent runs here. A sandbox runs the probe's command as the agent would."""
    (words,) = re.findall(r"command: \[(.*)\]", snippet("readinessProbe:"))
    command = [word.strip(' "') for word in words.split(",")]
    assert command[0] == "/cudaguard/bin/cudaguard"
    mounts = [*places.usr_local(case.path("tree")), "--tmpfs", "/mnt", "--ro-bind",
              case.path("tree"), "/mnt/cudaguard"]
    done = case.unguarded(*harness.sandbox("none", mounts), "env", "-i",
                          "LD_LIBRARY_PATH=" + driver, "/mnt" + command[0], *command[1:])
    assert done.returncode == code, done


@pytest.mark.parametrize(("driver", "state", "why"), [
    (harness.FAKE_DRIVER, "idle", "none"), (SICK_DRIVER, "drain", WHY)])
def test_slurm_drains_a_node_whose_driver_is_sick(case, driver, state, why):
    """slurmd runs the health check when it starts, before the node accepts jobs."""
    case.need_daemon("slurm")
    script = snippet("#!/bin/sh").replace("/usr/bin/cudaguard", "/usr/local/bin/cudaguard")
    # slurmd gives the script an environment of its own, but these programs are unpacked.
    env = slurm_node.environment(case.directory)
    env["LD_LIBRARY_PATH"] = ":".join([driver] + slurm_node.libraries())
    exports = "".join("export %s='%s'\n" % item for item in env.items())
    path = case.make("gpu-health", script.replace("\n", "\n" + exports, 1))
    settings = snippet("HealthCheckProgram=").replace("/etc/slurm/gpu-health", path)
    node = slurm_node.Node(case.directory, "", places.usr_local(case.path("tree")),
                           settings.splitlines())
    case.addCleanup(node.stop)

    def shown():
        return case.unguarded("sinfo", "-h", "-N", "-o", "%T %E", env=node.outer()).stdout

    case.until(lambda: re.match(state, shown()), "the state " + state)
    assert re.match("%s\\w* %s" % (state, re.escape(why)), shown()), node.why()
