# SPDX-License-Identifier: Apache-2.0
"""Runs other people's test suites with and without the guard, and compares each test's result.

A suite runs in a throw-away Debian 12 (debian.py), from Debian's source packages or its packaged
tests, as an ordinary user and without a network. It runs three times: unguarded, guarded, unguarded
again. A test is flaky if the two unguarded runs do not agree. If another test differs, the suite
runs guarded once more, and the test counts as flaky if it then does not differ.

The output of each run is in build/lab/suites/ROW.RUN.txt.
"""

import collections
import contextlib
import dataclasses
import pathlib
import re

from lab import results_of
from lab.debian import Machine, NotInstalled, last_line
from support import packaged

SCRIPTS = pathlib.Path(__file__).parent / "suite_scripts"
UNGUARDED, GUARDED = "", "cudaguard run --"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PATIENCE = 3 * 3600
SHOWN = 40  # differing or flaky tests in the results


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    part: str  # what of the suite runs here
    packages: tuple
    reader: str  # a function of results_of.py
    least: int  # a run with fewer tests is no run of the suite
    known: tuple = ()  # pairs: a regular expression for a test that differs, and the reason
    network: bool = False  # the row fetches more than Debian's packages
    script: str = ""


BUILD = ("dpkg-dev", "build-essential")
SUITES = (
    Row("cpython", "all but test_gdb, without regrtest's extra resources (-u)",
        ("libpython3.11-testsuite", "python3.11-dev", "gcc"), "regrtest", 15000),
    Row("bash", "all", (*BUILD, "bash", "locales-all"), "differences", 70),
    Row("zsh", "all", (*BUILD, "zsh"), "zsh", 50),
    Row("git", "t0000 to t1999: the whole suite takes hours",
        (*BUILD, "zlib1g-dev", "libssl-dev", "libexpat1-dev", "gettext", "perl"), "tap", 5000),
    Row("perl", "t/, without lib/, ext/ and dist/: the whole suite takes more than 30 minutes",
        (*BUILD, "procps"), "perl", 450),
    Row("coreutils", "all that do not need root or hours",
        (*BUILD, "autoconf", "automake", "gettext", "libacl1-dev", "libattr1-dev", "texinfo"),
        "automake", 500),
    Row("sqlite", "veryquick: the whole suite takes hours",
        (*BUILD, "tcl", "tcl-dev", "zlib1g-dev"), "sqlite", 100000),
    Row("glib", "all", ("libglib2.0-tests", "dbus", "shared-mime-info", "desktop-file-utils"),
        "tap", 1500),
    Row("openssh", "all", ("openssh-tests", "openssh-server", "openssh-client", "openssl", "make",
                           "netcat-openbsd"), "openssh", 60),
    Row("nginx", "all", (
        "git", "nginx", "perl", "libnginx-mod-http-geoip", "libnginx-mod-http-image-filter",
        "libnginx-mod-http-perl", "libnginx-mod-http-xslt-filter", "libnginx-mod-mail",
        "libnginx-mod-stream", "libnginx-mod-stream-geoip", "libcache-memcached-perl",
        "libcryptx-perl", "libfcgi-perl", "libgd-perl", "libio-socket-ssl-perl", "libscgi-perl"),
        "tap", 2000, network=True),
    Row("pytorch", "test_dataloader, test_multiprocessing and test_autograd",
        (*BUILD, "python3-venv"), "unittests", 500, network=True),
    Row("tensordict",
        "memory-mapped tensors, modules, tensor classes and collective operations",
        ("git", "python3-venv"), "pytest", 500, network=True),
    Row("torchrl", "the collectors, five classes of tests", ("git", "python3-venv"), "pytest", 50,
        network=True),
)


def rows(_):
    found = []
    for row in SUITES:
        text = (SCRIPTS / f"{row.name}.sh").read_text(encoding="utf-8")
        found.append(dataclasses.replace(row, script=text))
    return found


def run(lab, row):
    with contextlib.ExitStack() as stack:
        suite = Suite(lab, row, stack)
        try:
            version, versions = suite.prepare()
        except NotInstalled as error:
            return {"outcome": "not installed", "reason": str(error), "part": row.part}
        control = suite.control()
        if control:
            return {"outcome": "failed", "reason": control, "part": row.part}
        found = [suite.results(name, way) for name, way in (
            ("unguarded", UNGUARDED), ("guarded", GUARDED), ("again", UNGUARDED))]
        differing, flaky = results_of.compared(*found)
        if differing:
            # Only what differs a second time is the guard's doing.
            second = suite.results("guarded-again", GUARDED)
            for name in list(differing):
                if second.get(name, "missing") == differing[name][0]:
                    flaky[name] = [*differing.pop(name), second.get(name, "missing")]
    return {**judged(row, found, differing), "part": row.part, "version": version,
            "versions": versions, "tests": len(found[0]), "counts": counts(found),
            "flaky": first(flaky), "flaky_count": len(flaky)}


