# SPDX-License-Identifier: Apache-2.0
"""The CDI specification gives a container the guard, when a sandbox applies it as an engine would.
"""

import json
import os

from support import harness, places

SPECIFICATION = json.loads(places.read("container", "cdi.json"))
(DEVICE,) = SPECIFICATION["devices"]
(MOUNT,) = DEVICE["containerEdits"]["mounts"]
ENV = dict(entry.split("=", 1) for entry in DEVICE["containerEdits"]["env"])


def run(case, *words, **env):
    """Runs a program with the mount and the variables of the specification. The mount point has to
    be below a directory of the sandbox."""
    tree = case.path("tree")
    if not os.path.exists(tree):
        places.usr_local(tree)
    def moved(path):
        return path.replace(MOUNT["containerPath"], "/mnt/cudaguard")
    assert "ro" in MOUNT["options"]
    return places.others_only(harness.run(
        words, guard=False, bwrap=["--tmpfs", "/mnt", "--ro-bind", tree, moved(MOUNT["containerPath"])],
        env={name: moved(value) for name, value in {**ENV, **env}.items()}))


def test_container_with_the_device_is_guarded(case):
    result = run(case, *places.OPEN)
    result.assert_untouched(case)
    assert (result.rc, result.answers.get("cuInit")) == (0, "100"), str(result)
    run(case, "sh", "-c", '"$@"; true', "sh", *places.OPEN).assert_untouched(case)


def test_control_without_its_variables_the_program_reaches_the_driver(case):
    run(case, *places.OPEN, LD_PRELOAD="").assert_reached(case)


def test_container_cannot_change_the_guard(case):
    assert run(case, "sh", "-c", ": >/mnt/cudaguard/lib/x").rc != 0


def test_specification_has_what_engines_demand():
    """A newer version than the members need would be refused by older engines. Members that it does
    not know are an error."""
    assert set(SPECIFICATION) == {"cdiVersion", "kind", "devices"}
    assert SPECIFICATION["cdiVersion"] == "0.5.0"
    assert set(DEVICE) == {"name", "containerEdits"}
    assert set(DEVICE["containerEdits"]) == {"env", "mounts"}
    assert set(MOUNT) == {"hostPath", "containerPath", "options"}


def test_docs_name_the_device_and_the_directory():
    page = places.page("containers")
    assert "--device %s=%s" % (SPECIFICATION["kind"], DEVICE["name"]) in page
    assert "-C " + MOUNT["hostPath"] in page
    assert ENV["LD_PRELOAD"] == MOUNT["containerPath"] + "/lib/libcudaguard.so"
