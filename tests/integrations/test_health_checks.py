# SPDX-License-Identifier: Apache-2.0
"""The snippets of docs/health.md work in a real Slurm, in a real systemd and in a sandbox."""

import os
import re
import subprocess
import time

import pytest

from support import harness, manager, places, slurm_node

SICK_DRIVER = os.path.join(harness.FAKES, "sick")  # cuInit returns 100
WHY = "driver: not healthy: cuInit failed with 100 (CUDA_ERROR_NO_DEVICE)"


def snippet(beginning):
    """The block of docs/health.md that starts with this text."""
    with open(os.path.join(harness.SOURCE, "docs", "health.md"), encoding="utf-8") as stream:
        blocks = re.findall(r"(?ms)^```text\n(.*?)^```$", stream.read())
    (block,) = [block for block in blocks if block.startswith(beginning)]
    return block


@pytest.mark.parametrize(("driver", "ran", "line"),
                         [(harness.FAKE_DRIVER, True, "driver: healthy, with 1 GPU\n"),
                          (SICK_DRIVER, False, WHY)])
def test_service_starts_only_if_the_driver_is_healthy(case, driver, ran, line):
    systemd = manager.Manager(case.directory, places.usr_local(case.path("tree")))
    missing = systemd.missing()
    if missing:
        harness.skip(case, "no systemd of our own: " + missing)
    drop_in = snippet("[Service]").replace("/usr/bin/cudaguard", "/usr/local/bin/cudaguard")
    os.makedirs(case.path("units"), exist_ok=True)
    more = ("Type=oneshot", "Environment=LD_LIBRARY_PATH=" + driver,
            "StandardOutput=append:" + case.path("out"),
            "ExecStart=/usr/bin/touch " + case.path("ran"))
    case.make("units/demo.service", drop_in + "\n".join(more) + "\n", 0o644)
    done = systemd.run("systemctl --user start demo")
    assert done.returncode == 0, str(done)
    with open(case.path("out"), encoding="utf-8") as stream:
        assert stream.read()[:len(line)] == line
    assert os.path.exists(case.path("ran")) == ran
    for name in os.listdir(case.directory):
        if name in ("out", "ran"):
            os.remove(case.path(name))


class Kubernetes(places.Case):
    def test_probe_fails_if_the_driver_is_sick(self):
        """No node's agent runs here. A sandbox runs the probe's command as the agent would."""
        (words,) = re.findall(r"command: \[(.*)\]", snippet("readinessProbe:"))
        command = [word.strip(' "') for word in words.split(",")]
        self.assertEqual(command[0], "/cudaguard/bin/cudaguard")
        mounts = places.usr_local(self.path("tree")) + [
            "--tmpfs", "/mnt", "--ro-bind", self.path("tree"), "/mnt/cudaguard"]
        command[0] = "/mnt" + command[0]
        for driver, code in ((harness.FAKE_DRIVER, 0), (SICK_DRIVER, 1)):
            done = self.unguarded(*harness.sandbox("none", mounts), "env", "-i",
                                  "LD_LIBRARY_PATH=" + driver, *command)
            self.assertEqual(done.returncode, code, done)


class Slurm(places.Case):
    """slurmd runs the health check when it starts, before the node accepts jobs."""

    def state(self, driver, wanted):
        """Starts a node with the health check of the page. Returns its state, as soon as this is
        the wanted one, and the reason."""
        reason = harness.fetch_daemon("slurm")
        if reason:
            harness.skip(self, reason)
        script = snippet("#!/bin/sh").replace("/usr/bin/cudaguard", "/usr/local/bin/cudaguard")
        # slurmd gives the script an environment of its own, but these programs are unpacked.
        env = slurm_node.environment(self.directory)
        env["LD_LIBRARY_PATH"] = ":".join([driver] + slurm_node.libraries())
        exports = "".join("export %s='%s'\n" % item for item in env.items())
        path = self.make("gpu-health", script.replace("\n", "\n" + exports, 1))
        settings = snippet("HealthCheckProgram=").replace("/etc/slurm/gpu-health", path)
        node = slurm_node.Node(self.directory, "", places.usr_local(self.path("tree")),
                               settings.splitlines())
        self.addCleanup(node.stop)
        end = time.monotonic() + slurm_node.PATIENCE
        shown = ""
        while time.monotonic() < end and not re.match(wanted, shown):
            time.sleep(0.2)
            shown = subprocess.run(["sinfo", "-h", "-N", "-o", "%T %E"], env=node.outer(),
                                   text=True, capture_output=True, check=False).stdout
        self.assertNotEqual(shown, "", node.why())
        return shown.splitlines()[0].split(maxsplit=1)

    def test_healthy_node_accepts_jobs(self):
        self.assertEqual(self.state(harness.FAKE_DRIVER, "idle"), ["idle", "none"])

    def test_sick_node_is_drained_with_the_reason(self):
        state, why = self.state(SICK_DRIVER, "drain")
        self.assertRegex(state, "drain")
        self.assertTrue(why.startswith(WHY), why)
