# SPDX-License-Identifier: Apache-2.0
"""cudaguard report: records of finished jobs, whole, cut, rotated, forged.

pytest --write-golden rewrites golden/report.txt."""

import gzip
import json
import os
import re
import time

import pytest

from support import fixtures, harness, launcher, machine, observed, page, recorded
from support.recorded import PACKAGES, line, start, text

NO_USER = 3999999999  # in no /etc/passwd
BY = ("exe", "user", "host", "job", "rule", "line")
NASTY = ["a\x1b[31mred", "new\nline", "tab\there", "\u202eevil", "\x9b31m", "caf\u00e9",
         "\x00zero", 'quo"te', "back\\slash", "\x7f", "\ufffd", "x" * 5000]
PODS = ("/kubepods/burstable/pod3f2a11c0-0d5e-4a0c-9b1f-7a3e55d0c0a2/8a0f",
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod3f2a11c0_0d5e_4a0c_9b1f_"
        "7a3e55d0c0a2.slice/cri-containerd-8a0f.scope")
POD = "kubernetes:3f2a11c0-0d5e-4a0c-9b1f-7a3e55d0c0a2"


class Case(launcher.Case):
    def report(self, *words, rc=0, **more):
        done = self.start("report", *words, **more)
        self.assertEqual(done.returncode, rc, done)
        # Whatever the names are, a terminal obeys nothing of them.
        self.assertNotRegex(done.stdout + done.stderr, page.HIDDEN)
        return done

    def shown(self, *words, **more):
        return self.report(*words, **more).stdout

    def json(self, *words, **more):
        document = json.loads(self.shown("--json", "-", *words, **more))
        if harness.jsonschema is not None:
            self.validates(document, "launcher", "print", "report.schema.json")
        return document

    def groups(self, by, *words, **more):
        """[(name, processes, asking)]"""
        return [(group["name"], group["processes"], group["asking"])
                for group in self.json("--by", by, *words, **more)["groups"]]


class Reading(Case):
    def test_one_record_makes_one_process_and_one_place(self):
        document = self.json(self.make("r.jsonl", text(line(native=recorded.NATIVE))))
        (process,), (site,) = document["processes"], document["calls"]
        self.assertEqual((process["host"], process["pid"], process["uid"], process["command"]),
                         ("node7", 7, 1000, "python3 ppo.py"))
        self.assertEqual((process["job"], process["refused"]),
                         ("systemd:x.service", ["cuInit by libc10_cuda.so"]))
        self.assertEqual((site["line"], site["library"], site["asked"], site["denied"]),
                         ("ppo.py:159", "libc10_cuda.so", "cuda", True))
        self.assertEqual(site["native"][1],
                         {"module": PACKAGES + "torch/lib/libc10_cuda.so", "offset": 0x1a2b})
        self.assertEqual((site["first"], site["processes"]), (recorded.TIME, [0]))

    def test_order_of_fields_does_not_matter(self):
        """Who ships records may order their fields, and put others in front."""
        record = json.loads(line())
        mixed = {"shipped": {"api": "x", "v": 2}, **{name: record[name] for name in sorted(record)}}
        self.assertEqual(self.json("-", input=json.dumps(mixed) + "\n"),
                         self.json("-", input=text(line())))

    def test_torn_records_are_counted_and_the_next_one_is_read(self):
        """At the end of a file, and so many in a row that they exceed any line."""
        first, second = line(pid=7), line(pid=8)
        document = self.json("-", input=first + "\n" + second[:-5])
        self.assertEqual((document["torn"], document["records"]), (1, 1))
        document = self.json("-", input=first[:-20] * 3000 + first + "\n" + second + "\n")
        self.assertEqual((document["torn"], document["records"]), (3000, 2))

    def test_process_that_has_not_asked_is_only_counted(self):
        shown = self.shown("-", input=text(start(pid=9), line()))
        self.assertIn("of 2 processes on 1 host", shown)
        self.assertIn("cudaguard: 1 process asked: 1 refused\n", shown)

    def test_job_comes_from_slurm_or_the_cgroup(self):
        for wanted, fields in (
                ("slurm:1234", {"slurm": "1234"}), ("slurm:77", {"cgroup": "/slurm/uid_0/job_77/x"}),
                (POD, {"cgroup": PODS[0]}), (POD, {"cgroup": PODS[1]}),
                ("systemd:app-a.scope", {"cgroup": "/user.slice/user@1.service/app-a.scope/x"}),
                (None, {"cgroup": "/"}), (None, {"cgroup": None}), (None, {"cgroup": "/a/pod"})):
            self.assertEqual(self.groups("job", "-", input=text(line(**fields))), [(wanted, 1, 1)])

    def test_rule_that_decided_is_shown(self):
        """Nothing is, if no record has one."""
        rule = "/etc/cudaguard.conf:7"
        ruled = [line(7, rule=rule), line(8, rule=rule, decision="allow", event="init"), line(9)]
        self.assertIn("  rule %s: 2 processes\n" % rule, self.shown("-", input=text(*ruled)))
        self.assertEqual(self.groups("rule", "-", input=text(*ruled)), [(rule, 2, 2), (None, 1, 1)])
        document = self.json("-", input=text(*ruled))
        self.assertEqual([process.get("rule") for process in document["processes"]],
                         [rule, rule, None])
        self.assertNotIn("rule", self.shown("-", input=text(line())))


