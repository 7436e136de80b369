# SPDX-License-Identifier: Apache-2.0
"""systemd-analyze verify checks the drop-ins, and a real systemd uses them."""

import os
import re
import shutil
import sys

import pytest

from support import fixtures, harness, manager, messages, places

NAMES = ("cudaguard-run.conf", "cudaguard-preload.conf")
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
        os.makedirs(self.path("units"))

    def unit(self, command=" ".join(places.OPEN), kind="oneshot"):
        for name in ("out", "err", "fake.log"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        self.make("units/demo.service", UNIT % (
            kind, harness.FAKE_DRIVER, self.path("fake.log"), command, self.path("out"),
            self.path("err")), 0o644)

    def drop_in(self, name, edit=lambda text: text, directory="demo.service.d"):
        """Installs one of our drop-ins for the unit and removes the previous one."""
        shutil.rmtree(self.path("units", "demo.service.d"), ignore_errors=True)
        if name:
            os.makedirs(self.path("units", directory))
            self.make("units/%s/cudaguard.conf" % directory, edit(places.read("systemd", name)), 0o644)


class Verify(Case):
    def verify(self, mounts=None):
        box = harness.sandbox("fake", self.mounts if mounts is None else mounts)
        return self.unguarded(*box, "systemd-analyze", "verify", "--man=no",
                              self.path("units", "demo.service"))

    def test_drop_ins_are_valid(self):
        for name in NAMES:
            self.unit(kind="simple")
            self.drop_in(name)
            done = self.verify()
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), done)


make_verify_case = fixtures.lent("verify_case", Verify)


@pytest.mark.parametrize(("name", "mounts", "edit", "meaning"),
                         [(NAMES[0], "without", ("", ""), "cudaguard is not executable"),
                          (NAMES[0], "with", ("ExecStart=\n", ""), "more than one ExecStart="),
                          (NAMES[0], "with", ("[Service]", "[Sevice]"), "Unknown section 'Sevice'"),
                          (NAMES[1], "with", ("Environment=", "Enviroment="), "Unknown key")])
def test_control_mistake_in_a_drop_in_is_found(verify_case, name, mounts, edit, meaning):
    """systemd-analyze reports a mistake in a drop-in."""
    verify_case.unit(kind="simple")
    verify_case.drop_in(name, lambda text: text.replace(*edit))
    done = verify_case.verify(verify_case.without if mounts == "without" else None)
    assert (done.returncode, done.stderr) != (0, ""), str(done)
    assert meaning in done.stderr


def ahead(text):
    return text + "Environment=LD_PRELOAD=%s:libm.so.6\n" % GUARD


