# SPDX-License-Identifier: Apache-2.0
"""Runs other people's programs in five ways and compares these. The rows are in programs/*.toml,
and programs/README.md explains them.

The first way is unguarded, with NVIDIA's driver libraries and a private /dev. The others are
`CUDA_VISIBLE_DEVICES=`, `cudaguard run`, `cudaguard run --fence` and `cudaguard verify`. What a
program printed in each way is in build/lab/programs/output.
"""

import contextlib
import ctypes
import dataclasses
import glob
import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import tempfile
import tomllib

from support import messages, settings

HERE = pathlib.Path(__file__).resolve().parent
TABLES = HERE / "programs"
# Downloads that rows share. It is emptied if it becomes too large; the next rows fill it again.
CACHE = pathlib.Path("/var/tmp/lab-pip-cache")
CACHE_GB = 20
UV = "uv==0.13.8"
# The packages that a pinned package needs are those of this day, so a later run installs the same.
NEWEST = "2026-11-20"
PYTHON = "/usr/bin/python3"  # a pyenv shim would add its own shell processes to each run

WAYS = ("unguarded", "hidden", "run", "fence", "verify")
GUARDED = ("run", "fence", "verify")
CHECKS = ("timeout", "asks", "prints", "exit", "opens", "driver", "output", "errors", "message",
          "verify")
MAX_LINES = 10
# The script's file name and the command that runs it.
LANGUAGES = {
    "python": ("script.py", "python script.py"),
    "sh": ("script.sh", "sh script.sh"),
    "bash": ("script.sh", "bash script.sh"),
    "c": ("script.c", "./program"),
    "c++": ("script.cc", "./program"),
    "go": ("script.go", "./program"),
    "rust": ("script.rs", "./program"),
    "fortran": ("script.f90", "./program"),
    "java": ("script.java", "java script.java"),
    "javascript": ("script.js", "node script.js"),
    "julia": ("script.jl", "julia script.jl"),
    "lua": ("script.lua", "lua script.lua"),
    "luajit": ("script.lua", "luajit script.lua"),
    "octave": ("script.m", "octave-cli script.m"),
    "perl": ("script.pl", "perl script.pl"),
    "php": ("script.php", "php script.php"),
    "r": ("script.R", "Rscript script.R"),
    "ruby": ("script.rb", "ruby script.rb"),
    "scheme": ("script.scm", "guile script.scm"),
    "tcl": ("script.tcl", "tclsh script.tcl"),
}
MESSAGES = {True: "no_cuda", "nvml": "no_nvml", "opencl": "no_opencl"}
OUR_LINE = re.compile(r"cudaguard(\[\d+\])?: .*\n?")
VERDICT = re.compile(r"^cudaguard: (PASS|FAIL|INCOMPLETE)\b", re.MULTILINE)

PAGE_HEADING = "## Programs of the lab"


class NotInstalled(Exception):
    """The packages of a row cannot be installed. The text is the installer's last line."""


@dataclasses.dataclass(frozen=True)
class Row:
    """programs/README.md explains the fields."""

    name: str
    script: str
    packages: tuple = ()
    sdists: tuple = ()
    unpacked: tuple = ()
    debian: tuple = ()
    uses: str = ""
    language: str = "python"
    build: str = ""
    run: str = ""
    env: dict = dataclasses.field(default_factory=dict)
    prints: str = ""
    exit: int = 0
    asks: object = False
    named: str = ""
    timeout: int = 1800
    version: str = ""
    before: str = NEWEST
    difference: str = ""
    differs: tuple = ()

    def mistakes(self):
        """What is wrong with the row's text."""
        lines = self.script.strip().splitlines()
        rules = {
            "bad name": re.fullmatch(r"[a-z0-9][a-z0-9.-]*", self.name),
            f"no language {self.language}": self.language in LANGUAGES,
            f"{len(lines)} lines of script": 1 <= len(lines) <= MAX_LINES,
            "an unpinned package": all("==" in package for package in self.packages + self.unpacked),
            "no package": self.packages or self.debian or self.uses,
            "no version": self.version or not self.uses,
            f"asks for {self.asks}": self.asks is False or self.asks in MESSAGES,
            "an unknown check in differs": set(self.differs) <= set(CHECKS),
            "difference without differs": bool(self.difference) == bool(self.differs),
        }
        return [rule for rule, holds in rules.items() if not holds]