SERIES = re.compile(r'(?:(\w+)="((?:[^"\\\n]|\\["\\])*)",?)')


class Prometheus(Case):
    def series(self, *lines):
        """{the values of the labels: count}"""
        shown = self.start("report", "--prometheus", "-", "-", input=text(*lines))
        self.assertEqual((shown.returncode, shown.stderr), (0, ""), shown)
        first, second, *rows = shown.stdout.splitlines()
        self.assertTrue(first.startswith("# HELP cudaguard_records "))
        self.assertEqual(second, "# TYPE cudaguard_records gauge")
        found = {}
        for row in rows:
            labels, count = re.fullmatch(r"cudaguard_records\{(.*)\} (\d+)", row).groups()
            self.assertEqual(SERIES.sub("", labels), "")
            values = dict(SERIES.findall(labels))
            found[tuple(values.get(name, "") for name in ("decision", "rule", "user",
                                                          "slurm_job"))] = int(count)
        return found

    def test_calls_are_counted_by_decision_user_and_job(self):
        """Other records are none of calls."""
        health = line(event="health", decision="deny", api=None, reason="x", seconds=1.0)
        self.assertEqual(self.series(
            line(), line(api="nvmlInit_v2"), line(uid=0), line(slurm="1234"), start(), health,
            line(cgroup="/slurm/uid_0/job_77/x", decision="allow", event="init", result=0),
            line(native=recorded.NATIVE), "no record", line(rule="/etc/cudaguard.conf:7")), {
                ("deny", "/etc/cudaguard.conf:7", "1000", ""): 1, ("deny", "", "1000", ""): 3,
                ("deny", "", "0", ""): 1,
                ("deny", "", "1000", "1234"): 1, ("allow", "", "1000", "77"): 1})
        self.assertEqual(self.series(), {})

    def test_values_of_labels_are_printable_escaped_and_cut(self):
        for value in NASTY:
            ((_, _, _, job),) = self.series(line(slurm=value))
            shown = re.sub("[\0-\x1f\x7f-\x9f\u202e]", "?", value.replace("\t", " "))[:200]
            self.assertEqual(re.sub(r'\\(["\\])', r"\1", job), shown)

    def test_value_that_is_no_text_does_not_spoil_the_file(self):
        """node_exporter leaves out a file that is not UTF-8, with the counts of all users."""
        self.assertEqual(self.series(line(slurm="\udc00"), line(slurm="\udc01")),
                         {("deny", "", "1000", "???"): 2})

    def test_invented_jobs_make_no_endless_list(self):
        found = self.series(*(line(slurm=str(job)) for job in range(10050)))
        self.assertEqual(len(found), 10001)
        self.assertEqual(found["deny", "(others)", "(others)", "(others)"], 50)

    def test_file_is_replaced_in_one_step(self):
        """node_exporter may read it at any time."""
        path = self.make("cudaguard.prom", "", 0o644)
        os.remove(path)
        for pid in (1, 2):
            self.report("--prometheus", path, "-", input=text(line(pid=pid)))
        before = os.open(path, os.O_RDONLY)
        self.addCleanup(os.close, before)
        self.report("--prometheus", path, "-", input=text(line(), line(uid=0)))
        self.assertEqual(os.read(before, 1 << 16).count(b"\n"), 3)  # the old file is as it was
        self.assertEqual(harness.read(path).count("\n"), 4)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o644)
        self.assertEqual(os.listdir(self.directory), ["cudaguard.prom"])


