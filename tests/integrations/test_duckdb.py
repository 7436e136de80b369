# SPDX-License-Identifier: Apache-2.0
"""scripts/integrations/duckdb/records.sql: its views of a directory of records have what
`cudaguard report` counts."""

import gzip
import json
import os
import pwd
import re
import subprocess

from support import launcher, places, recorded
from support.recorded import PACKAGES, line, text

# Statements on the standard input as JSON; the rows of the last one come out.
RUN = """
import duckdb, json, sys
for statement in json.load(sys.stdin):
    result = duckdb.execute(statement)
print(json.dumps([[None if cell is None else cell for cell in row] for row in result.fetchall()]))
"""

BY_EXE = """
SELECT exe, count(*), count(*) FILTER (asked) AS asked, min(first), max(last)
FROM processes GROUP BY exe
"""
BY_LINE = """
SELECT coalesce(python[line_frame + 1].file || ':' || python[line_frame + 1].line,
                code, library) AS line,
       count(DISTINCT (host, pid, exe, job)) AS asked, min(ts), max(ts)
FROM records WHERE attempt GROUP BY ALL ORDER BY asked DESC, line
"""


def views():
    return places.read("duckdb", "records.sql")


def user_name(uid):
    """The name that report has for a uid of a record."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class Queries(launcher.Case):
    def setUp(self):
        super().setUp()
        self.python = self.need_fetched("duckdb") + "/python"
        os.makedirs(self.path("records", "more"))
        pod = "/kubepods.slice/kubepods-pod3f2a11c0_0d5e.slice/cri-containerd-8a0f.scope"
        cgroups = [pod, "/slurm/job_9/step_0", "/", "/user.slice/a.service/x"]
        frames = [{"file": PACKAGES + "a.py", "line": 3, "function": "f"},
                  {"file": PACKAGES + "b.py", "line": 4, "function": "g"}]
        threads = {"file": "/usr/lib/python3.11/threading.py", "line": 995, "function": "run"}
        for number in range(4):
            host = "node%d" % number
            lines = []
            for pid in range(1, 60):
                more = {"host": host, "at": 1000 * number + pid, "uid": 1000 + pid % 3,
                        "script": "s%d.py" % (pid % 4), "exe": "/usr/bin/python3.%d" % (pid % 2 + 11)}
                more.update([{"slurm": str(pid // 10)}, {"cgroup": cgroups[pid % 4]}, {}][pid % 3])
                lines.append(line(pid, decision="allow", event="work", **more))
                if pid % 5 != 0:
                    lines += [line(pid, **more), line(pid, api="nvmlInit_v2", **more)]
                if pid % 7 == 0:
                    lines += [line(pid, decision="allow", event="init", result=0, **more),
                              line(pid, decision="allow", event="work", **more)]
            lines += [line(73, python=[*frames, threads], code="b.py:4", host=host),
                      line(74, python=[threads], host=host),
                      line(70, python=frames, code="b.py:4", host=host), "no record", "{}",
                      line(71, python=None, host="other"), line(72)[:333],
                      line(75, decision="allow", event="exposed"),
                      line(76, decision="refuse", event=None),
                      line(77, decision="allow", event="context", api="cuCtxCreate_v2", device=0),
                      line(78, event="health", reason="late", seconds=1, exe="python3")]
            self.make(("records/more/r%d.jsonl" if number else "records/r%d.jsonl.1") % number,
                      text(*lines))
        # `report` does not read compressed files.
        with gzip.open(self.path("records", "old.jsonl.gz"), "wt", encoding="utf-8") as stream:
            stream.write(text(line(99, host="old")))

    def query(self, *statements):
        done = subprocess.run([self.python, "-c", RUN], input=json.dumps(statements), text=True,
                              capture_output=True, cwd=self.directory, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def groups(self, by):
        done = self.start("report", "--by", by, "--json", "-", self.path("records"))
        self.assertEqual(done.returncode, 0, done)
        document = json.loads(done.stdout)
        self.assertEqual(document["torn"], 4)
        return document["groups"]

    def test_views_count_as_report_does(self):
        for by, column in (("exe", "exe"), ("user", "uid"), ("host", "host"), ("job", "job")):
            wanted = {(group["name"], group["processes"], group["asking"], group["first"],
                       group["last"]) for group in self.groups(by)}
            shown = user_name if by == "user" else str
            rows = {(None if row[0] is None else shown(row[0]), *row[1:])
                    for row in self.query(views(), re.sub(r"\bexe\b", column, BY_EXE))}
            self.assertEqual(rows, wanted, by)
            self.assertGreater(len(rows), 1)
        wanted = [[group["name"], group["asking"], group["first"], group["last"]]
                  for group in self.groups("line")]
        self.assertEqual(self.query(views(), BY_LINE), wanted)
        self.assertEqual(len(wanted), 7)

    def test_view_reads_fields_of_the_schema(self):
        known = recorded.schema("guard", "record", "record.schema.json")["properties"]
        columns = re.findall(r"\b(\w+): '(\w+)", views())
        self.assertGreater(len(columns), 10)
        for name, kind in columns:
            self.assertIn(name, known)
            wanted = {"BIGINT": "integer", "DOUBLE": "number"}.get(kind)
            if wanted and "type" in known[name]:
                self.assertEqual(known[name]["type"], wanted, name)
