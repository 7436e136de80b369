# SPDX-License-Identifier: Apache-2.0
"""A setuid program, run by an ordinary user, with the guard in /etc/ld.so.preload. All in a
mount namespace with a copy of /etc: the machine's own is never written to. (bubblewrap cannot be
used: it forbids setuid.)"""

import os
import shlex
import shutil
import subprocess

from support import guest, harness, messages

NOBODY = 65534
IGNORED = ("ERROR: ld.so: object 'libcudaguard.so' from LD_PRELOAD cannot be preloaded "
           "(cannot open shared object file): ignored.\n")
IN_NAMESPACE = """set -eu
etc=$1 preload=$2 driver=$3; shift 3
for directory in {masks}; do if [ -d "$directory" ]; then mount -t tmpfs none "$directory"; fi; done
mount --bind "$etc" /etc
{{ echo "$driver"; cat /etc/ld.so.conf; }} > /etc/fake.conf
/sbin/ldconfig -X -f /etc/fake.conf 2>/dev/null
if [ -n "$preload" ]; then echo "$preload" > /etc/ld.so.preload; fi
exec setpriv --reuid={nobody} --regid={nobody} --clear-groups -- "$@"
""".format(masks=" ".join(map(shlex.quote, harness.REAL_DRIVER_DIRS)), nobody=NOBODY)


