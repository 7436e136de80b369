# SPDX-License-Identifier: Apache-2.0
"""The Python stack is right, each time, beside threads that collect garbage, execute code and call
sys._current_frames(). (cudaguard_watch has each touch written down.)"""

import json
import os

import harness
import interpreters

BUSY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "busy.py")
TIMES = 5000 if harness.FULL else 200
HERE = interpreters.found()


class Busy(harness.FolderCase):
    def touch(self, path, **options):
        result = harness.run([path, "-B", BUSY, str(TIMES)], trace=False, timeout=600,
                             env={"CUDAGUARD_REPORT": self.path("report.jsonl"),
                                  "CUDAGUARD_LOG": "off"}, **options)
        self.assertEqual(result.rc, 0, result)
        return json.loads(result.out)

    def test_many(self):
        for name in harness.sample(sorted(HERE), 4):
            path = HERE[name]
            if not interpreters.facts(path).readable():
                continue
            with self.subTest(python=name):
                seen = self.touch(path)
                records = harness.records(self.path("report.jsonl"))
                os.remove(self.path("report.jsonl"))
                self.assertEqual((len(seen), len(records)), (TIMES, TIMES))
                wrong = []
                for want, record in zip(seen, records):
                    got = [[row["file"], row["line"], row["function"]]
                           for row in record.get("python", [])]
                    if got != want:
                        wrong.append((got, want, record.get("python_missing")))
                self.assertEqual((len(wrong), wrong[:2]), (0, []))

    def test_control_a_wrong_row_is_seen(self):
        """Each touch has a stack of its own."""
        seen = self.touch(HERE["system"])
        self.assertGreater(len({json.dumps(rows) for rows in seen}), TIMES * 0.6)


if __name__ == "__main__":
    harness.main(sandboxed=True)
