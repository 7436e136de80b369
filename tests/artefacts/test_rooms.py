# SPDX-License-Identifier: Apache-2.0
"""A directory includes only headers of lower layers. The writable data of the guard and the proxies
is in few places (shim/guard/state; one struct in each proxy)."""

import glob
import os
import re
import subprocess

import pytest

from support import elf_facts, harness


# The layers from the lowest to the highest. Each may include all layers before it.
GUARD = ["policy"] + ["parts of the state" if name == "parts" else "shim/guard/" + name for name in (
    "text", "sys", "rules", "elf", "parts", "state", "stack", "record", "explain", "proxy_loader",
    "hook", "exports")]
BELOW = {directory: set(GUARD[:place]) for place, directory in enumerate(GUARD)}
BELOW["shim/guard/sys"] = set()
BELOW["shim/guard/exports"].add("shim/api")
BELOW["shim/proxy"] = set(GUARD[:GUARD.index("shim/guard/proxy_loader") + 1]) | {"shim/api"}
BELOW["shim/null_driver"] = {"policy", "shim/guard/elf", "shim/guard/sys", "shim/api",
                             "shim/api/generated"}
BELOW["shim/launcher"] = {"policy", "shim/guard/text", "shim/guard/rules", "shim/api/generated"}
BELOW["shim/api"] = {"shim/api/generated"}
# The part of the guard's state that each directory has, from which shim/guard/state is composed.
PART = re.compile(r"shim/(guard/(stack|record|explain|proxy_loader|hook|exports)|proxy)/state\.h")
# Each of these paths is one layer, although it has several directories.
WHOLE = ("shim/launcher/", "shim/api/")

# {target: the names of all its writable data}
WRITABLE = {
    # Of Process only the latter, because the others are mapped pages.
    "guard": {"inherited", "without_memory"},
    "proxy_driver": {"driver"},
    "proxy_nvml": {"nvml"},
}


def room_of(directory):
    for whole in WHOLE:
        if directory.startswith(whole) and directory not in BELOW["shim/null_driver"]:
            return whole.rstrip("/")
    return directory


def layer_of(path):
    return "parts of the state" if PART.fullmatch(path) else room_of(os.path.dirname(path))


def wrong_includes(source):
    """Returns, for example, ["shim/guard/elf/x.h includes shim/guard/state/y.h"]."""
    found = []
    for top in ("policy", "shim"):
        for directory, _, files in os.walk(os.path.join(source, top)):
            for name in files:
                if not name.endswith((".h", ".cpp", ".c", ".S", ".inc")):
                    continue
                path = os.path.join(directory, name)
                with open(path, encoding="utf-8") as stream:
                    text = stream.read()
                own = layer_of(os.path.relpath(path, source))
                for wanted in re.findall(r'^ *# *include +"((?:policy|shim)/.*)"', text, re.M):
                    layer = layer_of(wanted)
                    if layer != own and layer not in BELOW.get(own, ()):
                        found.append("%s includes %s" % (os.path.relpath(path, source), wanted))
    return found


def parts_of_state(source):
    """Returns {("hook", "HookProcess"), …}."""
    found = set()
    for path in glob.glob(os.path.join(source, "shim", "**", "state.h"), recursive=True):
        with open(path, encoding="utf-8") as stream:
            names = re.findall(r"^struct (\w+(?:Process|Inherited)|PythonFrames) \{", stream.read(), re.M)
        found |= {(os.path.basename(os.path.dirname(path)), name) for name in names}
    return found


def member_of(path, struct):
    """Returns the name of the member that is such a struct, or None."""
    with open(path, encoding="utf-8") as stream:
        match = re.search(r"^  %s (\w+);" % struct, stream.read(), re.M)
    return match and match[1]


def writable(objects):
    """Returns the names, without namespaces, of the data objects in a section that stays writable.
    """
    found = set()
    for path in objects:
        sections = {}
        for line in elf_facts.tool_output("readelf", "-SW", path).splitlines():
            match = re.match(r" +\[ *(\d+)\] (\S+) +\w+ +\S+ \S+ \S+ \S+ +([A-Za-z]+) ", line)
            if match and set("WA") <= set(match[3]) and not match[2].startswith(".data.rel.ro"):
                sections[match[1]] = match[2]
        for line in elf_facts.tool_output("readelf", "-sW", "--demangle", path).splitlines():
            fields = line.split(None, 7)
            if len(fields) == 8 and fields[3] in ("OBJECT", "TLS") and fields[6] in sections:
                found.add(re.sub(r".*::", "", fields[7]))
    return found