make_reading = fixtures.lent("reading", Reading)


def asks(pid, file, number):
    frames = [{"file": file, "line": number, "function": "<module>"}]
    return line(pid, python=frames, code="%s:%d" % (os.path.basename(file), number))


@pytest.mark.parametrize(("files", "name"), [
    (["/a/b/../c/train.py", "/a/c/train.py", "//a/./c//train.py", "/a/b/d/../../c/train.py"],
     "/a/c/train.py:5"),
    (["src/../train.py", "train.py", "./train.py"], "train.py:5"),
    (["../train.py", "x/../../train.py"], "../train.py:5"),
    (["s3://bucket/../train.py"], "s3://bucket/../train.py:5")])
def test_spellings_of_one_path_are_one_line(reading, files, name):
    """No such file is there: the names alone decide."""
    records = text(*(asks(pid, file, 5) for pid, file in enumerate(files, 1)),
                   asks(90, files[0], 6))
    count = len(files)
    assert reading.groups("line", "-", input=records)[0] == (name, count, count)
    assert len(reading.groups("line", "-", input=records)) == 2
    assert [place["name"] for place in reading.json("-", input=records)["places"]][0] == name


def test_users_have_the_names_that_this_machine_knows(reading):
    records = text(line(1, uid=0), line(2, uid=0), line(3, uid=NO_USER))
    assert reading.groups("user", "-", input=records) == [("root", 2, 2), (str(NO_USER), 1, 1)]


def test_two_keys_count_each_pair(reading):
    path = reading.make("r.jsonl", text(
        line(1, "a.py", slurm="7"), line(1, "b.py", slurm="7", at=60), line(2, "a.py", slurm="7"),
        line(3, "a.py", slurm="8", at=5), line(4, "a.py", slurm="8", decision="allow", event="work")))
    rows = [(row["name"], row["second"], row["processes"], row["asking"])
            for row in reading.json("--by", "job,line", path)["groups"]]
    assert rows == [("slurm:7", "/home/u/a.py:159", 2, 2), ("slurm:7", "/home/u/b.py:159", 1, 1),
                    ("slurm:8", "/home/u/a.py:159", 1, 1)]
    rows = reading.json("--by", "host,job", path)["groups"]
    assert [(row["name"], row["second"], row["processes"], row["asking"]) for row in rows] == [
        ("node7", "slurm:7", 2, 2), ("node7", "slurm:8", 2, 2)]
    assert "\ncudaguard: 4 processes asked: 1 worked, " in reading.shown(path)
    shown = reading.shown("--by", "job,line", path).splitlines()
    assert [row.split()[-2:] for row in shown[1:]] == [
        ["job", "line"], ["slurm:7", "/home/u/a.py:159"], ["slurm:7", "/home/u/b.py:159"],
        ["slurm:8", "/home/u/a.py:159"]]


@pytest.mark.parametrize("keys", ["", "x", "job,", ",job", "job,x", "job,job", "job,line,exe"])
def test_other_keys_are_refused(reading, keys):
    done = reading.report("--by", keys, os.devnull, rc=125)
    assert '--by "%s" is not accepted' % keys in done.stderr or "--by needs" in done.stderr


