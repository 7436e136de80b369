# SPDX-License-Identifier: Apache-2.0
"""Reads the results of a test suite out of its own output, and compares the runs of a suite.

Each reader takes the output and returns {test: result}. A line `=== NAME` is from the lab: it
precedes the output of one file of a suite whose output does not name its files. A result is "ok",
"failed" or "skipped".
"""

import re

FILE = re.compile(r"=== (\S+)$")
UNITTEST = "(ok|FAIL|ERROR|skipped|expected failure|unexpected success)"
WORDS = {
    "ok": "ok", "pass": "ok", "passed": "ok", "xfail": "ok", "xpass": "failed",
    "expected failure": "ok", "unexpected success": "failed",
    "fail": "failed", "failed": "failed", "error": "failed", "not ok": "failed",
    "skip": "skipped", "skipped": "skipped",
}


def word(text):
    """The result in the first words of a text, or None."""
    match = re.match(r"(not ok|expected failure|unexpected success|\w+)", text.lower())
    return WORDS.get(match[1]) if match else None


class Results(dict):
    """{test: result}. A name that comes again gets a number, because suites repeat names."""

    def add(self, name, result):
        number, first = 1, name
        while name in self:
            number += 1
            name = f"{first} #{number}"
        self[name] = result


def tap(text):
    """TAP. Indented lines are subtests, whose results are part of their test's."""
    found, file = Results(), ""
    for line in text.splitlines():
        if match := FILE.match(line):
            file = match[1] + ": "
        match = re.match(r"(ok|not ok)\b[ ]*(\d*)[ -]*(.*)", line)
        if not match:
            continue
        description, _, directive = match[3].partition("# ")
        result = "skipped" if re.match("skip", directive, re.I) else match[1]
        if re.match("todo", directive, re.I):
            result = "ok"
        found.add(file + (description.strip() or match[2]), word(result))
    return found


def automake(text):
    """`make check`: one line `PASS: tests/a.sh` for each test."""
    found = Results()
    for match in re.finditer(r"(?m)^(PASS|FAIL|SKIP|XFAIL|XPASS|ERROR): (\S+.*)$", text):
        found.add(match[2].strip(), word(match[1]))
    return found


def unittests(text):
    """`python -m unittest -v`, also below regrtest: `name (id) ... ok`. A docstring's line may be
    between the two. If the test prints something, the result has a line of its own."""
    found, name = Results(), None
    for line in text.splitlines():
        if match := re.match(r"(\w+) \(([a-zA-Z_][\w.<>]*)\)", line):
            name = match[2] if match[2].endswith("." + match[1]) else f"{match[2]}.{match[1]}"
        match = (re.search(rf" \.\.\. {UNITTEST}", line)
                 or re.match(rf"{UNITTEST}(?: ['\"].*)?$", line))
        if match and name:
            found.add(name, word(match[1]))
            name = None
    return found


def regrtest(text):
    """CPython's own tests: the files, and the tests in them if it was called with -v."""
    found = unittests(text)
    files = r"(?m)^[\d:]+ load avg: [\d.]+ \[ *\d+/\d+(?:/\d+)?\] (test\w+(?:\.\w+)*) (\w+)"
    for name, result in re.findall(files, text):
        found.add(name, {"passed": "ok", "skipped": "skipped", "resource": "skipped"}.get(
            result, "failed"))
    return found


def pytest(text):
    """`pytest -v`. Fails if a time limit has cut the run."""
    if not re.search(r"(?m)^=+ .*\d+ (?:passed|failed|skipped|errors?)\b.* in [\d.]+s.*=+$", text):
        raise ValueError("pytest did not finish: " + text[-300:])
    found = Results()
    line = r"(?m)^(\S+::.*?) (PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR)\b(?: \(.*\))? +\[ *\d+%\]"
    for name, result in re.findall(line, text):
        found.add(name, word(result))
    return found


def perl(text):
    """t/TEST of perl: `t/op/die ......... ok`."""
    found = Results()
    for name, result in re.findall(r"(?m)^(\S+?) ?\.{2,} ?(ok|skipped|FAILED|\S+)", text):
        found.add(name, word(result) or "failed")
    return found


def sqlite(text):
    """testfixture: `select1-1.1... Ok`. A test that fails has a line `! select1-1.1 expected:`."""
    found = Results()
    failed = set(re.findall(r"(?m)^! (\S+) expected:", text))
    for name, result in re.findall(r"(?m)^(\S+?)\.\.\. ?(Ok|Omitted)?", text):
        found.add(name, "failed" if name in failed else "skipped" if result == "Omitted" else "ok")
    return found


def zsh(text):
    """runtests.zsh: `./A01grammar.ztst: all tests successful.`"""
    found = Results()
    line = r"(?m)^(?:\S*/)?(\S+\.ztst): (all tests|test failed|skipped)"
    for name, result in re.findall(line, text):
        found.add(name, {"all tests": "ok", "skipped": "skipped"}.get(result, "failed"))
    return found


def openssh(text):
    """The regress directory of OpenSSH: `ok simple connect`."""
    found = Results()
    for result, name in re.findall(r"(?m)^(ok|failed|SKIPPED:?|skipped:?) (.+)$", text):
        found.add(name, word(result))
    return found


def differences(text):
    """A suite that prints a diff for each file that fails, as bash's does."""
    found = Results()
    for part in re.split(r"(?m)^(?==== )", text):
        if match := FILE.match(part.partition("\n")[0]):
            wrong = re.search(r"(?m)^\d+(,\d+)?[acd]\d+(,\d+)?$", part)
            found.add(match[1], "failed" if wrong else "ok")
    return found


def compared(unguarded, guarded, again):
    """(differing, flaky): {test: the three results}. A test is flaky if the two unguarded runs do
    not agree."""
    differing, flaky = {}, {}
    for name in sorted({*unguarded, *guarded, *again}):
        results = [run.get(name, "missing") for run in (unguarded, guarded, again)]
        if results[0] != results[2]:
            flaky[name] = results
        elif results[0] != results[1]:
            differing[name] = results
    return differing, flaky
