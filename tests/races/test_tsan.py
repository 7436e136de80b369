# SPDX-License-Identifier: Apache-2.0
"""The proxies, and in one test the guard, too, run under ThreadSanitizer without a report."""

import os
import platform
import re

import pytest

from support import harness, racing

pytestmark = pytest.mark.full

# ThreadSanitizer does not see the locks of ld.so and libc, so it must ignore accesses in code that
# is not instrumented.
TSAN = "exitcode=66 ignore_noninstrumented_modules=1"
UNABLE = re.compile(r"FATAL: ThreadSanitizer: [^\n]*")
SUMMARY = re.compile(r"SUMMARY: ThreadSanitizer: data race.*")
TIMES = 3


def built(directory, name="cudaguard"):
    return os.path.join(racing.DIRECTORY, directory, "lib", name)


@pytest.fixture(name="prefix", scope="module")
def find_prefix():
    """The command that starts the programs, because ThreadSanitizer's shadow memory needs less
    random addresses."""
    case = harness.Case()
    case.setUp()
    if not os.path.exists(os.path.join(racing.DIRECTORY, "racers_tsan")):
        harness.skip(case, "ThreadSanitizer: not built, or not by this compiler: "
                     "cmake --build --preset full")
    reasons = []
    for prefix in ((), ("setarch", platform.machine(), "-R")):
        outcome = racing.race("racers_tsan", "n", 1, guard=None, log=False, prefix=prefix,
                              threads=1)[0]
        if outcome.code == 0:
            return prefix
        found = UNABLE.search(outcome.err)
        reasons.append(found[0] if found else "exit code %d: %s" % (outcome.code, outcome.err))
    harness.skip(case, "ThreadSanitizer: it cannot run here, under setarch -R neither: " +
                 reasons[0])


def race(prefix, guard, program, entry_points, times=TIMES, slow=0):
    return racing.race(program + "_tsan", entry_points, times, guard=guard, slow=slow, log=False,
                       prefix=prefix, TSAN_OPTIONS=TSAN, CUDAGUARD_VISIBLE_DEVICES=racing.ALLOWED)


@pytest.mark.parametrize("libraries", [[built("tsan")],
                                       [built("tsan"), built("tsan", "libcudaguard.so")]],
                         ids=["proxies", "guard and proxies"])
@pytest.mark.parametrize("slow", [0, 2000])
@pytest.mark.parametrize(("program", "entry_points", "_"), racing.RACES)
def test_there_is_no_race(prefix, program, entry_points, _, slow, libraries):
    with racing.library_directory(*libraries) as guard:
        outcomes = race(prefix, guard, program, entry_points, slow=slow)
    for outcome in outcomes:
        first = outcome.err[:4000] + "\n".join(SUMMARY.findall(outcome.err))
        assert outcome.code == 0, first
        assert (outcome.out, outcome.err) == ("64 %s\n" % racing.SEEN, "")


@pytest.mark.parametrize(("program", "entry_points"), [("racers", "o"), ("racers_linked", "l")])
def test_control_proxies_without_a_lock_are_reported(prefix, program, entry_points):
    with racing.library_directory(built("tsan_unlocked")) as guard:
        outcomes = race(prefix, guard, program, entry_points, times=20, slow=2000)
    assert 66 in {outcome.code for outcome in outcomes}
    assert SUMMARY.search("".join(outcome.err for outcome in outcomes))
