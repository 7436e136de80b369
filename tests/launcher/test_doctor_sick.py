# SPDX-License-Identifier: Apache-2.0
"""`doctor` and drivers that hang, crash, or answer what a healthy one does not."""

import glob
import json
import os
import signal
import subprocess
import sys
import time
import unittest

import doctor
import harness
import launcher


def running(executable):
    """The processes that run this file."""
    found = []
    for link in glob.glob("/proc/[0-9]*/exe"):
        try:
            if os.readlink(link) == executable:
                found.append(int(link.split("/")[2]))
        except OSError:
            continue
    return found


class Sick(doctor.Case):
    def setUp(self):
        super().setUp()
        self.driver = self.sick()
        # A copy, whose processes are this test's.
        self.command = self.installed()
        self.probe = self.path("install", "lib", "cudaguard", "cudaguard-probe")

    def ill(self, illness, **more):
        return self.doctor(command=self.command, LD_LIBRARY_PATH=self.driver, CG_SICK=illness,
                           **more)

    def hangs(self, illness, where, **more):
        answer = self.ill(illness, **doctor.WAIT, **more)
        self.assertEqual((answer.code, answer.cuinit["outcome"], answer.cuinit["where"]),
                         (1, "hang", where), answer.text)
        self.assertIn("the driver hangs %s (or is slow: CUDAGUARD_DOCTOR_TIMEOUT=60 waits longer)" %
                      where, answer.problems[0])
        return answer

    def test_well(self):
        """The control of all others."""
        for code, name in ((0, "CUDA_SUCCESS"), (100, "CUDA_ERROR_NO_DEVICE")):
            answer = self.ill("", CG_ANSWER=str(code))
            self.assertEqual((answer.code, answer.cuinit["outcome"], answer.cuinit["code"],
                              answer.cuinit["name"]), (0, "answer", code, name), answer.text)
        self.assertIsNone(answer.cuinit["signal"])

    def test_answers(self):
        for code, *meaning in (
                (999, "CUDA_ERROR_UNKNOWN", "dmesg"), (3, "CUDA_ERROR_NOT_INITIALIZED"),
                (304, "CUDA_ERROR_OPERATING_SYSTEM", "system call"),
                (802, "CUDA_ERROR_SYSTEM_NOT_READY", "fabricmanager"),
                (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot"),
                (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "cuda-compat")):
            answer = self.ill("", CG_ANSWER=str(code))
            self.assertEqual((answer.code, answer.cuinit["outcome"], answer.cuinit["code"],
                              answer.cuinit["name"]), (1, "answer", code, meaning[0]), answer.text)
            self.problem(answer, "cuInit fails with %d" % code, *meaning)
        for code in (12345, -7):
            answer = self.ill("", CG_ANSWER=str(code))
            self.assertEqual((answer.cuinit["code"], answer.cuinit["name"]), (code, None))
            self.problem(answer, "cuInit fails with %d" % code)
        self.golden("doctor_999.txt", LD_LIBRARY_PATH=self.driver, CG_ANSWER="999")

    def test_hangs(self):
        for illness, where, code in (("ignores signals", "in cuInit", None),
                                     ("hangs when loaded", "before cuInit", None),
                                     ("hangs later", "behind cuInit", 0)):
            with self.subTest(illness=illness):
                answer = self.hangs(illness, where, CG_ANSWER="0")
                self.assertEqual((len(answer.problems), answer.cuinit["code"]), (1, code))
                self.assertIsNone(answer.cuinit["stuck"])
                self.assertEqual(running(self.probe), [], "it was left behind")
        self.golden("doctor_hang.txt", LD_LIBRARY_PATH=self.driver, CG_SICK="hangs", **doctor.WAIT)

    def test_cannot_be_killed(self):
        """As in uninterruptible sleep: doctor does not wait for its end."""
        answer = self.hangs("stuck", "in cuInit")
        stuck = answer.cuinit["stuck"]
        self.assertIn(stuck, running(self.probe), "control: it was killed after all")
        self.assertIn("process %d, which asked the driver, does not die of SIGKILL" % stuck,
                      answer.problems[1])

    def test_leaves_a_child(self):
        """Which holds the probe's output: nobody waits for it."""
        answer = self.ill("leaves a child")
        self.assertEqual((answer.code, answer.cuinit["code"]), (0, 100), answer.text)
        self.assertNotEqual(running(self.probe), [], "control: there was none to wait for")

    def test_crashes(self):
        for illness, where, name in (("crashes", "in cuInit", "SIGSEGV"),
                                     ("aborts", "in cuInit", "SIGABRT"),
                                     ("crashes when loaded", "before cuInit", "SIGSEGV"),
                                     ("crashes later", "behind cuInit", "SIGSEGV")):
            answer = self.ill(illness, CG_ANSWER="0")
            self.assertEqual((answer.code, answer.cuinit["outcome"], answer.cuinit["where"],
                              answer.cuinit["signal"]), (1, "signal", where, name), answer.text)
            self.problem(answer, "the driver crashes %s (%s)" % (where, name))
        self.assertEqual(glob.glob(self.path("core*")) + glob.glob("core*"), [])
        self.golden("doctor_crash.txt", LD_LIBRARY_PATH=self.driver, CG_SICK="crashes")

    def test_a_hidden_gpu_is_sick(self):
        answer = self.ill("crashes with all", CUDA_VISIBLE_DEVICES="0", CG_ANSWER="0")
        self.assertEqual((answer.code, answer.cuinit["code"], answer.machine["gpus"]),
                         (0, 0, None), answer.text)
        self.assertIn("with every GPU visible the driver crashes in cuInit (SIGSEGV); cudaguard "
                      "run keeps programs off it", answer.notes)

    def test_doctor_is_killed(self):
        """Its child goes with it."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            with subprocess.Popen([self.command, "doctor"], stdout=subprocess.DEVNULL,
                                  env={"LD_LIBRARY_PATH": self.driver,
                                       "CG_SICK": "ignores signals"}) as process:
                self.until(lambda: running(self.probe))
                process.send_signal(signal_number)
            self.until(lambda: not running(self.probe))

    def until(self, condition):
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_ends_the_process(self):
        answer = self.ill("exits")
        self.assertEqual(answer.cuinit["outcome"], "failed")
        self.problem(answer, "libcuda.so.1 does not work: the probe ended without an answer")

    def test_talks(self):
        """What the driver prints is not taken for the probe's words."""
        answer = self.ill("talks", CG_ANSWER="999")
        self.assertEqual((answer.cuinit["outcome"], answer.cuinit["code"]), ("answer", 999))

    def test_strange_devices(self):
        answer = self.ill("is strange", CG_ANSWER="0")
        gpus = answer.cuinit["gpus"]
        self.assertEqual((len(gpus), gpus[0]["uuid"]), (256, None))
        self.assertEqual(answer.cuinit["code"], 0)
        self.assertNotIn("\n", gpus[0]["name"])
        answer = self.ill("cannot count", CG_ANSWER="0")
        self.assertIsNone(answer.cuinit["gpus"])

    def test_without_what_is_asked(self):
        answer = self.doctor(LD_LIBRARY_PATH=self.sick("sick_no_init", "no-init"))
        self.problem(answer, "libcuda.so.1 does not work: it has no cuInit")
        missing = self.library("libneeded.so", "int x;", "-Wl,-soname,libneeded.so")
        folder = self.library("libcuda.so.1", "", "-L" + missing, "-Wl,--no-as-needed", "-lneeded")
        answer = self.doctor(LD_LIBRARY_PATH=folder)
        self.assertEqual(answer.cuinit["outcome"], "failed")
        self.problem(answer, "libcuda.so.1 does not work: error while loading shared libraries: "
                     "libneeded.so: cannot open shared object file")

    def test_the_probe_is_missing(self):
        os.unlink(self.probe)
        answer = self.ill("")
        self.problem(answer, self.probe + " is missing: install cudaguard again")
        self.assertEqual(answer.cuinit["outcome"], "not tried")

    def test_the_probe_cannot_be_started(self):
        os.chmod(self.probe, 0o644)
        answer = self.ill("")
        self.assertEqual((answer.code, answer.cuinit["outcome"]), (0, "not tried"), answer.text)
        self.assertIn("cannot be started: Permission denied", answer.notes[-1])

    def test_time_limit(self):
        for value in ("0", "-1", "x", "1s", "3601", "99999999999999999999", " 1"):
            done = self.start("doctor", env={"CUDAGUARD_DOCTOR_TIMEOUT": value,
                                             "LD_LIBRARY_PATH": self.driver})
            self.refused(done, 125, 'CUDAGUARD_DOCTOR_TIMEOUT="%s" is not accepted' % value,
                         "(accepted: seconds, 1 to 3600)")
        self.assertEqual(self.ill("", CUDAGUARD_DOCTOR_TIMEOUT="").cuinit["code"], 100)

    def test_many_answers(self):
        """An answer that is there at once is not waited for, and none is lost."""
        for _ in range(20):
            self.assertEqual(self.ill("", CUDAGUARD_DOCTOR_TIMEOUT="60").cuinit["code"], 100)


class Sandboxed(doctor.Case):
    """What the probe may not do to the machine, whoever asks."""

    PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#ifdef __x86_64__
#include <sys/io.h>
#endif
#define TRY(call) if ((call) != -1 || errno != EPERM) { fprintf(stderr, "%s: errno %d\n", #call, errno); _exit(9); }
int cuInit(unsigned flags) {
  (void)flags;
  char file[4096]; char other[4096];
  snprintf(file, sizeof file, "%s/file", getenv("CG_FOLDER"));
  snprintf(other, sizeof other, "%s/other", getenv("CG_FOLDER"));
  TRY(mknod("/dev/nvidiactl", S_IFCHR | 0666, makedev(195, 255)));
  TRY(mknodat(AT_FDCWD, "/dev/nvidiactl", S_IFCHR | 0666, makedev(195, 255)));
  TRY(mkdir(other, 0777)); TRY(rmdir(getenv("CG_FOLDER"))); TRY(unlink(file));
  TRY(unlinkat(AT_FDCWD, file, 0)); TRY(rename(file, other)); TRY(link(file, other));
  TRY(symlink(file, other)); TRY(chmod(file, 0777)); TRY(chown(file, 1, 1)); TRY(lchown(file, 1, 1));
  TRY(fchmodat(AT_FDCWD, file, 0777, 0));
  TRY(syscall(SYS_renameat2, AT_FDCWD, file, AT_FDCWD, other, 0));
  TRY(syscall(452, AT_FDCWD, file, 0777, 0));
  TRY(syscall(SYS_init_module, 0, 0, "")); TRY(syscall(SYS_finit_module, -1, "", 0));
  TRY(syscall(SYS_delete_module, "x", 0)); TRY(syscall(SYS_kexec_load, 0, 0, 0, 0));
  TRY(syscall(SYS_reboot, 0, 0, 0, 0)); TRY(mount("none", getenv("CG_FOLDER"), "tmpfs", 0, 0));
  TRY(umount2(getenv("CG_FOLDER"), 0)); TRY(syscall(SYS_pivot_root, "/", "/")); TRY(chroot("/"));
  TRY(swapon(file, 0)); TRY(swapoff(file)); TRY(acct(file));
  TRY(syscall(SYS_settimeofday, 0, 0)); TRY(syscall(SYS_clock_settime, -1, 0));
  TRY(sethostname("x", 1)); TRY(setdomainname("x", 1));
  TRY(utimensat(AT_FDCWD, file, 0, 0)); TRY(setxattr(file, "user.x", "x", 1, 0));
  TRY(lsetxattr(file, "user.x", "x", 1, 0)); TRY(fsetxattr(-1, "user.x", "x", 1, 0));
  TRY(removexattr(file, "user.x")); TRY(lremovexattr(file, "user.x"));
  TRY(fremovexattr(-1, "user.x")); TRY(syscall(SYS_bpf, -1, 0, 0));
  TRY(syscall(SYS_kexec_file_load, -1, -1, 0, 0, 0));
  for (int number = 428; number <= 433; ++number) TRY(syscall(number, -1, 0, 0, 0, 0));
  TRY(syscall(425, 1, 0)); TRY(syscall(442, -1, 0, 0, 0, 0)); TRY(syscall(463, -1, 0, 0, 0, 0, 0));
  TRY(syscall(466, -1, 0, 0, 0));
#ifdef __x86_64__
  TRY(syscall(SYS_utime, file, 0)); TRY(syscall(SYS_utimes, file, 0));
  TRY(syscall(SYS_futimesat, AT_FDCWD, file, 0)); TRY(iopl(0)); TRY(ioperm(0, 1, 0));
  TRY(syscall(0x40000000 + 133, "/dev/nvidiactl", S_IFCHR | 0666, makedev(195, 255)));
#endif
  return system(getenv("CG_COMMAND")) == 0 ? 0 : 100;
}
"""

    @unittest.skipUnless(os.geteuid() == 0, "for others these calls fail anyway")
    def test_calls(self):
        folder = self.library("libcuda.so.1", self.PROGRAM, "-Wl,-soname,libcuda.so.1")
        self.make("file", "x", 0o600)
        # Children as well; and reading, writing and starting programs are not touched.
        command = ("! mknod /dev/nvidia0 c 195 0 2>/dev/null && ! rm -f %s 2>/dev/null && "
                   "grep -q x %s && test \"$(grep NoNewPrivs /proc/self/status)\" = "
                   "\"$(printf 'NoNewPrivs:\\t1')\"") % (self.path("file"), self.path("file"))
        answer = self.doctor(LD_LIBRARY_PATH=folder, CG_FOLDER=self.folder, CG_COMMAND=command)
        self.assertEqual((answer.cuinit["outcome"], answer.cuinit["code"]), ("answer", 0),
                         answer.text)
        self.assertEqual(answer.nodes, [])
        self.assertEqual(oct(os.stat(self.path("file")).st_mode & 0o777), "0o600")
        # Control: the probe alone may.
        code, out, err, nodes = self.run_in([doctor.PROBE], env={
            "LD_LIBRARY_PATH": folder, "CG_FOLDER": self.folder, "CG_COMMAND": command})
        self.assertEqual(code, 9, out + err)
        self.assertIn("mknod", err)
        self.assertEqual(nodes, ["/dev/nvidiactl"])

    def test_unguarded(self):
        """The guard, its variables and what is preloaded besides do not reach the driver that is
        asked; other variables do."""
        folder = self.library("libcuda.so.1", r'''
#include <stdlib.h>
int cuInit(unsigned flags) {
  (void)flags;
  if (getenv("LD_PRELOAD")) return 1;
  if (getenv("CUDAGUARD_VISIBLE_DEVICES") || getenv("CUDAGUARD_ROOT")) return 2;
  return getenv("CG_ANSWER") != NULL ? 0 : 3;
}''', "-Wl,-soname,libcuda.so.1")
        answer = self.doctor(LD_LIBRARY_PATH=folder, CG_ANSWER="1",
                             LD_PRELOAD=harness.GUARD + ":libm.so.6",
                             CUDAGUARD_POLICY="VALIDATE", CUDAGUARD_VISIBLE_DEVICES="0",
                             CUDAGUARD_CHILDREN="FORCE_CPU", CUDAGUARD_ROOT="1")
        self.assertEqual(answer.cuinit["code"], 0, answer.text)
        self.assertEqual(answer.machine["shell"],
                         {"guarded": True, "by": "LD_PRELOAD", "policy": "VALIDATE"})
        self.assertIn("this shell         is guarded already, by LD_PRELOAD; its programs' "
                      "policy: VALIDATE",
                      answer.text)

    def test_what_ld_so_is_told(self):
        """Its variables for debugging, and other people's preloads, say nothing of the driver."""
        folder = self.sick()
        hangs = self.compile("hangs.so", "#include <unistd.h>\n__attribute__((constructor)) "
                             "static void start(void) { for (;;) pause(); }", "-shared", "-fPIC")
        audit = self.compile("audit.so", "#include <stdlib.h>\nunsigned la_version(unsigned v) { "
                             "abort(); return v; }", "-shared", "-fPIC")
        self.doctor(LD_LIBRARY_PATH=folder)
        before = set(os.listdir(self.folder))
        for more in ({"LD_TRACE_LOADED_OBJECTS": "1"}, {"LD_PRELOAD": hangs}, {"LD_AUDIT": audit},
                     {"LD_DEBUG": "all"},
                     {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": self.path("told")},
                     {"LD_SHOW_AUXV": "1"}, {"LD_VERBOSE": "1", "LD_WARN": "1"},
                     {"LD_PROFILE": "libcuda.so.1", "LD_PROFILE_OUTPUT": self.folder}):
            with self.subTest(**more):
                answer = self.asked(LD_LIBRARY_PATH=folder, CG_ANSWER="0", **more)
                self.assertEqual((answer["outcome"], answer["code"], answer["reason"]),
                                 ("answer", 0, None))
                self.assertEqual(set(os.listdir(self.folder)) - before, set())

    def asked(self, **env):
        code, out, err, _ = self.run_in([launcher.LAUNCHER, "doctor", "--json"],
                                        bwrap=self.kernel(),
                                        env=launcher.environment(**doctor.WAIT, **env))
        self.assertEqual((code, err), (0, ""), out)
        return json.loads(out)["machine"]["cuinit"]

    def test_descriptors(self):
        """None of its caller's is left open in the probe, whatever its number."""
        folder = self.library("libcuda.so.1", r'''
#include <fcntl.h>
int cuInit(unsigned flags) {
  (void)flags;
  for (int fd = 3; fd < 4096; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) return fd;
  }
  return 0;
}''', "-Wl,-soname,libcuda.so.1")
        for taken, limit in (((5,), 4096), ((1023, 1024, 4095), 4096), ((1024,), 64)):
            script = ("import os, resource, sys\n"
                      "most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
                      "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, most))\n"
                      "for fd in %s: os.dup2(0, fd)\n"
                      "resource.setrlimit(resource.RLIMIT_NOFILE, (%d, most))\n"
                      "os.execv(sys.argv[1], sys.argv[1:])\n" % (taken, limit))
            start = [sys.executable, "-c", script]
            env = launcher.environment(LD_LIBRARY_PATH=folder)
            code, out, _, _ = self.run_in([*start, launcher.LAUNCHER, "doctor", "--json"],
                                          bwrap=self.kernel(), env=env)
            self.assertEqual((code, json.loads(out)["machine"]["cuinit"]["code"]), (0, 0), out)
            # Control: they reach what is started like this.
            out = self.run_in([*start, doctor.PROBE], env=env)[1]
            self.assertIn("cudaguard-probe init %d " % taken[0], out)


if __name__ == "__main__":
    harness.main()
