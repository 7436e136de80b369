# SPDX-License-Identifier: Apache-2.0
"""Files that --json, --junit and --html write: what they never harm, and that they are whole."""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading

import pytest

from support import fixtures, harness, launcher, machine, recorded

OPTIONS = ("--json", "--junit", "--html")
OF_REPORT = ("--json", "--html", "--prometheus")
LONG = "x" * 100000  # in the command, which --json has: more than a pipe takes at once


def is_result(option, data):
    if option == "--json":
        return "cudaguard" in json.loads(data)
    return data.startswith({"--junit": b"<?xml", "--html": b"<!DOCTYPE html>",
                            "--prometheus": b"# HELP cudaguard_"}[option])


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        self.make("app.py", "open('started', 'w').write('x')\n")
        self.make("r.jsonl", recorded.text(recorded.line()), 0o644)
        self.make("notes.txt", "mine\n", 0o644)

    def files(self):
        """Every file below the test's directory: what it is, and a hash of it."""
        found = {}
        for directory, _, names in os.walk(self.directory):
            for name in names:
                path = os.path.join(directory, name)
                if not os.path.exists(path):
                    found[path] = os.readlink(path)
                    continue
                found[path] = (hashlib.sha256(harness.bytes_of(path)).hexdigest(),
                               os.path.islink(path), os.stat(path).st_mode, os.stat(path).st_ino)
        return found

    def written(self, name):
        return harness.bytes_of(self.path(name))

    def run_here(self, *words, **more):
        return self.start(*words, cwd=self.directory, **more)

    def spared(self, words, *meaning, **env):
        """Refused at the start: no program is started, every file is as it was, none is new."""
        before = self.files()
        done = self.run_here(*words, env=launcher.environment(**env))
        self.assertEqual(self.files(), before, words)
        self.refused(done, 125, *meaning)


