# SPDX-License-Identifier: Apache-2.0
"""scripts/bench fails if a limit is missed, and if a row cannot be measured. Its programs are shell
scripts here, which print what they are told to."""

import os
import subprocess
import sys

import pytest

from support import harness

BENCH = os.path.join(harness.SOURCE, "scripts", "bench")
# What the guard costs is $GUARD. All else costs 100, or 200 if a library is added.
NUMBER = """#!/bin/sh
number=100
case $LD_PRELOAD in *bench_empty*) number=200 ;; *cudaguard*) number=$GUARD ;; esac
"""
SPAWN = NUMBER + """
rounds=$2
shift 2
while [ "$rounds" -gt 0 ]; do
  for setup in "$@"; do
    case $setup in
    --) break ;;
    guard=*) spent=$GUARD ;;
    empty=*) spent=200 ;;
    *) spent=$number ;;
    esac
    echo "${setup%%=*} $spent $spent"
  done
  rounds=$((rounds - 1))
done
"""
FIRST = NUMBER + """
[ $# = 0 ] || number=300  # the two libraries
echo "$number"
"""
PROGRAMS = {"bench_spawn": SPAWN, "bench_first_dlopen": FIRST, "bench_first_dlopen_big": FIRST}
ROWS = {"S1": "200", "S4": "300"}  # one of spawned programs, and one of programs that measure


@pytest.fixture(name="build")
def make_build(tmp_path):
    programs = tmp_path / "tests" / "benchmarks"
    for directory in (programs, tmp_path / "lib"):
        directory.mkdir(parents=True)
    for library in (tmp_path / "lib" / "libcudaguard.so", programs / "libbench_empty.so"):
        library.touch()  # ld.so ignores it
    for name, text in PROGRAMS.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    return tmp_path


def bench(build, row, *options, guard="100"):
    return subprocess.run([sys.executable, BENCH, "--build=%s" % build, "--only", row, "--scale=0",
                           *options], env=dict(os.environ, GUARD=guard), capture_output=True,
                          text=True, check=False)


@pytest.mark.parametrize(("row", "good"), list(ROWS.items()))
def test_strict_fails_if_a_ratio_is_above_its_limit(build, row, good):
    done = bench(build, row, "--strict", guard=good)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert ": met]" in done.stdout and "MISSED" not in done.stdout, done
    done = bench(build, row, "--strict", guard="9000")
    assert (done.returncode, done.stderr) == (1, ""), done
    assert "\nlimit missed: %s: " % row in done.stdout, done
    done = bench(build, row, guard="9000")
    assert done.returncode == 0 and "\nlimit missed: %s: " % row in done.stdout, done


@pytest.mark.parametrize(("row", "program", "text", "why"), [
    ("S1", "bench_spawn", None, "bench_spawn was not built"),
    ("S1", "bench_spawn", "exit 3", "exit code 3"),
    ("S1", "bench_spawn", "exit 0", "0 figures of none instead of 4"),
    ("S1", "bench_spawn", "echo none one", "invalid literal"),
    ("S3", "bench_calls", "echo '{\"benchmarks\": []}'", "a figure is missing: 'dlopen_early'"),
    ("S3", "bench_calls", "exit 0", "Expecting value"),
    ("S3", "bench_calls", """echo '{"benchmarks": [{"name": "dlopen_late", "error_occurred": true,
                              "error_message": "no such file"}]}'""", "dlopen_late: no such file"),
    ("S4", "bench_first_dlopen_big", None, "bench_first_dlopen_big was not built"),
    ("V1", "cudaguard", None, "cudaguard was not built")])
def test_row_that_cannot_be_measured_fails(build, row, program, text, why):
    path = build / "tests" / "benchmarks" / program
    path.unlink(missing_ok=True)
    if text:
        path.write_text("#!/bin/sh\n%s\n" % text, encoding="utf-8")
        path.chmod(0o755)
    done = bench(build, row, guard=ROWS.get(row, "100"))
    assert (done.returncode, done.stderr) == (1, ""), done
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("not measured: ")]
    assert line.startswith("not measured: %s: " % row) and why in line, done


def test_rows_after_one_that_cannot_be_measured_are_measured(build):
    (build / "tests" / "benchmarks" / "bench_spawn").unlink()
    done = bench(build, "S1,S4", guard=ROWS["S4"])
    assert done.returncode == 1 and "not measured: S1: " in done.stdout, done
    assert "a small program" in done.stdout and "not measured: S4" not in done.stdout, done
