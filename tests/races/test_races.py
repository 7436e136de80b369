# SPDX-License-Identifier: Apache-2.0
"""In 1,000 fresh processes (48 in the quick run), 64 threads make their first call at once. The
real driver is initialised once, and every thread gets the same answer."""

import pytest

from support import harness, racing


class FirstCalls(harness.Case):

    def test_control_every_thread_calls_the_driver_unguarded(self):
        """Control: the program calls the driver once for each thread and sees eight GPUs."""
        for program, entry_points in (("racers", "o"), ("racers_linked", "l")):
            outcomes = racing.race(program, entry_points, 5, guard=None)
            self.assertEqual([(o.code, o.inits, o.times) for o in outcomes], [(0, 64, 5)])
            self.assertTrue(outcomes[0].out.startswith("64 8:"), outcomes)


@pytest.mark.parametrize(("slow", "times"), ((0, 62), (2000, 63)) if harness.FULL else
                         ((0, 3), (2000, 3)))
@pytest.mark.parametrize(("program", "entry_points", "inits"), racing.RACES)
def test_driver_is_initialised_once_with_one_answer(program, entry_points, inits, slow, times):
    # cuInit is either quick or takes longer than starting all threads.
    outcomes = racing.race(program, entry_points, times, slow=slow,
                           CUDAGUARD_VISIBLE_DEVICES=racing.ALLOWED)
    wanted = racing.Outcome(0, "64 %s\n" % racing.SEEN, "", int(inits), times)
    assert outcomes == [wanted]


@pytest.mark.parametrize(("program", "entry_points", "_"), racing.RACES)
def test_wrong_list_means_force_cpu_for_all_threads(program, entry_points, _):
    """The first thread finds the mistake inside cuInit. FORCE_CPU then applies to all threads,
    whenever they ask."""
    times = 20 if harness.FULL else 5
    outcomes = racing.race(program, entry_points, times, CUDAGUARD_VISIBLE_DEVICES="5,9")
    assert sum(outcome.times for outcome in outcomes) == times
    for outcome in outcomes:
        assert (outcome.code, outcome.inits) == (0, 0), str(outcome)
        counts = dict(reversed(line.split()) for line in outcome.out.splitlines())
        assert set(counts) <= {"!100", "!9"}, str(outcome)
        assert sum(map(int, counts.values())) == 64, str(outcome)
        # By NVML there is no driver, and by every other entry point there is no CUDA.
        by_nvml = sum(entry_points[i % len(entry_points)] in "nm" for i in range(64))
        assert int(counts.get("!9", 0)) == by_nvml, str(outcome)
        about = [line for line in outcome.err.splitlines()
                 if "CUDAGUARD_VISIBLE_DEVICES=" in line]
        assert len(about) == 1, str(outcome)