class Service(Case):
    def setUp(self):
        super().setUp()
        self.systemd = manager.Manager(self.directory, self.mounts)
        missing = self.systemd.missing()
        if missing:
            harness.skip(self, "no systemd of our own: " + missing)

    def systemctl(self, *commands):
        """Runs these systemctl commands; returns the lines that they print, as {key: value}."""
        done = self.systemd.run("".join("systemctl --user %s\n" % command for command in commands))
        self.assertNotEqual(done.returncode, 99, done)
        return dict(re.findall(r"^(\w+)=(.*)$", done.stdout, re.MULTILINE))

    def read(self, name):
        if not os.path.exists(self.path(name)):
            return ""
        with open(self.path(name), encoding="utf-8") as stream:
            return stream.read()

    def start(self, *more):
        """Starts the unit; returns what systemd reports about it, and the program's answer."""
        unit = self.systemctl("start demo", "show demo -p Result,ExecMainStatus,ActiveState", *more)
        answer = re.findall(r"^cuInit=(\d+)", self.read("out"))
        return unit, answer, self.read("err")

    def edited(self, command=" ".join(places.OPEN)):
        return lambda text: text.replace(EXAMPLE, command)

    def test_assertion_checks_the_machines_file(self):
        """AssertPathExists= checks the machine's file instead of the one that the program sees."""
        self.unit()
        root = self.path("root")
        os.mkdir(root)
        hidden = "RootDirectory=%s\n" % root + "".join(
            "BindPaths=%s\n" % path for path in ("/usr", "/lib", "/lib64", "/tmp", harness.SOURCE,
                                                harness.BUILD))
        hidden += "TemporaryFileSystem=/usr/local\n"
        for name, edit, result in ((NAMES[1], str, ("success", ["0"])),
                                   (NAMES[0], self.edited(), ("exit-code", []))):
            self.unit()
            self.drop_in(name, lambda text, edit=edit: edit(text) + hidden)
            unit, answer, err = self.start()
            self.assertEqual((unit["Result"], answer), result, err)

    def test_program_is_the_units_main_process(self):
        """The program is the unit's main process: it may notify, and stop ends it."""
        script = self.make("notify.py", NOTIFY)
        command = "%s %s" % (sys.executable, script)
        for name, edit in ((None, None), (NAMES[0], self.edited(command)), (NAMES[1], str)):
            self.unit(command, "notify")
            self.drop_in(name, edit)
            unit = self.start("show demo -p MainPID", "stop demo", "show demo -p Result")[0]
            self.assertEqual((unit["ActiveState"], unit["Result"]), ("active", "success"), name)
            self.assertEqual(self.read("out"), unit["MainPID"] + "\n")

    def test_program_that_cannot_be_guarded_fails_the_unit(self):
        """A program that cannot be guarded is not started. The unit fails, and a message gives the
        reason."""
        command = "%s lib=libcuda.so.1" % harness.program("static_entry_point")
        self.unit(command)
        self.drop_in(NAMES[0], self.edited(command))
        unit, answer, err = self.start()
        self.assertEqual((unit["Result"], unit["ExecMainStatus"], answer), ("exit-code", "125", []))
        self.assertIn("static executable", err)

    def test_missing_files_prevent_the_start(self):
        """If the files are missing, neither drop-in starts the program unguarded. The variable
        alone would."""
        self.systemd.mounts = self.without
        for name, edit, result in (
                (NAMES[0], self.edited(), "exit-code"), (NAMES[1], str, "assert"),
                (NAMES[1], lambda text: text[text.index("[Service]"):], None)):
            self.unit()
            self.drop_in(name, edit)
            unit, answer, err = self.start("show demo -p AssertResult")
            if result is None:
                self.assertEqual((unit["Result"], answer), ("success", ["0"]))
                self.assertIn("cannot be preloaded", err)
                continue
            self.assertEqual((unit["ActiveState"] == "active", answer, self.read("fake.log")),
                             (False, [], ""))
            if result == "assert":
                self.assertEqual(unit["AssertResult"], "no")
            else:
                self.assertEqual((unit["Result"], unit["ExecMainStatus"]), (result, "203"))


make_service_case = fixtures.lent("service_case", Service)


@pytest.mark.parametrize(("name", "edit", "directory"), [(None, None, None),
                                                         (NAMES[0], "edited", "demo.service.d"),
                                                         (NAMES[1], "as it is", "demo.service.d")])
def test_service_is_guarded(service_case, name, edit, directory):
    service_case.unit()
    service_case.drop_in(name, service_case.edited() if edit == "edited" else str, directory)
    unit, answer, err = service_case.start()
    assert (unit["Result"], unit["ExecMainStatus"]) == ("success", "0"), str((answer, err))
    if not name:
        assert (answer, err) == (["0"], "")
        assert "cuInit\n" in service_case.read("fake.log")
        return
    assert (answer, service_case.read("fake.log")) == (["100"], "")
    assert len(messages.find(err, "no_cuda")) == 1, str(err)
    assert messages.without(err, "no_cuda") == ""


@pytest.mark.parametrize(("name", "value", "edit", "guarded"),
                         [(NAMES[1], "libm.so.6", "as it is", False),
                          (NAMES[1], "libm.so.6", "ahead", False),
                          (NAMES[1], GUARD + ":libm.so.6", "as it is", True),
                          (NAMES[1], None, "ahead", True), (NAMES[0], "libm.so.6", "edited", True)])
def test_environment_file_overrides_the_variable_only(service_case, name, value, edit, guarded):
    """An environment file with LD_PRELOAD overrides the variable of one drop-in, but does not
    affect the other."""
    edits = {"as it is": str, "edited": service_case.edited(), "ahead": ahead}
    service_case.make("variables", "LD_PRELOAD=%s\n" % value if value else "A=b\n", 0o644)
    service_case.unit()
    service_case.drop_in(name, edits[edit])
    with open(service_case.path("units", "demo.service"), "a", encoding="utf-8") as stream:
        stream.write("EnvironmentFile=%s\n" % service_case.path("variables"))
    unit, answer, err = service_case.start()
    assert (unit["Result"], answer) == ("success", ["100" if guarded else "0"]), str(err)
    assert ("cuInit\n" in service_case.read("fake.log")) == (not guarded)