def rows(lab):
    """Reads all tables. The order is that of the files and of the rows in them."""
    found = []
    for table in sorted(TABLES.glob("*.toml")):
        for fields in tomllib.loads(table.read_text())["program"]:
            lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
            found.append(Row(**fields | lists))
    for row in found:
        if mistakes := row.mistakes():
            raise ValueError(f"{row.name}: {', '.join(mistakes)}")
    names = [row.name for row in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two rows with one name: {', '.join(sorted(twice))}")
    return found


def run(lab, row):
    settings.configure(build=lab.build, deps=lab.build.parent / "_deps")
    try:
        with installed(lab, row) as place:
            ways = {}
            for way in WAYS:
                ways[way] = one_way(lab, row, place, way)
                if ways[way]["timed_out"]:
                    break
    except NotInstalled as error:
        return {"outcome": "not installed", "reason": str(error), "version": version_of(row)}
    outcome, reason = judge(row, ways)
    keep_output(lab, row, ways)
    for facts in ways.values():
        del facts["out"], facts["err"]
    result = {"outcome": outcome, "version": place.version, "asks": row.asks, "ways": ways}
    return result | ({"reason": reason} if reason else {})


# ---- the environment of a row


class Directories:
    """Where a row's programs are, and how the sandbox shows them."""

    def __init__(self, directory):
        self.directory = directory
        self.source = directory / "source"  # the script, and what the row's build makes
        self.work = directory / "work"  # a fresh copy of it for each way
        self.binds = []  # bubblewrap's options for the overlays
        self.bin = ""
        self.site = ""
        self.version = ""

    def environment(self, row):
        path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/usr/games"
        nvidia = ":".join(sorted(glob.glob(f"{self.site}/nvidia/*/lib"))) if self.site else ""
        given = {key: value.format(site=self.site, nvidia=nvidia) for key, value in row.env.items()}
        return {
            "PATH": f"{self.bin}:{path}" if self.bin else path,
            "HOME": self.work,
            "TMPDIR": "/tmp",
            "VIRTUAL_ENV": None,
            # All rows have their packages at one path, so they can share the compiled modules.
            "PYTHONPYCACHEPREFIX": CACHE / "pycache",
        } | given


@contextlib.contextmanager
def installed(lab, row):
    """The row's environment. Its overlays are mounted in this process's own mount namespace, which
    the kernel removes even if the lab is killed."""
    place = Directories(lab.scratch)
    place.version = version_of(row)
    place.source.mkdir()
    name, _ = LANGUAGES[row.language]
    (place.source / name).write_text(row.script.strip() + "\n")
    with contextlib.ExitStack() as mounts:
        if row.debian:
            install_debian(row, place, mounts)
        if row.packages:
            install_wheels(lab, row, place)
        elif row.uses:
            command([lab.checkout / "scripts/fetch-frameworks", settings.DEPS, row.uses], os.environ)
            place.bin = str(settings.DEPS + f"/frameworks/{row.uses}/bin")
        else:
            # Rows call Python `python`, which Debian's own package does not have.
            place.bin = str(place.directory / "bin")
            os.mkdir(place.bin)
            os.symlink(PYTHON, place.bin + "/python")
        found = glob.glob(os.path.dirname(place.bin) + "/lib/python3*/site-packages")
        place.site = found[0] if found else ""
        if row.build:
            build(row, place)
        yield place


def version_of(row):
    if row.version or not (row.packages or row.debian):
        return row.version
    return row.packages[0].split("==")[1].split(";")[0].strip() if row.packages else ""


def install_wheels(lab, row, place):
    tidy_cache()
    venv = place.directory / "venv"
    uv = uv_of(lab)
    env = dict(os.environ, UV_CACHE_DIR=CACHE / "uv", UV_NO_PROGRESS="1", UV_HTTP_TIMEOUT="180",
               TMPDIR=place.directory)
    if cert := os.environ.get("PIP_CERT"):
        env.setdefault("SSL_CERT_FILE", cert)
    command([uv, "venv", "-q", "--no-config", "--no-python-downloads", "--python", PYTHON, venv],
            env)
    command([uv, "pip", "install", "-q", "--no-config", "--only-binary", ":all:",
             *[word for name in row.sdists for word in ("--no-binary", name)],
             "--exclude-newer", row.before, "--python", venv / "bin/python", *row.packages], env)
    place.bin = str(venv / "bin")
    for package in row.unpacked:
        command([PYTHON, "-m", "pip", "download", "-q", "--no-deps", "--ignore-requires-python",
                 "--only-binary", ":all:", "--dest", place.directory, package], env)
    for wheel in place.directory.glob("*.whl"):
        shutil.unpack_archive(wheel, place.source, "zip")


def uv_of(lab):
    """uv links files of its cache into the environments, so PyTorch costs its 5 GB only once."""
    fetched = pathlib.Path(settings.DEPS, "frameworks", "." + UV.replace("==", "-"), "bin/uv")
    if fetched.exists():  # scripts/fetch-frameworks uses it, too
        return fetched
    directory = lab.state.parent / "tools" / UV.replace("==", "-")
    if not (directory / "bin/uv").exists():
        command([PYTHON, "-m", "pip", "install", "-q", "--target", directory, UV], os.environ)
    return directory / "bin/uv"


def tidy_cache():
    size = sum(int(line.split()[0]) for line in subprocess.run(
        ["du", "-s", "--block-size=1M", CACHE], text=True, check=False, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL).stdout.splitlines())
    if size > CACHE_GB * 1024:
        shutil.rmtree(CACHE)
    CACHE.mkdir(exist_ok=True)


def command(words, env):
    done = subprocess.run([str(word) for word in words], env=env, text=True, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise NotInstalled(last_words(done.stdout))
    return done.stdout


def last_words(output):
    """The last sentence of an installer, which uv breaks into several lines."""
    text = re.split(r"\n\s*\n|\n(?=E: |error|ERROR)", output.strip())[-1]
    return " ".join(re.sub(r"[×╰─▶│]", " ", text).split())[-300:]


EVERY_COMPONENT = "Components: main contrib non-free non-free-firmware"
OVERLAID = ("/usr", "/etc", "/var/lib", "/var/cache", "/var/log", "/opt")


def install_debian(row, place, mounts):
    """Installs packages over the machine's own system, without a change to it."""
    own_mounts()
    for target in OVERLAID:
        layer = place.directory / "overlay" / target.strip("/").replace("/", "-")
        upper, work, merged = layer / "upper", layer / "work", layer / "merged"
        for directory in (upper, work, merged):
            directory.mkdir(parents=True)
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir={target},upperdir={upper},workdir={work}", merged], check=True)
        mounts.callback(subprocess.run, ["umount", "-l", merged], check=True)
        place.binds += ["--bind", str(merged), target]
    (place.directory / "overlay/usr/merged/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (place.directory / "overlay/usr/merged/sbin/policy-rc.d").chmod(0o755)
    # Without this file man-db does not index all manual pages again, which takes minutes.
    (place.directory / "overlay/var-lib/merged/man-db/auto-update").unlink(missing_ok=True)
    # bubblewrap drops root's capabilities, which dpkg needs.
    inside = ["bwrap", "--dev-bind", "/", "/", "--dev", "/dev", *place.binds, "--tmpfs", "/tmp",
              "--tmpfs", "/run", "--ro-bind-try", "/run/resolvconf", "/run/resolvconf",
              "--cap-add", "ALL", "--"]
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    apt = [*inside, "apt-get", "-y", "-q", "-o", "APT::Sandbox::User=root",
           "-o", "Dpkg::Use-Pty=0", "-o", "Dpkg::Options::=--force-unsafe-io",
           "--no-install-recommends"]
    try:
        command([*apt, "install", *row.debian], env)
    except NotInstalled:
        # The package lists may be old, or the package is not in Debian's main.
        for sources in (place.directory / "overlay/etc/merged/apt").glob("**/*.sources"):
            text = sources.read_text()
            sources.write_text(re.sub(r"(?m)^Components: main$", EVERY_COMPONENT, text))
        with contextlib.suppress(NotInstalled):  # other people's package sources may be unreachable
            command([*apt, "update"], env)
        command([*apt, "install", *row.debian], env)
    if not place.version:
        package = row.debian[0].split("=")[0]
        place.version = command([*inside, "dpkg-query", "-W", "-f=${Version}", package], env)


def own_mounts():
    """Moves this process to a mount namespace of its own, in which no mount spreads."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x20000) != 0:  # CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def build(row, place):
    done = sandboxed(row, place, ["sh", "-c", row.build], place.source, trace=False)
    if done.rc != 0:
        lines = (done.out + done.err).strip().splitlines()
        raise RuntimeError(f"the build ends with {done.rc}: {lines[-1] if lines else ''}")


# ---- the runs


def one_way(lab, row, place, way):
    """Runs the script in one way and returns the facts."""
    shutil.rmtree(place.work, ignore_errors=True)
    shutil.copytree(place.source, place.work, symlinks=True)
    numbers, result = place.directory / "numbers.json", place.directory / "verify.json"
    for file in (numbers, result):
        file.unlink(missing_ok=True)
    before = {
        "run": [lab.cudaguard, "run", "--"],
        "fence": [lab.cudaguard, "run", "--fence", "--"],
        "verify": [lab.cudaguard, "verify", "--json", result, "--"],
    }.get(way, [])
    _, script = LANGUAGES[row.language]
    words = [PYTHON, "-I", "-S", HERE / "measure.py", numbers, *before, *command_words(row, script)]
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if way == "hidden" else {}
    done = sandboxed(row, place, words, place.work, hidden)
    facts = {
        "exit": done.rc, "timed_out": done.timed_out, "out": done.out, "err": done.err,
        "opens": len(done.device_opens), "nodes": len(done.device_nodes),
        "driver": sorted({os.path.basename(path) for path in done.driver_files}),
        "messages": [[found["name"], found["asked_by"]] for found in messages.find(
            done.err, *messages.DENIED, cause="FORCE_CPU")],
    }
    if numbers.exists():
        facts |= json.loads(numbers.read_text())
    if way == "verify":
        facts["verify_exit"] = done.rc
        facts |= verdict_of(result)
    return facts


def command_words(row, script):
    return ["sh", "-c", row.run] if row.run else script.split()


def verdict_of(file):
    if not file.exists():
        return {"exit": None, "verdict": "none"}
    document = json.loads(file.read_text())
    program, tree = document["program"], document["tree"]
    code = program["exit_code"] if program["signal"] is None else 128 + program["signal"]
    return {"exit": code, "verdict": document["verdict"], "counts": document["counts"],
            "heard": tree["heard"], "unguarded": len(tree["unguarded"]), "doubts": tree["doubts"]}


def sandboxed(row, place, words, directory, env=None, trace=True, world="real"):
    from support import harness  # it reads the settings when it is imported

    # strace writes its log inside the sandbox, whose /tmp is another.
    with temporary_files_in(place.directory):
        return harness.run(
            words, world=world, guard=False, cwd=directory, trace=trace, timeout=row.timeout,
            env=place.environment(row) | (env or {}),
            bwrap=[*place.binds, "--tmpfs", "/tmp", *empty_home(place), "--unshare-net",
                   "--unshare-pid", "--proc", "/proc"])


def empty_home(place):
    """bubblewrap's options for an empty home directory. Some programs ignore the variable HOME and
    write to the user's home directory. The directories below it that the lab needs stay visible."""
    home = pwd.getpwuid(os.geteuid()).pw_dir
    kept = {path for path in (settings.SOURCE, settings.BUILD, settings.DEPS, str(CACHE),
                              str(place.directory)) if path.startswith(home + "/")}
    return ["--tmpfs", home, *(word for path in sorted(kept) for word in ("--bind", path, path))]


@contextlib.contextmanager
def temporary_files_in(directory):
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


def keep_output(lab, row, ways):
    directory = lab.state / "output"
    directory.mkdir(parents=True, exist_ok=True)
    for way, facts in ways.items():
        text = f"exit {facts['exit']}\n--- stdout\n{facts['out']}\n--- stderr\n{facts['err']}"
        (directory / f"{row.name}.{way}.txt").write_text(text)


# ---- the judgement


def judge(row, ways):
    """Returns the outcome and its reason, or None. A fault that the row's `difference` does not
    explain makes the row fail."""
    faults = {check: text for check in CHECKS if (text := FAULTS[check](row, ways))}
    if "timeout" in faults:  # the later ways did not run
        faults = {"timeout": faults["timeout"]}
    unexplained = [text for check, text in faults.items() if check not in row.differs]
    if unexplained:
        return "failed", "; ".join(unexplained)
    if faults:
        return "differs", row.difference
    if row.difference:
        return "failed", f"the row's difference was not seen in: {', '.join(row.differs)}"
    return "passed", None


def timeout_fault(row, ways):
    late = [way for way in ways if ways[way]["timed_out"]]
    return f"{', '.join(late)}: longer than {row.timeout} s" if late else ""


def needs_all_ways(check):
    return lambda row, ways: check(row, ways) if set(ways) == set(WAYS) else ""


@needs_all_ways
def asks_fault(row, ways):
    tries = tries_of(ways["unguarded"])
    if bool(tries) == bool(row.asks):
        return ""
    return f"unguarded: {tries} tries at /dev/nvidia*, although asks is {row.asks}"


@needs_all_ways
def prints_fault(row, ways):
    return each(("unguarded", *GUARDED), lambda way: "" if row.prints in (
        ways[way]["out"] + ways[way]["err"]) else f"does not print {row.prints!r}")


@needs_all_ways
def exit_fault(row, ways):
    return each(("unguarded", *GUARDED), lambda way: "" if ways[way]["exit"] == row.exit
                else f"exit code {ways[way]['exit']} instead of {row.exit}")


@needs_all_ways
def opens_fault(row, ways):
    return each(GUARDED, lambda way: f"{tries_of(ways[way])} tries at /dev/nvidia*"
                if tries_of(ways[way]) else "")


@needs_all_ways
def driver_fault(row, ways):
    def one(way):
        mapped = [name for name in ways[way]["driver"]
                  if name.startswith(("libcuda.so", "libnvidia-ml.so"))]
        return f"maps {', '.join(mapped)}" if mapped else ""
    return each(GUARDED, one)


@needs_all_ways
def output_fault(row, ways):
    expected = normal(ways["unguarded"]["out"])
    return each(GUARDED, lambda way: first_difference(expected, normal(ways[way]["out"])))


@needs_all_ways
def errors_fault(row, ways):
    """The driver's own complaints on stderr go away under the guard. New lines must not come."""
    known = set(normal(ways["unguarded"]["err"]))

    def one(way):
        new = [line for line in normal(ways[way]["err"]) if line not in known]
        return f"stderr has a new line: {new[0]}" if new else ""
    return each(GUARDED, one)


@needs_all_ways
def message_fault(row, ways):
    def one(way):
        printed = ways[way]["messages"]
        if not row.asks:
            return f"a message: {': '.join(printed[0])}" if printed else ""
        who = [who for kind, who in printed if kind == MESSAGES[row.asks]]
        if not who:
            return f"no message {MESSAGES[row.asks]}"
        named = row.named in who[0] if row.named else in_script(row, who[0])
        return "" if named else f"the message names {who[0]}"
    return each(("run", "fence"), one)


@needs_all_ways
def verify_fault(row, ways):
    facts = ways["verify"]
    expected = ("fail", 1) if row.asks is True else ("fail", 2) if row.exit else ("pass", 0)
    seen = facts["verdict"], facts["verify_exit"]
    return "" if seen == expected else f"verify: {seen} instead of {expected}"


FAULTS = {check: globals()[check + "_fault"] for check in CHECKS}


def each(ways, fault_of):
    """The faults of these ways. Equal faults are named once."""
    faults = {}
    for way in ways:
        if fault := fault_of(way):
            faults.setdefault(fault, []).append(way)
    return "; ".join(f"{', '.join(names)}: {fault}" for fault, names in faults.items())


def tries_of(facts):
    return facts["opens"] + facts["nodes"]


def in_script(row, who):
    """If the language has no line numbers that the guard knows, any name will do."""
    name, _ = LANGUAGES[row.language]
    return row.language != "python" or re.match(rf"{re.escape(name)}:\d+\b", who) is not None


def normal(text):
    """The lines that two runs of one program share, sorted: workers print in any order."""
    if verdict := list(VERDICT.finditer(text)):
        text = text[:verdict[-1].start()]
    text = OUR_LINE.sub("", text)
    text = re.sub(r"/tmp/\S+|\btmp\w+", "TMP", text)
    text = re.sub(r"\b(?:[0-9a-f]{2}:)+[0-9a-f]{2}\b", "#", text)  # hardware addresses
    text = re.sub(r"\b[0-9]+([.,][0-9]+)+(e[+-]?[0-9]+)?\b", "#", text)  # before hexadecimal ones
    text = re.sub(r"0x[0-9a-fA-F]+|\b(?=[a-fA-F]*\d)[0-9a-fA-F]{6,}\b", "#", text)  # addresses, threads
    text = re.sub(r"[0-9]+([.,:][0-9]+)*(e[+-]?[0-9]+)?", "#", text)
    text = re.sub(r"# ?(ns|us|µs|ms|s|sec|seconds?|[KMG]i?B)\b", "#", text)
    return sorted(filter(None, (" ".join(line.split()) for line in text.splitlines())))


def first_difference(expected, seen):
    if expected == seen:
        return ""
    lacks = [line for line in expected if line not in seen]
    more = [line for line in seen if line not in expected]
    if not lacks and not more:
        return "stdout has a line more or less often"
    return "stdout " + " and ".join(
        f"{word} {lines[0][:120]!r}" for word, lines in (("lacks", lacks), ("adds", more)) if lines)


# ---- the page


def report(lab, results):
    """Writes tests/lab/results/programs.md below its first part, which is written by hand."""
    page = lab.checkout / "tests/lab/results/programs.md"
    above = page.read_text().split(PAGE_HEADING)[0].rstrip()
    page.write_text(f"{above}\n\n{section(results)}")


def section(results):
    every = sorted(results, key=lambda facts: facts["name"])
    dates = [facts["date"] for facts in every]
    period = f"on {max(dates)}"
    if min(dates) != max(dates):
        period = f"from {min(dates)} to {max(dates)}"
    ran = [facts for facts in every if "ways" in facts]
    missing = [facts for facts in every if "ways" not in facts]
    lines = [
        PAGE_HEADING, "",
        "The command `scripts/lab programs` installs other people's programs and runs each of them",
        "unguarded, with `CUDA_VISIBLE_DEVICES=`, with `cudaguard run`, with `cudaguard run --fence`",
        "and with `cudaguard verify`. The tables in `tests/lab/programs/` contain the scripts. The",
        f"programs ran {period}; `tests/lab/results/programs.jsonl` has the commit",
        "and the date of each run, and all of its facts.", "",
        "- \"Guarded\" is the largest number of tries of `run`, `run --fence` and `verify`.",
        "- \"Asked by\" is what the guard's first message names. `script.py` is the row's script.",
        "- If a program behaves differently under the guard, the last column has the reason.", "",
        "| program | version | unguarded: tries at `/dev/nvidia*` | guarded: tries | asked by "
        "| `verify` | difference |", "|---|---|---|---|---|---|---|",
        *map(page_row, ran), "",
    ]
    if missing:
        lines += ["These programs could not be installed or built:", "",
                  "| program | version | reason |", "|---|---|---|"]
        lines += [f"| {facts['name']} | {facts.get('version', '')} | {cell(facts['reason'])} |"
                  for facts in missing]
        lines += [""]
    return "\n".join(lines)


def page_row(facts):
    ways = facts["ways"]
    printed = [message for way in ("run", "fence") if way in ways
               for message in ways[way]["messages"]]
    guarded = max((tries_of(ways[way]) for way in GUARDED if way in ways), default="")
    verdict = ways["verify"]["verdict"].upper() if "verify" in ways else ""
    difference = facts.get("reason", "")
    if facts["outcome"] == "failed":
        difference = "FAILED: " + difference
    cells = [facts["name"], facts["version"], tries_of(ways["unguarded"]), guarded,
             f"`{printed[0][1]}`" if printed else "", verdict, difference]
    return "| " + " | ".join(cell(str(text)) for text in cells) + " |"


def cell(text):
    return " ".join(text.split()).replace("|", "\\|")
