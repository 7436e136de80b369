# SPDX-License-Identifier: Apache-2.0
"""A project that takes cudaguard in by add_subdirectory keeps its own settings and directories."""

import json
import os
import re
import subprocess

from support import harness

# The parent's own values of what a project at the top sets for itself.
LISTS = """
cmake_minimum_required(VERSION 3.22)
project(parent C CXX)
option(BUILD_TESTING "The parent's own tests" ON)
add_subdirectory("${CUDAGUARD}" guard_of_others)
add_library(user INTERFACE)
target_link_libraries(user INTERFACE cudaguard::cudaguard)  # the name that find_package gives
foreach(name CMAKE_BUILD_TYPE CMAKE_CXX_STANDARD CMAKE_C_COMPILER_LAUNCHER CMAKE_EXPORT_COMPILE_COMMANDS)
  file(APPEND "${CMAKE_BINARY_DIR}/settings" "${name}=${${name}}\\n")
endforeach()
get_property(options DIRECTORY PROPERTY COMPILE_OPTIONS)
get_target_property(launcher launcher RUNTIME_OUTPUT_DIRECTORY)
get_target_property(guard guard LIBRARY_OUTPUT_DIRECTORY)
get_target_property(wrapper guard CXX_COMPILER_LAUNCHER)
file(APPEND "${CMAKE_BINARY_DIR}/settings" "options=${options}\\nlauncher=${launcher}\\nguard=${guard}\\n"
     "wrapper=${wrapper}\\n")
"""
CACHED = ("CMAKE_BUILD_TYPE:STRING=\n", "BUILD_TESTING:BOOL=ON\n")


def configured(tmp_path, *words):
    source, build = tmp_path / "source", tmp_path / "build"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(LISTS, encoding="utf-8")
    done = subprocess.run(["cmake", "-S", str(source), "-B", str(build), "-DCUDAGUARD=" + harness.SOURCE,
                           "-DCUDAGUARD_DEPS=" + harness.DEPS, *words],
                          env={name: value for name, value in os.environ.items()
                               if name != "CMAKE_BUILD_TYPE"},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    settings = dict(line.split("=", 1) for line in
                    (build / "settings").read_text(encoding="utf-8").splitlines())
    return build, settings


def test_parents_settings_and_directories_stay_its_own(tmp_path):
    build, settings = configured(tmp_path)
    own = str(build / "guard_of_others")
    assert settings == {
        "CMAKE_BUILD_TYPE": "", "CMAKE_CXX_STANDARD": "", "CMAKE_C_COMPILER_LAUNCHER": "",
        "CMAKE_EXPORT_COMPILE_COMMANDS": "", "options": "", "launcher": own + "/bin",
        "guard": own + "/lib", "wrapper": "wrapper-NOTFOUND"}
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    for line in CACHED:
        assert line in cache
    assert not (build / "guard_of_others" / "tests").exists()


def test_subproject_uses_ccache_if_asked(tmp_path):
    _, settings = configured(tmp_path, "-DCUDAGUARD_CCACHE=/usr/bin/ccache")
    assert "/usr/bin/ccache" in settings["wrapper"]


def linked_objects(build):
    """The objects of the launcher and its library, as Ninja links them."""
    if not os.path.exists(os.path.join(build, "build.ninja")):
        harness.skip(harness.Case(), "not built by Ninja")
    steps = re.findall(r"(?m)^build (?:bin/cudaguard|shim/launcher/liblauncher_parts\.a): (.*)",
                       harness.read(os.path.join(build, "build.ninja")))
    assert len(steps) == 2
    return {name for step in steps for name in re.findall(r"\S+\.o\b", step)}


def test_all_code_of_the_launcher_is_hardened():
    build = os.path.dirname(os.path.abspath(harness.LIB))
    entries = json.loads(harness.read(os.path.join(build, "compile_commands.json")))
    commands = {os.path.relpath(os.path.join(entry["directory"], output), build): entry["command"]
                for entry in entries for output in re.findall(r" -o (\S+)", entry["command"])}
    linked = linked_objects(build)
    assert len([name for name in linked if name.startswith("policy/")]) > 5
    assert len(linked) > 50
    for name in linked:
        assert "-fstack-protector-strong" in commands[name], name
        assert "-D_FORTIFY_SOURCE=2" in commands[name], name