def test_since_leaves_out_older_records(reading):
    now = time.time()
    day = 86400
    ages = {1: 8 * day, 2: 6 * day, 3: day - 600, 4: 1800, 5: 30}
    path = reading.make("r.jsonl", text(
        *(line(pid, ts=now - age, native=recorded.NATIVE) for pid, age in ages.items()),
        start(6, ts=now - 9 * day), line(6, ts=now - 9 * day)))
    date = time.strftime("%Y-%m-%d", time.gmtime(now - 2 * day))
    for since, pids, older in (("7d", {2, 3, 4, 5}, 3), ("1d", {3, 4, 5}, 4), ("1h", {4, 5}, 5),
                               ("2m", {5}, 6), (date, {3, 4, 5}, 4), ("99999d", {1, 2, 3, 4, 5, 6}, 0),
                               ("0000099d", None, 0)):
        if pids is None:
            assert "--since" in reading.report("--since", since, path, rc=125).stderr
            continue
        document = reading.json("--since", since, path)
        assert {one["pid"] for one in document["processes"]} == pids, since
        assert (document["older"], document["records"]) == (older, 7 - older), since
    assert "  left out: 6 records from before 20" in reading.shown("--since", "2m", path)
    assert "since" not in reading.json(path)


@pytest.mark.parametrize("since", ["", "7", "d", "7w", "-7d", "2026-02-30", "2026-1-1x", "x", "7.5d",
                                   "2026-11-27T10"])
def test_other_times_are_refused(reading, since):
    done = reading.report("--since", since, os.devnull, rc=125)
    assert '--since "%s" is not accepted' % since in done.stderr or "--since needs" in done.stderr


@pytest.mark.parametrize("others", [["./r.jsonl"], ["link.jsonl"], ["hard.jsonl"], ["."],
                                    ["d", "./d/"], ["-"]])
def test_file_with_two_names_counts_once(reading, others):
    path = reading.make("r.jsonl", text(line(1), line(2)))
    os.mkdir(reading.path("d"))
    os.link(path, reading.path("hard.jsonl"))
    os.link(path, reading.path("d", "r.jsonl"))
    os.symlink("r.jsonl", reading.path("link.jsonl"))
    with open(path, encoding="utf-8") as stdin:
        document = reading.json("r.jsonl", *others, cwd=reading.path(), stdin=stdin)
    assert (document["records"], document["files"]) == (2, 1)
    reading.make("copy.jsonl", text(line(1), line(2)))  # the control
    assert reading.json("r.jsonl", "copy.jsonl", cwd=reading.path())["records"] == 4


FRAMES = json.loads(line())["python"]
OTHERS = [{**FRAMES[1], "file": "/x/" + name} for name in ("my_ppo.py", "ppo.py")]
CELL = {"file": "/tmp/ipykernel_7/2815143473.py", "line": 3, "function": "<module>"}
LIBFFI = "/usr/lib/libffi.so.8+0x1"


@pytest.mark.parametrize(("fields", "shown", "place"), [
    ({}, "ppo.py:159 through libc10_cuda.so", "/home/u/ppo.py:159"),
    ({"python": FRAMES, "code": "torch/cuda/__init__.py:118"},
     "torch/cuda/__init__.py:118 through libc10_cuda.so", PACKAGES + "torch/cuda/__init__.py:118"),
    ({"python": [*OTHERS, *FRAMES], "code": "ppo.py:159"}, "ppo.py:159 through libc10_cuda.so",
     "/x/ppo.py:159"),
    ({"python": FRAMES}, None, "libc10_cuda.so"),
    ({"python": [CELL], "code": "notebook cell, line 3"},
     "notebook cell, line 3 through libc10_cuda.so", "notebook cell, line 3"),
    ({"python": None, "code": "ppo.py:159"}, "ppo.py:159 through libc10_cuda.so", "ppo.py:159"),
    ({"python": None}, None, "libc10_cuda.so"),
    ({"caller": LIBFFI, "library": "ctypes/cffi"}, "ppo.py:159 through ctypes/cffi",
     "/home/u/ppo.py:159"),
    ({"caller": "?", "library": "generated code", "code": None}, None, "generated code"),
    # CUDA's runtime is no place of the user's.
    ({"library": "libcudart.so.12", "passes_on": True, "code": None, "native": recorded.NATIVE},
     None, "libc10_cuda.so"),
    ({"library": "libcudart.so.12", "passes_on": True, "code": None}, None, "libcudart.so.12"),
    ({"library": None, "code": None}, None, "?")])