class Spared(Case):
    def test_control_files_that_the_program_writes_are_seen(self):
        before = self.files()
        self.assertEqual(self.run_here("verify", "--", "python3", "app.py").returncode, 0)
        self.assertEqual(set(self.files()) - set(before), {self.path("started")})

    def test_program_and_its_arguments_are_not_overwritten(self):
        os.link(self.path("app.py"), self.path("hard"))
        os.symlink("app.py", self.path("soft"))
        shutil.copy("/bin/sh", self.path("shell"))
        self.make("script", "#!%s\necho started >started\n" % self.path("shell"))
        program, argument = "is the program's own file", "is an argument of the program"
        for option in OPTIONS:
            for force in ([], ["--force"]):
                for name in ("./app.py", "hard", "soft", "../%s/app.py" % os.path.basename(
                        self.directory)):
                    self.spared(["verify", *force, option, name, "--", "python3", "app.py"],
                                '%s "%s": %s' % (option, name, argument))
                self.spared(["verify", *force, option, "shell", "./script"], program)
                self.spared(["verify", *force, option, "script", "./script"], program)
                self.spared(["verify", *force, option + "=script", "./script"], program)
                # It may become what the program writes.
                self.spared(["verify", *force, option, "new", "--", "python3", "app.py",
                             "--out=./new"], argument)
        self.spared(["doctor", "--force", "--json", "script", "./script"], program)
        self.spared(["doctor", "--force", "--json", "shell", "./script"], program)

    def test_file_that_cudaguard_did_not_write_is_refused(self):
        self.make("config.json", '{"v":1,"name":"x","cudaguard":"0.2.0"}', 0o644)
        self.make("suite.xml", '<?xml version="1.0"?>\n<testsuites>\n<testsuite name="pytest">',
                  0o644)
        self.make("page.html", "<!DOCTYPE html>\n<title>mine</title>", 0o644)
        meaning = ("was not written by cudaguard", "--force")
        for name in ("notes.txt", "r.jsonl", "config.json", "suite.xml", "page.html"):
            for option in OPTIONS:
                self.spared(["verify", option, name, "true"], option, name, *meaning)
            self.spared(["report", "--html", name, "-"], *meaning)
            self.spared(["report", "--json", name, "-"], *meaning)
            self.spared(["doctor", "--json", name], *meaning)
        # As it was written where --json was a flag.
        self.spared(["doctor", "--json", "./app.py"], *meaning)
        self.spared(["report", "--json", "r.jsonl", "notes.txt"], *meaning)
        self.spared(["report", "--json", "r.jsonl"], "no file given")

    def test_file_that_is_read_is_not_overwritten(self):
        os.link(self.path("r.jsonl"), self.path("hard"))
        os.symlink("r.jsonl", self.path("soft"))
        os.mkdir(self.path("records"))
        os.rename(self.path("r.jsonl"), self.path("records", "r.jsonl"))
        os.symlink("records/r.jsonl", self.path("r.jsonl"))
        self.make("empty.jsonl", "", 0o644)
        for option in OF_REPORT:
            for force in ([], ["--force"]):
                for name in ("r.jsonl", "hard", "soft", "records/r.jsonl"):
                    for read in ("r.jsonl", "hard", "records"):
                        self.spared(["report", *force, option, name, read],
                                    '%s "%s": is a file of records to read' % (option, name))
                self.spared(["report", *force, option, "empty.jsonl", "."], "records to read")

    def test_file_of_another_result_is_refused(self):
        os.mkdir(self.path("directory"))
        os.symlink("directory", self.path("other"))
        self.make("a", "", 0o644)
        os.link(self.path("a"), self.path("hard"))
        os.symlink("a", self.path("soft"))
        os.symlink("none", self.path("dangling"))
        for one, other in (("new", "new"), ("new", "./new"), ("directory/new", "other/new"),
                           ("a", "hard"), ("soft", "a"), ("dangling", "none"), ("-", "/dev/stdout"),
                           ("/dev/fd/1", "-")):
            for command in (["verify", "--json", one, "--junit", other, "true"],
                            ["verify", "--junit", one, "--html", other, "true"],
                            ["report", "--json", one, "--html", other, "r.jsonl"]):
                self.spared(command, '"%s": is the file of another result' % other)
        for name in ("directory/x.jsonl", "r.jsonl"):
            meaning = "is the file of the records"
            self.spared(["verify", "--report", name, "--json", name, "true"], meaning)
            self.spared(["verify", "--json", name, "true"], meaning,
                        CUDAGUARD_REPORT=self.path(name))

    def test_file_that_cannot_be_made_is_refused(self):
        for option in OPTIONS:
            self.spared(["verify", option, "", "true"],
                        option + ' "": not accepted (accepted: a file, or - for')
            self.spared(["verify", option, self.directory, "true"], "Is a directory")
            self.spared(["verify", option, "new/", "true"], "No such file or directory")
            self.spared(["verify", option, "none/x", "true"], "No such file or directory")
            self.spared(["verify", option, "notes.txt/x", "true"], "Not a directory")
            self.spared(["verify", option, "n" * 300, "true"], "File name too long")

    def test_closed_or_read_only_descriptor_is_refused(self):
        for command in (["verify", "--json", "-", "true"], ["report", "--html", "-", "r.jsonl"],
                        ["doctor", "--json", "/dev/stdout"]):
            before = self.files()
            done = self.unguarded("sh", "-c", '"$0" "$@" >&-', launcher.LAUNCHER, *command,
                                  cwd=self.directory)
            self.refused(done, 125, "Bad file descriptor")
            self.assertEqual(self.files(), before)
        with open(self.path("r.jsonl"), "rb") as stream:
            name = "/dev/fd/%d" % stream.fileno()
            done = self.run_here("verify", "--json", name, "true", pass_fds=[stream.fileno()])
            self.refused(done, 125, name, "open for reading only")

    def test_file_without_permission_is_refused(self):
        """A write-protected result, a read-only directory, a file of the user nobody."""
        os.mkdir(self.path("locked"))
        self.assertEqual(self.run_here("verify", "--json", "locked/r.json", "true").returncode, 0)
        os.chmod(self.path("locked", "r.json"), 0o444)
        os.chmod(self.path("locked"), 0o555)
        # Root may write everywhere.
        command = self.ordinary_user()
        before = self.files()
        for name in ("locked/r.json", "locked/new"):
            done = self.unguarded(*command, "verify", "--json", name, "true",
                                  cwd=self.directory)
            self.refused(done, 125, '--json "%s": Permission denied' % name)
        self.assertEqual(self.files(), before)
        os.chmod(self.path("locked", "r.json"), 0o666)
        done = self.unguarded(*command, "verify", "--json", "locked/r.json", "true", "again",
                              cwd=self.directory)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(json.loads(self.written("locked/r.json"))["command"], ["true", "again"])
        self.assertEqual(os.listdir(self.path("locked")), ["r.json"])

    def test_file_that_the_program_has_made_is_not_replaced(self):
        for script, code in (("true", 125), ("python3 -c 'import ctypes; "
                                             "ctypes.CDLL(\"libcuda.so.1\").cuInit(0)'", 1)):
            done = self.run_here("verify", "--json", "made", "sh", "-c", "echo a >made; " + script)
            self.assertEqual(done.returncode, code, done)
            self.assertIn('--json "made": the file was not written by cudaguard', done.stderr)
            self.assertEqual(self.written("made"), b"a\n")
            os.unlink(self.path("made"))

    def test_interrupted_run_keeps_the_older_result(self):
        """It leaves the result of the earlier one, which the program can read."""
        for option in OPTIONS:
            self.assertEqual(self.run_here("verify", option, "r", "true").returncode, 0)
            before = self.files()
            done = self.run_here("verify", option, "r", "sh", "-c", "cmp r r && kill -9 $PPID",
                                 env=launcher.environment(TMPDIR="/tmp"))
            self.assertEqual(done.returncode, -9, done)
            self.assertEqual(self.files(), before)
            os.unlink(self.path("r"))

    def test_signal_while_the_result_is_written_leaves_no_other_file(self):
        """It ends the command after the file has its name. The mode is set before anything is
        written."""
        machine.need("tracing")
        for words in (["report", "--json", "r", "r.jsonl"], ["doctor", "--json", "r", "sh"]):
            for number in ("INT", "TERM", "HUP"):
                before = set(self.files())
                done = self.unguarded("strace", "-o", "/dev/null", "-e",
                                      "inject=fchmod:signal=" + number, launcher.LAUNCHER, *words,
                                      cwd=self.directory)
                self.assertEqual(done.returncode, -getattr(signal, "SIG" + number), done)
                self.assertEqual(set(self.files()) - before, {self.path("r")})
                self.assertTrue(is_result("--json", self.written("r")))
                os.unlink(self.path("r"))

    def test_full_disk_keeps_the_older_result(self):
        self.assertEqual(self.run_here("verify", "--json", "r", "true").returncode, 0)
        before = self.files()
        for words in (["verify", "--json", "r", "true"], ["report", "--json", "r", "r.jsonl"],
                      ["doctor", "--json", "r", "sh"]):
            done = self.unguarded("prlimit", "--fsize=100", launcher.LAUNCHER, *words,
                                  cwd=self.directory)
            self.assertEqual(done.returncode, 125, done)
            self.assertIn('--json "r": File too large', done.stderr)
            self.assertEqual(self.files(), before)

    def test_full_disk_for_one_file_spares_the_other(self):
        done = self.run_here("verify", "--json", "/dev/full", "--junit", "r", "true")
        self.assertEqual(done.returncode, 125, done)
        self.assertIn('--json "/dev/full": No space left on device', done.stderr)
        self.assertTrue(is_result("--junit", self.written("r")))


