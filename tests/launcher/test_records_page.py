# SPDX-License-Identifier: Apache-2.0
"""`cudaguard report` prints the table of docs/records.md for the jobs that the page names."""

import os

from lab import pages
from support import harness, recorded

COMMAND = "cudaguard report --by job,line"
# Each user, with the jobs and the script's line, on one of two hosts.
USERS = [(4001, "ann/ppo.py", 159), (4002, "bob/eval.py", 12), (4003, "cyd/late.py", 7)]


def test_six_jobs_of_three_users_are_the_pages_table(case):
    page = harness.read("docs", "records.md")
    assert COMMAND in page
    os.mkdir(case.path("records"))
    for number, (user, script, line) in enumerate(USERS):
        lines = [recorded.line(
            100 + number, uid=user, slurm=str(4711 + 2 * number + job), at=600 * (2 * number + job),
            host="node3" if number < 2 else "node4", code="%s:%d" % (os.path.basename(script), line),
            python=[{"file": "/home/" + script, "line": line, "function": "<module>"}])
            for job in range(2)]
        case.make("records/%d.jsonl" % user, recorded.text(*lines), 0o644)
    done = case.start(*COMMAND.split()[1:], case.path("records"))
    assert (done.returncode, done.stderr) == (0, ""), str(done)
    assert done.stdout == pages.block(page, having="slurm:4711")