def test_group_is_named_by_the_users_line_and_the_library(reading, fields, shown, place):
    """The record has both names. The line has its path if a frame has one. Without a line, the
    library alone is the name."""
    records = text(line(**fields))
    assert reading.groups("line", "-", input=records) == [(place, 1, 1)]
    asked = re.findall(r"(?m)^  asked by (.*): cuInit$", reading.shown("-", input=records))
    assert asked == ([shown] if shown else [])


def test_lines_of_files_with_the_same_name_have_their_paths(reading):
    records = text(*(line(pid=number, code="train.py:1", line_frame=0, python=[
        {"file": path, "line": 1, "function": "<module>"}])
        for number, path in enumerate(("/a/train.py", "/b/train.py"), 1)), line(pid=3))
    asked = re.findall(r"(?m)^  asked by (.*) through", reading.shown("-", input=records))
    assert asked == ["/a/train.py:1", "/b/train.py:1", "ppo.py:159"]


@pytest.mark.parametrize("name", ["t.py", "main.py"])
def test_file_that_has_two_names_is_one_place(reading, name):
    """A symbolic link to it, or to its directory. Another line or another file is another place."""
    for directory in ("real", "other"):
        os.mkdir(reading.path(directory))
        reading.make(directory + "/t.py", "")
    os.symlink("real", reading.path("link"))
    if name == "main.py":
        os.symlink("t.py", reading.path("real", name))

    def record(path, number, code):
        frame = {"file": path, "line": number, "function": "main"}
        return line(pid=number, python=[frame], code="%s:%d" % (code, number), line_frame=0)

    real, link, other = (reading.path(*words) for words in (
        ("real", "t.py"), ("link", name), ("other", "t.py")))
    pair = text(line(pid=4), record(real, 5, "t.py"), record(link, 5, name))
    shown = reading.shown("-", input=pair)
    assert len(re.findall(r"(?m)^  asked by (?:t|main).py:5 ", shown)) == 1, shown
    assert (real + ":5", 1, 1) in reading.groups("line", "-", input=pair)
    three = text(record(link, 5, name), record(real, 6, "t.py"), record(other, 5, "t.py"))
    assert len(reading.groups("line", "-", input=three)) == 3


