# SPDX-License-Identifier: Apache-2.0
"""Each record has the right Python stack while other threads collect garbage, execute code and call
sys._current_frames(). cudaguard_watch makes the guard record each call."""

import json
import os

import pytest

from support import fixtures, harness, interpreters

BUSY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "busy.py")
TIMES = 5000 if harness.FULL else 200
HERE = interpreters.found()


def rows(record):
    return [[row["file"], row["line"], row["function"]] for row in record.get("python", [])]


class Busy(harness.DirectoryCase):
    def run_busy(self, path, times, *words):
        """Returns what the program printed and the records."""
        report = self.path("report.jsonl")
        result = harness.run([path, "-W", "ignore", BUSY, str(times), *words], trace=False,
                             timeout=600, env={**interpreters.ENVIRONMENT, "CUDAGUARD_LOG": "off",
                                               "CUDAGUARD_REPORT": report})
        self.assertEqual((result.rc, result.err), (0, ""), result)
        records = harness.records(report)
        os.remove(report)
        return json.loads(result.out), records


make_busy = fixtures.lent("busy", Busy)


def need_stack(path, since=(3, 6)):
    facts = interpreters.facts(path)
    if not facts.readable() or facts.version < since:
        pytest.skip("the guard cannot read this interpreter's stack, or the test needs a newer one")


@pytest.mark.parametrize("python", harness.sample(HERE, 2))
def test_stacks_are_right_one_after_the_other(busy, python):
    need_stack(HERE[python])
    seen, records = busy.run_busy(HERE[python], TIMES)
    assert (len(seen), len(records)) == (TIMES, TIMES)
    wrong = [(rows(record), want, record.get("python_missing"))
             for record, want in zip(records, seen) if rows(record) != want]
    assert wrong[:2] == [], len(wrong)
    # Each call has a different stack, so a wrong row cannot go unnoticed.
    assert len({json.dumps(stack) for stack in seen}) > TIMES * 0.6


@pytest.mark.parametrize("python", harness.sample(HERE, 2))
def test_threads_at_once_have_their_own_stacks(busy, python):
    """A record has the stack of its own thread or says why it has none. The second row is not
    compared, because its line is that of the loop."""
    need_stack(HERE[python], since=(3, 8))  # get_native_id needs 3.8
    stacks, records = busy.run_busy(HERE[python], TIMES, "threads")
    assert len(records) > TIMES // 8  # two threads may share a turn
    assert len({record["tid"] for record in records}) > 1
    lacking = [record["python_missing"] for record in records if "python" not in record]
    assert len(lacking) < len(records) / 100, lacking
    if lacking:
        print("\n  %d of %d without: %s" % (len(lacking), len(records), set(lacking)))
    for record in records:
        if "python" not in record:
            continue
        want = stacks[str(record["tid"])]
        assert (rows(record)[0], rows(record)[2:]) == (want[0], want[2:])