class Written(Case):
    @staticmethod
    def commands(name):
        """(the option, the command that writes this file by it)"""
        for option in OPTIONS:
            yield option, ["verify", option, name, "true"]
        for option in OF_REPORT:
            yield option, ["report", option, name, "r.jsonl"]
            yield option, ["report", "--by", "exe", option, name, "r.jsonl"]
        yield "--json", ["doctor", "--json", name]
        yield "--json", ["doctor", "--json", name, "sh"]

    def write(self, words):
        done = self.run_here(*words)
        self.assertIn(done.returncode, (0, 1), done)  # 1: of doctor, for want of a driver
        self.assertNotIn("--", done.stderr)
        return done

    def test_result_goes_to_a_new_or_empty_file_through_a_link(self):
        os.symlink("target", self.path("link"))
        for option, words in self.commands("link"):
            for content in (None, ""):
                if content is not None:
                    self.make("target", content, 0o644)
                self.write(words)
                self.assertTrue(is_result(option, self.written("target")))
                self.assertTrue(os.path.islink(self.path("link")))
                os.unlink(self.path("target"))
        self.assertEqual([name for name in os.listdir(self.directory) if name.startswith(".")], [])

    def test_force_replaces_another_file(self):
        for option, words in self.commands("other"):
            self.make("other", "other\n", 0o644)
            self.write([words[0], "--force", *words[1:]])
            self.assertTrue(is_result(option, self.written("other")))

    def test_new_file_has_the_mode_of_the_umask(self):
        done = self.unguarded("sh", "-c", 'umask 027; "$0" verify --json new true',
                              launcher.LAUNCHER,
                              cwd=self.directory)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(os.stat(self.path("new")).st_mode & 0o777, 0o640)

    def test_result_on_standard_output_replaces_the_text(self):
        """The result comes after what the program prints."""
        for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            for option, words in self.commands(name):
                done = self.run_here(*words, text=False)
                self.assertIn(done.returncode, (0, 1), (words, str(done)))
                self.assertTrue(is_result(option, done.stdout), (words, done.stdout[:200]))
        done = self.unguarded("sh", "-c",
                              'echo a >log; "$0" verify --json - echo b >>log; echo c >>log',
                              launcher.LAUNCHER, cwd=self.directory)
        text = self.written("log").decode()
        self.assertTrue(text.startswith("a\nb\n{") and text.endswith("}\nc\n"), text)
        self.assertEqual(json.loads(text[4:-2])["command"], ["echo", "b"])

    def test_device_takes_any_number_of_results(self):
        done = self.run_here("verify", "--json", "/dev/null", "--html", "/dev/null", "true")
        self.assertEqual(done.returncode, 0, done)

    def test_bind_mounted_file_is_written_in_place(self):
        """No other file can get its name."""
        self.write(["verify", "--json", "result", "true"])
        mounted = self.make("mounted", "", 0o644)
        done = self.unguarded(*harness.sandbox("none", ["--bind", self.path("result"), mounted]),
                              launcher.LAUNCHER, "verify", "--json", mounted, "true", "again")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(json.loads(self.written("result"))["command"], ["true", "again"])

    def test_another_users_file_in_a_sticky_directory_is_written_in_place(self):
        """As in /tmp, only its owner can rename or replace it."""
        machine.need("other_users")
        command = self.installed()
        os.chmod(self.directory, 0o1777)
        self.write(["report", "--json", "result", "r.jsonl"])
        os.chmod(self.path("result"), 0o666)
        inode = os.stat(self.path("result")).st_ino
        done = self.unguarded(*machine.AS_NOBODY, command, "verify", "--json", "result", "true",
                              "again", cwd=self.directory)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(json.loads(self.written("result"))["command"], ["true", "again"])
        self.assertEqual(os.stat(self.path("result")).st_ino, inode)