class Files(Case):
    def test_directory_is_read_with_its_rotated_files(self):
        """Other files and compressed files are left out."""
        os.makedirs(self.path("logs", "node1"))
        for number, name in enumerate(("report.jsonl", "report.jsonl.1", "node1/x.jsonl-20261122")):
            self.make("logs/" + name, text(line(pid=number + 1)))
        self.make("logs/notes.txt", text(line(pid=9)))
        self.make("logs/old.jsonl.2.gz", gzip.compress(text(line(pid=9)).encode()))
        os.mkfifo(self.path("logs", "pipe.jsonl"))
        document = self.json(self.path("logs"))
        self.assertEqual((document["files"], document["compressed"]), (3, 1))
        self.assertEqual({process["pid"] for process in document["processes"]}, {1, 2, 3})
        self.assertIn("  left out: 1 compressed file (", self.shown(self.path("logs")))
        # Several, one twice is read twice.
        more = self.json(self.path("logs"), self.path("logs", "notes.txt"))
        self.assertEqual((more["files"], len(more["processes"])), (4, 4))

    def test_text_says_there_are_no_records(self):
        os.mkdir(self.path("empty"))
        self.assertEqual(self.shown(self.path("empty")), "cudaguard: no records in 0 files\n")
        self.assertEqual(self.shown(self.make("text", "no record\n")), (
            "cudaguard: no records in 1 file\n"
            "  records: 1 line left out that is no cudaguard record\n"))
        self.assertEqual(self.shown("-"), "cudaguard: no records in 1 file\n")
        self.assertEqual(self.json(self.path("empty"))["records"], 0)

    def test_another_users_link_in_a_directory_is_not_followed(self):
        """It could lead root's report to any file. Those of this user and of root are followed."""
        machine.need("other_users")
        record = self.make("record", text(line()))
        os.makedirs(self.path("spool", "below"))
        for name, owner in (("own.jsonl", 0), ("below/others.jsonl", 1000)):
            os.symlink(record, self.path("spool", name))
            os.lchown(self.path("spool", name), owner, owner)
        document = self.json(self.path("spool"))
        self.assertEqual((document["files"], document["unreadable"]), (1, 1))
        self.assertIn("below/others.jsonl\" is another user's link)", self.shown(self.path("spool")))

    def test_holes_of_a_file_cost_nothing(self):
        """Any user can put a file of terabytes into a spool directory, which takes no space."""
        path = self.make("spool.jsonl", text(line()))
        os.truncate(path, 1 << 42)
        with open(path, "a", encoding="utf-8") as stream:
            stream.write("\n" + text(line(pid=8)))
        os.truncate(path, os.path.getsize(path) + (1 << 42))
        with open(path, "a", encoding="utf-8") as stream:  # as after a crash of the machine
            stream.write(text(line(pid=9)))
        document = self.json(path)
        self.assertEqual((document["records"], document["not_understood"]), (3, 2))

    def test_unreadable_files_of_a_directory_are_left_out(self):
        os.mkdir(self.path("directory.jsonl"))
        self.make("locked.jsonl", text(line()), 0o000)
        os.mkdir(self.path("below"))
        self.make("below/readable.jsonl", text(line(pid=2)))
        os.mkdir(self.path("below", "closed"))
        os.chmod(self.directory, 0o755)
        # Root may read everything.
        report = [*self.ordinary_user(), "report"]
        self.refused(self.unguarded(*report, self.path("locked.jsonl")), 125, "locked.jsonl",
                     "Permission denied")
        # Of a directory the others are read.
        self.make("open.jsonl", text(line()))
        done = self.unguarded(*report, self.directory)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertIn("2 processes asked", done.stdout)
        self.assertRegex(done.stdout, r"left out: 1 unreadable path \(.*locked.jsonl.*Permission")
        # Its directories likewise.
        os.chmod(self.path("below", "closed"), 0o000)
        document = json.loads(self.unguarded(*report, "--json", "-", self.directory).stdout)
        self.assertEqual((document["files"], document["unreadable"]), (2, 2))
        self.refused(self.unguarded(*report, self.path("below", "closed")), 125, "below/closed",
                     "Permission denied")


class Forged(Case):
    def test_forged_names_are_printed_as_ascii(self):
        """JSON has the names whole."""
        lines = []
        for number, name in enumerate(NASTY):
            frames = [{"file": "/" + name, "line": 3, "function": name}]
            lines.append(line(pid=number + 1, host=name, exe="/" + name, argv=[name, name],
                              slurm=name, rule=name, api=name, object=name, caller=name + "+0x1",
                              python=frames, native=[name + "+0x2"]))
        records = self.make("r.jsonl", text(*lines))
        self.report(records)
        for by in BY:
            shown = self.shown("--by", by, records)
            self.assertLess(max(map(len, shown.splitlines())), 600)
        document = self.json(records)
        self.assertEqual([process["host"] for process in document["processes"]], NASTY)
        self.assertEqual([process["exe"][1:] for process in document["processes"]], NASTY)
        self.assertEqual({name for name, *_ in self.groups("host", records)}, set(NASTY))

    def test_line_that_is_not_utf8_is_no_record(self):
        for codec in ("latin-1", "utf-16", "cp1252"):
            bad = (line(host="caf\u00e9").replace("\\u00e9", "\u00e9") + "\n").encode(codec)
            done = self.start("report", "--json", "-", "-", input=bad, text=False)
            document = json.loads(done.stdout)
            self.assertEqual(document["records"], 0)
            self.assertGreaterEqual(document["not_understood"], 1)
        whole = line(host="caf\u00e9").replace("\\u00e9", "\u00e9")
        self.assertEqual(self.groups("host", "-", input=whole + "\n"), [("caf\u00e9", 1, 1)])

    def test_odd_values_of_a_field_do_not_end_report(self):
        """Each field gets each kind of value."""
        record = json.loads(line(object="o", event="init", decision="allow", result=1, device=1,
                                 rule="r"))
        lines = []
        for name in record:
            for value in ("null", "true", "-1", "1e999", "9" * 400, "0.5", '""', '"\\ud800"',
                          '"\\u0000"', "[]", "{}", "[[]]", '[{"file":[{}]}]', "[" * 5000,
                          '{"a":' * 5000, '[{"line":-1}]', '[1,"a"]', "18446744073709551616"):
                values = {key: json.dumps(one) for key, one in record.items()}
                values[name] = value
                lines.append("{%s}" % ",".join('"%s":%s' % pair for pair in values.items()))
        document = self.json("-", input=text(*lines))
        self.assertEqual(document["records"] + document["not_understood"] + document["torn"],
                         len(lines))
        self.assertGreater(document["records"], len(lines) / 2)
        for by in BY:
            self.json("--by", by, "-", input=text(*lines))
        self.shown("-", input=text(*lines))