def objects_of(target):
    with open(os.path.join(harness.BUILD, "tests", "artefacts", target + ".objects"),
              encoding="utf-8") as stream:
        return stream.read().split("\n")


def test_includes_go_to_lower_layers_only():
    assert wrong_includes(harness.SOURCE) == []


def test_every_directory_is_in_a_layer():
    directories = {
        room_of(os.path.relpath(directory, harness.SOURCE))
        for directory, _, files in os.walk(os.path.join(harness.SOURCE, "shim"))
        if any(file.endswith((".h", ".cpp")) for file in files)}
    assert directories - {"shim", "shim/api/generated"} <= set(BELOW)


@pytest.mark.parametrize(("path", "wanted", "wrong"), [
    ("policy/a.cpp", "shim/guard/sys/system.h", True),
    ("shim/guard/proxy_loader/a.cpp", "shim/proxy/guard.h", True),
    ("shim/proxy/a.cpp", "shim/guard/hook/null_drivers.h", True),
    ("shim/launcher/run/a.cpp", "shim/guard/record/record.h", True),
    ("shim/guard/hook/state.h", "shim/guard/state/process.h", True),
    ("shim/guard/state/process.h", "shim/guard/hook/null_drivers.h", True),
    ("shim/guard/state/process.h", "shim/guard/hook/state.h", False),
    ("shim/launcher/doctor/a.cpp", "policy/text.h", False)])
def test_control_wrong_include_is_found(tmp_path, path, wanted, wrong):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text('#include "%s"\n' % wanted, encoding="utf-8")
    assert len(wrong_includes(tmp_path)) == int(wrong)


def test_control_each_kind_of_writable_data_is_found(tmp_path):
    source = """
        namespace a { namespace { int first; } int* f() { return &first; } }
        int f() { static int second = 2; return second++; }
        thread_local int third; int g() { return third++; }
        extern const char* const fourth[] = {"a", "b"};"""
    path = str(tmp_path / "a.o")
    subprocess.run([os.environ.get("CXX", "c++"), "-fPIC", "-x", "c++", "-c", "-o", path, "-"],
                   input=source, text=True, check=True)
    assert writable([path]) == {"first", "second", "third"}


def test_each_part_is_composed_and_tested():
    """Each part is a member of Process or of InheritedState, and tests/unit has it."""
    with open(os.path.join(harness.SOURCE, "tests", "unit", "zero_pages_test.cpp"),
              encoding="utf-8") as stream:
        tested = stream.read()
    for _, name in sorted(parts_of_state(harness.SOURCE)):
        whole = "inherited.h" if name.endswith("Inherited") else "process.h"
        member = member_of(os.path.join(harness.SOURCE, "shim", "guard", "state", whole), name)
        assert member is not None, "add %s to shim/guard/state/%s" % (name, whole)
        assert re.search(r"\b%s\b" % name, tested), "add %s to zero_pages_test.cpp" % name
        assert re.search(r"CG_PART\(\w+, %s\)" % member, tested), "add a CG_PART of " + name


def test_each_lock_is_in_the_state_that_a_forked_child_has_empty():
    """A child that inherited a lock as a thread of its parent held it would wait for ever."""
    locks = []
    for path in glob.glob(os.path.join(harness.SOURCE, "shim", "**", "*.cpp"), recursive=True):
        with open(path, encoding="utf-8") as stream:
            locks += re.findall(r"\bLock \w+\((.*)\);", stream.read())
    assert len(locks) >= 3
    assert [lock for lock in locks if not re.match(r"(\w+\.)?process(\(\))?\.", lock)] == []


def test_each_directory_with_state_has_a_part():
    assert {directory for directory, _ in parts_of_state(harness.SOURCE)} == {
        "stack", "record", "explain", "proxy_loader", "proxy", "hook", "exports"}
    # Control: another struct of a state.h is no member.
    assert member_of(os.path.join(harness.SOURCE, "shim/guard/state/process.h"), "Places") is None


@pytest.mark.parametrize(("target", "names"), WRITABLE.items())
def test_writable_data_is_the_listed_state(target, names):
    assert writable(objects_of(target)) == names


@pytest.mark.parametrize(("target", "names"), WRITABLE.items())
def test_state_starts_as_zeros(target, names):
    sections = "".join(
        elf_facts.tool_output("readelf", "-SW", path) for path in objects_of(target))
    for name in names:
        assert ".bss." + name in sections, name
