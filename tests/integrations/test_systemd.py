# SPDX-License-Identifier: Apache-2.0
"""systemd-analyze verify checks the drop-ins, and a real systemd uses them."""

import os
import re
import shutil
import sys

import pytest

from support import fixtures, harness, manager, messages, places

RUN, PRELOAD = "cudaguard-run.conf", "cudaguard-preload.conf"
EXAMPLE = "/usr/bin/program --its-options"
GUARD = "/usr/local/lib/libcudaguard.so"
UNIT = """[Unit]
Description=asks for CUDA
[Service]
Type=%s
Environment=LD_LIBRARY_PATH=%s CG_FAKE_LOG=%s
ExecStart=%s
StandardOutput=file:%s
StandardError=file:%s
"""
NOTIFY = """import os, signal, socket
name = os.environ["NOTIFY_SOCKET"]
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.connect(name.replace("@", "\\0", 1) if name.startswith("@") else name)
print(os.getpid(), flush=True)
notify.send(b"READY=1")
signal.pause()
"""


class Case(places.Case):
    def setUp(self):
        super().setUp()
        self.need("systemd-analyze")
        self.mounts = places.usr_local(self.path("tree"))
        self.without = ["--tmpfs", "/usr/local"]

    def unit(self, name, command=" ".join(places.OPEN), kind="oneshot", edit=("", ""), more=""):
        """Makes a unit of this command with one of our drop-ins, in which its user has written the
        command."""
        self.make("units/demo.service", UNIT % (
            kind, harness.FAKE_DRIVER, self.fake_log(), command, self.make("out", ""),
            self.make("err", "")) + more, 0o644)
        shutil.rmtree(self.path("units", "demo.service.d"), ignore_errors=True)
        if name:
            text = places.read("systemd", name).replace(EXAMPLE, command).replace(*edit)
            self.make("units/demo.service.d/cudaguard.conf", text, 0o644)

    def verify(self, mounts):
        return self.unguarded(*harness.sandbox("fake", mounts), "systemd-analyze", "verify",
                              "--man=no", self.path("units", "demo.service"))


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize("name", [RUN, PRELOAD])
def test_drop_in_is_valid(case, name):
    case.unit(name, kind="simple")
    done = case.verify(case.mounts)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), str(done)


def test_page_has_the_drop_in_that_starts_the_launcher():
    (block,) = [text for text in places.blocks("text", "slurm-and-systemd", "systemd")
                if text.startswith("[Service]")]
    assert places.read("systemd", RUN).endswith(block)


@pytest.mark.parametrize(("name", "mounts", "edit", "meaning"), [
    (RUN, "without", ("", ""), "cudaguard is not executable"),
    (RUN, "mounts", ("ExecStart=\n", ""), "more than one ExecStart="),
    (RUN, "mounts", ("[Service]", "[Sevice]"), "Unknown section 'Sevice'"),
    (PRELOAD, "mounts", ("Environment=", "Enviroment="), "Unknown key")])
def test_control_mistake_in_a_drop_in_is_found(case, name, mounts, edit, meaning):
    case.unit(name, kind="simple", edit=edit)
    done = case.verify(getattr(case, mounts))
    assert (done.returncode, done.stderr) != (0, ""), str(done)
    assert meaning in done.stderr


class Service(Case):
    def setUp(self):
        super().setUp()
        self.systemd = manager.Manager(self.directory, self.mounts)
        if missing := self.systemd.missing():
            harness.skip(self, "no systemd of our own: " + missing)

    def read(self, name):
        return harness.read(self.path(name))

    def started(self, *more):
        """Starts the unit; returns what systemd reports about it, and the program's answer."""
        commands = ("start demo", "show demo -p Result,ExecMainStatus,ActiveState", *more)
        done = self.systemd.run("".join("systemctl --user %s\n" % command for command in commands))
        self.assertNotEqual(done.returncode, 99, done)
        unit = dict(re.findall(r"^(\w+)=(.*)$", done.stdout, re.MULTILINE))
        return unit, re.findall(r"^cuInit=(\d+)", self.read("out")), self.read("err")


make_service = fixtures.lent("service", Service)


def test_assertion_checks_the_machines_file(service):
    """AssertPathExists= checks the machine's file instead of the one that the program sees."""
    os.mkdir(service.path("root"))
    hidden = "RootDirectory=%s\n" % service.path("root") + "".join(
        "BindPaths=%s\n" % path for path in ("/usr", "/lib", "/lib64", "/tmp", harness.SOURCE,
                                            harness.BUILD)) + "TemporaryFileSystem=/usr/local\n"
    for name, result in ((PRELOAD, ("success", ["0"])), (RUN, ("exit-code", []))):
        service.unit(name, more=hidden)
        unit, answer, err = service.started()
        assert (unit["Result"], answer) == result, err


@pytest.mark.parametrize("name", [None, RUN, PRELOAD])
def test_program_is_the_units_main_process(service, name):
    """The program is the unit's main process: it may notify, and stop ends it."""
    service.unit(name, "%s %s" % (sys.executable, service.make("notify.py", NOTIFY)), "notify")
    unit, _, _ = service.started("show demo -p MainPID", "stop demo", "show demo -p Result")
    assert (unit["ActiveState"], unit["Result"]) == ("active", "success")
    assert service.read("out") == unit["MainPID"] + "\n"


def test_program_that_cannot_be_guarded_fails_the_unit(service):
    service.unit(RUN, "%s lib=libcuda.so.1" % harness.program("static_entry_point"))
    unit, answer, err = service.started()
    assert (unit["Result"], unit["ExecMainStatus"], answer) == ("exit-code", "125", [])
    assert "static executable" in err


@pytest.mark.parametrize(("name", "key", "value"), [
    (RUN, "ExecMainStatus", "203"), (PRELOAD, "AssertResult", "no")])
def test_missing_files_prevent_the_start(service, name, key, value):
    service.systemd.mounts = service.without
    service.unit(name)
    unit, answer, _ = service.started("show demo -p AssertResult")
    assert (unit["ActiveState"] == "active", answer, service.logged()) == (False, [], [])
    assert unit[key] == value


def test_variable_alone_does_not_prevent_the_start(service):
    """The control of AssertPathExists=."""
    service.systemd.mounts = service.without
    service.unit(PRELOAD, edit=("AssertPathExists=", "# "))
    unit, answer, err = service.started()
    assert (unit["Result"], answer) == ("success", ["0"])
    assert "cannot be preloaded" in err


@pytest.mark.parametrize(("name", "variable", "answer"), [
    (None, None, "0"), (RUN, None, "100"), (PRELOAD, None, "100"),
    # A file of variables overrides the variable of one drop-in, and does not affect the other.
    (PRELOAD, "libm.so.6", "0"), (PRELOAD, GUARD + ":libm.so.6", "100"), (RUN, "libm.so.6", "100")])
def test_service_is_guarded(service, name, variable, answer):
    variables = service.make("variables", "LD_PRELOAD=%s\n" % variable if variable else "", 0o644)
    service.unit(name, more="EnvironmentFile=%s\n" % variables)
    unit, answers, err = service.started()
    assert (unit["Result"], unit["ExecMainStatus"]) == ("success", "0"), str((answers, err))
    assert answers == [answer], err
    assert ("cuInit" in service.logged()) == (answer == "0")
    assert len(messages.find(err, "no_cuda")) == int(answer == "100"), err
    assert messages.without(err, "no_cuda") == ""