class Privileged(guest.Case):
    def setUp(self):
        super().setUp()
        self.need("unshare", "setpriv")
        if os.geteuid() != 0:
            harness.skip(self, "needs root for a mount namespace and a setuid file")
        self.guard = harness.copy_install(self.path("lib"))
        self.setuid = self.path("steps-setuid")
        self.plain = self.path("steps-plain")
        for name, mode in ((self.setuid, 0o4755), (self.plain, 0o755)):
            shutil.copy(guest.STEPS, name)
            os.chown(name, 0, 0)
            os.chmod(name, mode)
        driver = self.path("driver")
        shutil.copytree(harness.FAKE_DRIVER, driver, symlinks=True)
        self.driver = driver
        shutil.copytree("/etc", self.path("etc"), symlinks=True, ignore_dangling_symlinks=True,
                        ignore=shutil.ignore_patterns("alternatives", "ssl"))  # half of its files
        # Where an ordinary user may write, so that an absent file means something.
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        self.report = self.path("open", "report")
        self.fake_log = self.path("open", "fake.log")

    def run_as_nobody(self, program, *steps, preload=True, **env):
        environment = {"PATH": "/usr/bin:/bin", "CG_FAKE_LOG": self.fake_log, **env}
        command = ["unshare", "-m", "--propagation", "private", "sh", "-c", IN_NAMESPACE, "sh",
                   self.path("etc"), self.guard if preload else "", self.driver,
                   "env", "-i", *("%s=%s" % item for item in environment.items()), program, *steps]
        before = os.path.exists("/etc/ld.so.preload")
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(os.path.exists("/etc/ld.so.preload"), before, "the machine was changed")
        self.assertEqual(done.returncode, 0, done)
        return done

    def fake_calls(self):
        if not os.path.exists(self.fake_log):
            return []
        with open(self.fake_log, encoding="utf-8") as stream:
            calls = stream.read().split()
        os.unlink(self.fake_log)
        return calls

    def test_control_setuid_program_reaches_the_driver_without_the_file(self):
        """The setuid program does get its privilege. An ordinary program obeys OFF under the same
        file."""
        done = self.run_as_nobody(self.setuid, "ask", "results:" + self.path("made-by-root"),
                                  preload=False)
        self.assertEqual(done.stdout, "cuInit=0\n", done)
        self.assertIn("cuInit", self.fake_calls())
        self.assertEqual(os.stat(self.path("made-by-root")).st_uid, 0)
        done = self.run_as_nobody(self.plain, "ask", CUDAGUARD_POLICY="OFF")
        self.assertEqual(done.stdout, "cuInit=0\n", done)
        self.assertIn("cuInit", self.fake_calls())

    def test_ordinary_program_reads_its_environment(self):
        done = self.run_as_nobody(self.plain, "ask", CUDAGUARD_REPORT=self.report,
                                  CUDAGUARD_HELLO="1")
        self.assertEqual(done.stdout, "cuInit=100\n", done)
        self.assertEqual(self.fake_calls(), [])
        self.assertEqual([(record.get("event"), record["uid"]) for record in
                          harness.records(self.report)], [("start", NOBODY), (None, NOBODY)])
        # Here OFF is obeyed (as the control shows), so the message may name OFF.
        self.assertEqual(guest.lines_of(done.stderr), [guest.DENIED % "steps-plain"])

    def test_setuid_program_ignores_cudaguards_variables(self):
        for env in ({"CUDAGUARD_POLICY": "OFF"}, {"CUDAGUARD_LOG": "off"}, {"CUDAGUARD_LOG": "all"},
                    {"CUDAGUARD_POLICY": "nonsense"}, {"CUDAGUARD_REPORT": self.report},
                    {"CUDAGUARD_REPORT": self.report + ".%p", "CUDAGUARD_POLICY": "OFF"},
                    {"CUDAGUARD_REPORT": self.report, "CUDAGUARD_HELLO": "1"}):
            with self.subTest(env):
                done = self.run_as_nobody(self.setuid, "load:libm.so.6", "ask", "nvml",
                                          "ask:libcuda.so",
                                          "ask:" + os.path.join(self.driver, "libcuda.so.1"), **env)
                self.assertEqual(done.stdout, "load=ok\ncuInit=100\nnvmlInit_v2=9\ncuInit=100\n"
                                 "cuInit=100\n", done)
                self.assertEqual(self.fake_calls(), [])
                # FORCE_CPU with the default log: one line, no complaint.
                self.assertEqual(guest.lines_of(done.stderr), [guest.PRIVILEGED % "steps-setuid"])
                self.assertEqual(done.stderr.count("\n"), 1, done)
                self.assertEqual(sorted(os.listdir(self.path("open"))), [])

    def test_forked_child_of_a_setuid_program_reads_no_variable(self):
        done = self.run_as_nobody(self.setuid, "ask", "fork", "setenv:CUDAGUARD_POLICY=OFF",
                                  "setenv:CUDAGUARD_REPORT=" + self.report, "ask", "end")
        self.assertEqual(done.stdout.count("cuInit=100"), 2, done)
        self.assertEqual(self.fake_calls(), [])
        self.assertFalse(os.path.exists(self.report))

    def test_setuid_program_that_gives_up_its_rights_finds_nothing_missing(self):
        """The guard's directory is root's alone. ld.so loads the guard with the program's rights, and
        the program then becomes the user who has started it."""
        program = shutil.copy(guest.binary("jail"), self.directory)
        os.chmod(program, 0o4755)
        words = (program, "uid=%d" % NOBODY, "libm.so.6")
        # What the test hides: with the file that all may read, the driver's name is found.
        done = self.run_as_nobody(*words, "libcuda.so.1")
        self.assertEqual((done.stdout, done.stderr), ("libm.so.6 ok\nlibcuda.so.1 ok\n", ""), done)
        os.mkdir(self.path("private"))
        os.rename(self.path("lib"), self.path("private", "lib"))
        os.chmod(self.path("private"), 0o700)
        self.guard = self.path("private", "lib", "libcudaguard.so")
        # The programs around this one are ordinary, and cannot load the guard.
        done = self.run_as_nobody(*words)
        self.assertEqual(done.stdout, "libm.so.6 ok\n", done)
        self.assertEqual(guest.lines_of(done.stderr), [])
        done = self.run_as_nobody(*words, "libcuda.so.1")
        self.assertEqual(done.stdout, "libm.so.6 ok\nlibcuda.so.1 null\n", done)
        self.assertEqual(len(guest.lines_of(done.stderr)), 1, done)
        self.assertEqual(len(messages.find(done.stderr, "file_unreachable")), 1, done)

    def write_etc(self, name, text, mode=0o644):
        path = self.path("etc", name)
        if os.path.exists(path):
            os.remove(path)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(path, mode)

    def test_sudo_with_its_module_and_command_is_guarded(self):
        """sudo is setuid. Its PAM module is linked to the driver and asks, and so does the command
        that sudo starts as root with an environment of its own."""
        self.need("sudo")
        module = shutil.copy(os.path.join(harness.BUILD, "tests", "hosts", "pam_asks.so"),
                             self.directory)
        self.write_etc("pam.d/sudo", "account required %s\nsession required pam_permit.so\n" % module)
        self.write_etc("sudoers", 'ALL ALL=(ALL) NOPASSWD: ALL\nDefaults env_keep += "CG_FAKE_LOG"\n',
                       0o440)
        command = (shutil.which("sudo"), "-n", self.plain, "ask")
        done = self.run_as_nobody(*command, preload=False)
        self.assertEqual(done.stdout, "cuInit=0\ncuInit=0\n", done)
        self.assertEqual(self.fake_calls().count("cuInit"), 2)
        done = self.run_as_nobody(*command)
        self.assertEqual(done.stdout, "cuInit=100\ncuInit=100\n", done)
        self.assertEqual(self.fake_calls(), [])
        self.assertEqual(guest.lines_of(done.stderr),
                         [guest.PRIVILEGED % "pam_asks.so", guest.DENIED % "steps-plain"])

    def test_limit_ld_preload_does_not_guard_setuid_programs(self):
        """Documented: LD_PRELOAD is not for privileged programs; ld.so drops a path without a
        word."""
        done = self.run_as_nobody(self.setuid, "ask", preload=False, LD_PRELOAD=self.guard)
        self.assertEqual((done.stdout, done.stderr), ("cuInit=0\n", ""), done)
        self.assertIn("cuInit", self.fake_calls())
        done = self.run_as_nobody(self.plain, "ask", preload=False, LD_PRELOAD=self.guard)
        self.assertEqual(done.stdout, "cuInit=100\n", done)

    def test_limit_ld_so_ignores_a_file_name_for_setuid_programs(self):
        """Documented: at each start, ld.so prints that it ignores the file name."""
        os.symlink(self.guard, os.path.join(self.driver, "libcudaguard.so"))
        done = self.run_as_nobody(self.setuid, "ask", preload=False, LD_PRELOAD="libcudaguard.so")
        self.assertEqual((done.stdout, done.stderr), ("cuInit=0\n", IGNORED), done)
        self.assertIn("cuInit", self.fake_calls())
        # Where the same name is found, for an ordinary program.
        done = self.run_as_nobody(self.plain, "ask", preload=False, LD_PRELOAD="libcudaguard.so")
        self.assertEqual(done.stdout, "cuInit=100\n", done)
        self.assertNotIn(IGNORED, done.stderr)