make_written = fixtures.lent("written", Written)


@pytest.mark.parametrize(("option", "words"), list(Written.commands("result")))
def test_result_replaces_an_older_result(written, option, words):
    """The file keeps its mode, and the text is printed as ever."""
    first = written.write(words)
    os.chmod(written.path("result"), 0o640)
    inode = os.stat(written.path("result")).st_ino
    second = written.write(words)
    assert is_result(option, written.written("result"))
    status = os.stat(written.path("result"))
    assert status.st_mode & 0o777 == 0o640
    assert status.st_ino != inode
    assert first.stdout + first.stderr
    assert bool(first.stdout) == bool(second.stdout)


class Pipes(Case):
    def through(self, words, nonblocking=False):
        """What comes by the pipe that {} is the name of, to its end."""
        reads, writes = os.pipe()
        if nonblocking:
            flags = fcntl.fcntl(writes, fcntl.F_GETFL)
            fcntl.fcntl(writes, fcntl.F_SETFL, flags | os.O_NONBLOCK)
            fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)  # soon full
        named = [word.replace("{}", "/dev/fd/%d" % writes) for word in words]
        child = subprocess.Popen([launcher.LAUNCHER, *named], pass_fds=[writes], cwd=self.directory,
                                 env=launcher.environment(), stdin=subprocess.DEVNULL,
                                 stdout=writes if named == words else subprocess.DEVNULL,
                                 stderr=subprocess.PIPE)
        os.close(writes)
        with open(reads, "rb") as stream:
            data = stream.read()
        self.assertEqual((child.communicate()[1].count(b"--json"), child.returncode), (0, 0))
        return data

    def test_pipe_gets_the_whole_result(self):
        for nonblocking in (False, True):
            for words in (["true", LONG], ["sh", "-c", "exec 9>&-; sleep 0.1", LONG]):
                data = self.through(["verify", "--json", "{}", *words], nonblocking)
                self.assertGreater(len(data), 65536)
                self.assertEqual(json.loads(data)["command"], words)
        self.make("many.jsonl", recorded.text(*(recorded.line(pid=i, script="%0100d.py" % i)
                                                for i in range(2, 500))), 0o644)
        data = self.through(["report", "--html", "{}", "many.jsonl"])
        self.assertGreater(len(data), 65536)
        self.assertTrue(data.endswith(b"</html>\n"))
        words = ["report", "--by", "line", "many.jsonl"]
        data = self.through(words, nonblocking=True)
        self.assertGreater(len(data), 65536)
        self.assertEqual(data.decode(), self.run_here(*words).stdout)

    def test_named_pipe_gets_the_whole_result(self):
        os.mkfifo(self.path("fifo"))
        got = []
        for words in (["verify", "--json", "fifo", "true", LONG],
                      ["doctor", "--json", "fifo", "sh"]):
            thread = threading.Thread(target=lambda: got.append(self.written("fifo")))
            thread.start()
            self.assertEqual(self.run_here(*words).returncode, 0)
            thread.join()
            self.assertTrue(is_result("--json", got.pop()))

    def test_signal_ends_the_waiting_for_a_reader(self):
        reads, writes = os.pipe()
        self.addCleanup(os.close, reads)
        self.addCleanup(os.close, writes)
        for number in (2, 15):
            child = subprocess.Popen(
                [launcher.LAUNCHER, "verify", "--json", "/dev/fd/%d" % writes, "true", LONG],
                pass_fds=[writes], env=launcher.environment(), stderr=subprocess.PIPE)
            self.assertIn(b"PASS", child.stderr.readline())
            child.send_signal(number)
            self.addCleanup(child.kill)
            self.assertEqual(child.wait(60), -number)
            child.stderr.close()

    def test_pipe_without_a_reader_keeps_the_verdict(self):
        """The verdict stays; without one that fails it is our own error."""
        attempt = ["python3", "-c", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"]
        for words, code in ((["true"], 125), (attempt, 1)):
            reads, writes = os.pipe()
            os.close(reads)
            name = "/dev/fd/%d" % writes
            done = self.run_here("verify", "--json", name, "--", *words, pass_fds=[writes])
            os.close(writes)
            self.assertEqual(done.returncode, code, done)
            self.assertIn('--json "%s": Broken pipe' % name, done.stderr)
