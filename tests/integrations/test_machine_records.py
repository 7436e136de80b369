# SPDX-License-Identifier: Apache-2.0
"""Debian's rsyslog, logrotate and node_exporter take the records of a machine, as docs/records.md
says."""

import glob
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request

from support import fixtures, guest, harness, launcher, places, recorded, slurm_node

LOGS = os.path.join(harness.DEPS, "logs")
PATIENCE = 60
DAY = 86400
SECTION = "Record a whole machine"


def service(name):
    unpacked = [os.path.join(LOGS, "usr", directory) for directory in ("bin", "sbin")]
    return shutil.which(name, path=":".join([*unpacked, os.environ["PATH"], "/usr/sbin"]))


# Has more frames than a record takes.
DEEP = """import ctypes
def {0}(depth):
    return {0}(depth - 1) if depth else ctypes.CDLL("libcuda.so.1").cuInit(0)
{0}(100)""".format("f" * 100)


class Case(places.Case):
    def setUp(self):
        super().setUp()
        self.need_root("start services of its own")
        self.env = {"LD_LIBRARY_PATH": self.need_daemon("logs"), "PATH": os.environ["PATH"]}

    def report(self, *words):
        done = subprocess.run([launcher.LAUNCHER, "report", *words], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout


make_case = fixtures.lent("case", Case)


def block_with(mark):
    (block,) = [one for one in places.blocks("text", "../records", SECTION) if mark in one]
    return block


def test_rsyslog_writes_a_file_that_report_reads(case):
    """The program and rsyslog share a /dev."""
    records = case.path("records.jsonl")
    rule = block_with("rsyslog.d").replace("/var/log/cudaguard.jsonl", records)
    case.make("rsyslog.conf", 'module(load="imuxsock")\n%s*.* action(type="omfile" file="%s")\n' % (
        rule, case.path("other")), 0o644)
    modules = (glob.glob(LOGS + "/usr/lib/*/rsyslog") + glob.glob("/usr/lib/*/rsyslog"))[0]
    script = ('"$1" -n -f "$2" -i "$3/pid" -M "$4" & '
              'for i in $(seq 600); do [ -S /dev/log ] && break; sleep 0.1; done; '
              'LD_LIBRARY_PATH=$5 LD_PRELOAD=$6 CUDAGUARD_REPORT=syslog: "$7" -c "$8" && '
              'logger=$! && for i in $(seq 600); do [ -s "$9" ] && break; sleep 0.1; done; '
              'kill $logger; wait')
    result = harness.run(["sh", "-c", script, "sh", service("rsyslogd"), case.path("rsyslog.conf"),
                          case.directory, modules, harness.FAKE_DRIVER, harness.GUARD,
                          guest.PYTHON, DEEP, records],
                         guard=False, trace=False, env=case.env)
    assert "nothing is recorded" not in result.err, str(result)
    found = harness.records(records)
    assert [one["cut"] for one in found] == [["python"]], str(result)
    assert os.path.getsize(records) > 7000  # as long as rsyslog takes
    shown = case.report(records)
    assert "1 process asked" in shown
    assert "left out" not in shown
    assert "cudaguard[" not in harness.read(case.path("other"))


def rotated(case, text):
    """Runs logrotate, which has seen each file before. Returns the files that are left."""
    case.make("logrotate.conf", text, 0o644)
    spool = case.path("spool")
    state = "logrotate state -- version 2\n" + "".join(
        '"%s" 2020-1-1-0:0:0\n' % os.path.join(spool, name) for name in os.listdir(spool))
    case.make("state", state, 0o600)
    done = subprocess.run([service("logrotate"), "-v", "-s", case.path("state"),
                           case.path("logrotate.conf")], env=case.env, capture_output=True,
                          text=True, timeout=PATIENCE, check=False)
    return done, sorted(os.listdir(spool))


def test_logrotate_removes_records_after_30_days(case):
    text = harness.read(places.script("logrotate", "cudaguard"))
    assert "/var/log/cudaguard/" in text
    text = "compress\ndateext\n" + text.replace("/var/log/cudaguard/", case.path("spool") + "/")
    os.mkdir(case.path("spool"))
    os.chmod(case.path("spool"), 0o1733)
    case.make("target.jsonl", "mine\n", 0o644)
    now = time.time()
    for name, days, user in (("0-a.jsonl", 40, 0), ("1000-a.jsonl", 31, 1000),
                             ("1000-b.jsonl", 29, 1000), ("1000-c.jsonl", 0, 1000)):
        path = case.make("spool/" + name, recorded.text(recorded.line()), 0o600)
        os.chown(path, user, user)
        os.utime(path, (now - days * DAY, now - days * DAY))
    os.symlink(case.path("target.jsonl"), case.path("spool", "1000-link.jsonl"))
    os.lchown(case.path("spool", "1000-link.jsonl"), 1000, 1000)
    os.utime(case.path("target.jsonl"), (now - 50 * DAY, now - 50 * DAY))
    # The control: without this line, logrotate does not touch a directory that users can write to.
    done, left = rotated(case, text.replace("su root root", ""))
    assert len(left) == 5, done
    assert "insecure permissions" in done.stderr
    done, left = rotated(case, text)
    assert left == ["1000-b.jsonl", "1000-c.jsonl", "1000-link.jsonl"], done
    assert os.path.exists(case.path("target.jsonl"))
    assert case.report(case.path("spool")).startswith("cudaguard: 2 files, 2 records of 1 process")


def test_node_exporter_shows_the_counts(case):
    nasty = 'a"b\\c\nd\u00e9'
    os.mkdir(case.path("prom"))
    case.make("r.jsonl", recorded.text(recorded.line(), recorded.line(slurm=nasty)))
    case.report("--prometheus", case.path("prom", "cudaguard.prom"), case.path("r.jsonl"))
    address = "127.0.0.1:%d" % slurm_node.free_port()
    exporter = subprocess.Popen(
        [service("prometheus-node-exporter"), "--web.listen-address=" + address,
         "--collector.disable-defaults", "--collector.textfile",
         "--collector.textfile.directory=" + case.path("prom")],
        env=case.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    case.addCleanup(exporter.communicate)
    case.addCleanup(exporter.kill)

    def page():
        try:
            with urllib.request.urlopen("http://%s/metrics" % address, timeout=PATIENCE) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    case.until(page, "the exporter's page")
    text = page()
    assert "node_textfile_scrape_error 0" in text
    found = re.findall(r"(?m)^cudaguard_records\{(.*)\} 1$", text)
    jobs = [json.loads('"%s"' % match[1]) for one in found
            if (match := re.search(r'slurm_job="((?:[^"\\]|\\.)+)"', one))]
    assert len(found) == 2, text
    assert jobs == [nasty.replace("\n", "?")]
    assert all('decision="deny"' in one and 'user="1000"' in one for one in found)