def judged(row, found, differing):
    """The outcome and its reason."""
    fewest = min(map(len, found))
    if fewest < row.least:
        return {"outcome": "failed", "reason": f"only {fewest} tests ran, not {row.least}"}
    reasons = {name: reason for name in differing for pattern, reason in row.known
               if re.search(pattern, name)}
    unknown = {name: results for name, results in differing.items() if name not in reasons}
    if unknown:
        return {"outcome": "failed", "differing": first(unknown),
                "reason": f"{len(unknown)} tests differ: {', '.join(list(unknown)[:5])}"}
    if differing:
        return {"outcome": "differs", "differing": first(differing),
                "reason": "; ".join(sorted(set(reasons.values())))}
    return {"outcome": "passed"}


def counts(found):
    """How often each result came, in each run."""
    return [dict(collections.Counter(results.values())) for results in found]


def first(tests):
    return dict(list(tests.items())[:SHOWN])


class Suite:
    """A row's machine. The row's script defines the functions get, build and tests."""

    def __init__(self, lab, row, stack):
        self.lab, self.row = lab, row
        self.machine = Machine(lab, stack)

    def prepare(self):
        """Installs, fetches and builds the suite. Returns its version, and those of its packages."""
        # enter.sh needs iproute2.
        versions = self.machine.install(("iproute2", *self.row.packages))
        self.complete_devices()
        directory = self.lab.scratch / "suite"
        directory.mkdir()
        for name, source in (("suite", directory), ("clones", self.lab.clones)):
            if source:
                target = self.machine.root / "srv" / name
                self.machine.outside("mkdir", target)
                self.machine.outside("mount", "--bind", source, target)
        if self.row.network:
            # This machine may reach the network by a proxy with a certificate of its own.
            self.machine.outside("cp", CERTIFICATES, f"{self.machine.root}{CERTIFICATES}")
        self.machine.put("suite.sh", (SCRIPTS / "common.sh").read_text() + self.row.script)
        for step, wrong in (("get", NotInstalled), ("build", RuntimeError)):
            done = packaged.run(self.machine.machine.command(
                "bash", "-c", f". /srv/suite.sh; in_suite {step}", env=(
                    "HOME=/root", f"PIP_CERT={CERTIFICATES}")), timeout=PATIENCE)
            self.keep(step, done.stdout)
            if done.returncode != 0:
                raise wrong(f"{step}: {reason(done.stdout)}")
        return self.version(directory, versions), versions

    def complete_devices(self):
        """Adds pseudo-terminals and the links that suites of shells and interpreters need."""
        device = self.machine.root / "dev"
        self.machine.outside("mkdir", device / "pts")
        self.machine.outside("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=666", "devpts",
                             device / "pts")
        self.machine.outside("ln", "-s", "pts/ptmx", device / "ptmx")
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            self.machine.outside("ln", "-s", f"/proc/self/fd/{number}", device / name)

    def version(self, directory, versions):
        """The version of the suite's source package, of its first wheel, or of its first package."""
        sources = [file.stem.split("_")[1] for file in directory.glob("*.dsc")]
        wheels = re.findall(r"==([\d.]+\d)", self.row.script)
        own = [name for name in self.row.packages if name not in BUILD]
        return (sources or wheels or [versions.get(self.row.name) or versions[own[0]]])[0]

    def control(self):
        """An error unless the guard is at work in the guarded runs only."""
        for way, answer in ((UNGUARDED, "0"), (GUARDED, "100")):
            printed = self.machine.run(f"{way} python3 /srv/ask.py", "alice").split()
            if printed[-1:] != [answer]:
                return f'control: "{way} python3 ask.py" prints {" ".join(printed)}'
        return ""

    def results(self, name, way):
        """Runs the suite in a fresh copy of its directory."""
        text = f". /srv/suite.sh; in_fresh_copy; {way} bash -c '. /srv/suite.sh; tests' 2>&1"
        printed = self.machine.run(text, "alice", PATIENCE)
        self.keep(name, printed)
        return getattr(results_of, self.row.reader)(printed)

    def keep(self, name, printed):
        (self.lab.state / f"{self.row.name}.{name}.txt").write_text(printed, errors="replace")


def reason(printed):
    """The first line of apt's, git's or pip's errors, otherwise the last line."""
    errors = re.findall(r"(?m)^(?:E: |fatal: |ERROR: ).*$", printed)
    return errors[0] if errors else last_line(printed)