class Shown(observed.Case, Case):
    def test_report_prints_what_observe_prints(self):
        copy = self.path("copy")
        script = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
        program = self.make("attempt.py", script)
        result = self.observe(["sh", "-c", "python3 %s; %s nv.init" % (
            program, observed.box.program("open"))], ["--cpu", "--report", copy])
        summary = self.summary(result)
        self.assertEqual(len(summary.order), 2, result)
        self.assertIn("  asked by attempt.py:1 through ctypes/cffi: cuInit", summary.rest)
        first, _, rest = self.shown(copy).partition("\n")
        self.assertRegex(first, r"^cudaguard: 1 file, 2 records of 2 processes on 1 host, ")
        self.assertEqual(rest, summary.text)
        # The control: without the guard it reaches the driver.
        unguarded = observed.box.start(["python3", program])
        self.assertIn("cuInit:initialised", unguarded.fake_calls)

    def test_text_matches_the_golden_file(self):
        """The text is that of a cluster's day. It has 100 columns, except for names."""
        lines = [start(pid, slurm="1000") for pid in range(1, 12)]
        for pid in range(1, 40):
            more = {"host": "node%d" % (pid % 3), "slurm": str(1000 + pid // 10), "at": 60 * pid,
                    "uid": NO_USER - pid % 2}
            lines.append(line(pid, **more))
            if pid % 4 == 0:
                lines.append(line(pid, script="ppo.py", api="nvmlInit_v2", **more))
        long = "train_a_model_with_a_name_that_goes_on_for_ever_and_ever_and_some_more.py"
        lines += [line(50, script=long, at=4000, argv=["/usr/bin/python3", "/home/u/" + long, "-v"]),
                  line(51, script="caf\u00e9\x1b[31m\n.py", at=4001, cgroup=PODS[0], host="pod-1",
                       rule="/etc/cudaguard.conf:7"),
                  line(52, decision="allow", event="init", object="GPU-5b1f0c77", python=None,
                       at=4002),
                  line(52, decision="allow", event="context", asked="context", device=0,
                       api="cuCtxCreate_v2", python=None, at=4002),
                  line(53, api="dlopen", asked="opencl", object="/usr/lib/libnvidia-opencl.so.1",
                       library="libOpenCL.so.1",
                       caller="/usr/lib/libOpenCL.so.1+0x1", exe="/usr/bin/clinfo", python=None,
                       argv=["clinfo"], at=4003), line(60)[:500] + line(54, "late.py", at=9000),
                  "not a record"]
        path = self.make("day.jsonl", text(*lines).replace('"uid":1000,', '"uid":%d,' % NO_USER))
        golden = ""
        for words in ([], ["--by", "exe"], ["--by", "line"]):  # others are above
            shown = self.shown(*words, path)
            for one in shown.splitlines():
                if len(one.split()[-1]) < 30:
                    self.assertLessEqual(len(one), 100, one)
            golden += "$ cudaguard report %sday.jsonl\n%s" % (
                "".join(word + " " for word in words), shown)
        self.same_as_golden("report.txt", golden)
