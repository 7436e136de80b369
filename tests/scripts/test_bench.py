# SPDX-License-Identifier: Apache-2.0
"""scripts/bench fails if a limit is missed, and if a row cannot be measured. The programs of rows S1
and S4 are shell scripts here, by which all costs 100, but an empty library 200, the guard $GUARD and
two libraries 300."""

import os
import subprocess
import sys

import pytest

from support import harness

BENCH = os.path.join(harness.SOURCE, "scripts", "bench")
FIRST = """#!/bin/sh
number=100
case $LD_PRELOAD in *bench_empty*) number=200 ;; *cudaguard*) number=$GUARD ;; esac
[ $# = 0 ] || number=300
echo "$number"
"""
SPAWN = """#!/bin/sh
rounds=$2
shift 2
while [ "$rounds" -gt 0 ]; do
  for setup in "$@"; do
    case $setup in --) break ;; guard=*) number=$GUARD ;; empty=*) number=200 ;; *) number=100 ;; esac
    echo "${setup%%=*} $number $number"
  done
  rounds=$((rounds - 1))
done
"""
NO_FIGURE = "#!/bin/sh\necho '{\"benchmarks\": []}'\n"


@pytest.fixture(name="build")
def make_build(tmp_path):
    programs = tmp_path / "tests" / "benchmarks"
    for directory in (programs, tmp_path / "lib"):
        directory.mkdir(parents=True)
    for library in (tmp_path / "lib" / "libcudaguard.so", programs / "libbench_empty.so"):
        library.touch()  # ld.so ignores it
    for name, text in (("first_dlopen", FIRST), ("first_dlopen_big", FIRST), ("calls", NO_FIGURE),
                       ("spawn", SPAWN)):
        (programs / ("bench_" + name)).write_text(text, encoding="utf-8")
        (programs / ("bench_" + name)).chmod(0o755)
    return tmp_path


def bench(build, rows, *options, guard="300"):
    done = subprocess.run(
        [sys.executable, BENCH, "--build=%s" % build, "--only", rows, "--scale=0", *options],
        env=dict(os.environ, GUARD=guard), capture_output=True, text=True, check=False)
    assert done.stderr == "", done
    return done


@pytest.mark.parametrize("row", ["S1", "S4"])
@pytest.mark.parametrize(("guard", "options", "code"), [
    ("300", ["--strict"], 0), ("9000", ["--strict"], 1), ("9000", [], 0)])
def test_strict_fails_if_a_ratio_is_above_its_limit(build, row, guard, options, code):
    done = bench(build, row, *options, guard=guard)
    assert done.returncode == code, done
    assert ("\nlimit missed: %s: " % row in done.stdout) == (guard == "9000"), done
    assert (": met]" in done.stdout) == (guard == "300"), done


@pytest.mark.parametrize(("row", "why"), [
    ("S1", "exit code 3"), ("S3", "a figure is missing: 'dlopen_early'"),
    ("V1", "cudaguard was not built")])
def test_row_that_cannot_be_measured_fails_and_the_next_is_measured(build, row, why):
    spawn = build / "tests" / "benchmarks" / "bench_spawn"
    spawn.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    done = bench(build, row + ",S4")
    assert done.returncode == 1, done
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("not measured: ")]
    assert line.startswith("not measured: %s: " % row) and why in line, done
    assert ": met]" in done.stdout, done
