# SPDX-License-Identifier: Apache-2.0
"""`doctor`: the environment's mistakes, each in one sentence; what is right has none."""

import os
import shutil
import unittest

import doctor
import harness
import launcher

BOX = os.path.join(harness.FAKES, "lazy")
ALL = "this machine has 0 to 7"
HIDES = "and hides itself and all that follow"


class Environment(doctor.Case):
    def well(self, **env):
        answer = self.doctor(**env)
        self.assertEqual((answer.code, answer.problems), (0, []), answer.text)
        return answer

    def wrong(self, *meaning, **env):
        answer = self.doctor(**env)
        self.problem(answer, *meaning)
        return answer

    def box(self, **env):
        return dict(env, LD_LIBRARY_PATH=BOX)

    def test_visible_devices(self):
        uuid = "GPU-8a1f03c2-5d1e-4f0b-9c3a-2f6b7d10e001"
        for value in (None, "", "-1", "none", "NoDevFiles", "0", "7,0", "0,1,-1", uuid, uuid[:12]):
            self.well(**self.box(CUDA_VISIBLE_DEVICES=value))
        for value, entry, *meaning in (
                ("0,0", '2 "0" names a GPU that is in the list already', "shows none"),
                ("0,1,0", '3 "0" names a GPU'), (uuid + "," + uuid[:12], '2 "GPU-8a1f03c2" names a'),
                ("0,-1,1", '2 "-1" hides all that follow; leave it out'),
                ("-1,0", '1 "-1" hides all that follow'),
                ("0,8", '2 "8" is no GPU (%s) %s' % (ALL, HIDES)), ("9", '1 "9" is no GPU'),
                ("0, 1", '2 " 1" has a blank: CUDA passes over it', "remove it"),
                ("0 1", '1 "0 1" is read as its number alone', "separated by commas"),
                ("0;1", '1 "0;1" is read as its number alone'),
                ("0,,1", '2 "" is empty ' + HIDES), (" ", '1 " " is empty'),
                ("all", '1 "all" is no index, GPU-... or MIG-... ' + HIDES, "unset"),
                ("cuda:0", '1 "cuda:0" is no index'),
                ("0," + uuid, '2 "%s" is not of the first entry\'s kind' % uuid),
                (uuid + ",1", '2 "1" is not of the first entry\'s kind'),
                (uuid + ", " + uuid, '2 " %s" has a blank %s' % (uuid, HIDES)),
                ("GPU-0", '1 "GPU-0" is the UUID of no GPU here'),
                ("GPU-5b1f", '1 "GPU-5b1f" begins the UUIDs of several GPUs')):
            with self.subTest(value=value):
                self.wrong('CUDA_VISIBLE_DEVICES="%s": entry %s' % (value, entry), *meaning,
                           **self.box(CUDA_VISIBLE_DEVICES=value))
        # Two at once.
        answer = self.doctor(**self.box(CUDA_VISIBLE_DEVICES="0, 1,9"))
        self.assertEqual(len(answer.problems), 2, answer.text)

    def test_visible_devices_hide_all(self):
        answer = self.well(**self.box(CUDA_VISIBLE_DEVICES=""))
        self.assertEqual((answer.cuinit["code"], len(answer.machine["gpus"])), (100, 8))
        self.assertIn('CUDA_VISIBLE_DEVICES="" hides the GPUs of this machine', answer.notes)
        self.assertIn("GPUs there         8\n", answer.text)

    def test_visible_devices_without_a_machine(self):
        """What can be said of the value alone; a machine without GPUs is no reason to complain."""
        for env in ({}, {"LD_LIBRARY_PATH": self.sick(), "CG_ANSWER": "100"}):
            for value in ("0", "9", "GPU-0"):
                self.well(CUDA_VISIBLE_DEVICES=value, **env)
            for value in ("0,0", "0,-1,1", "all", "0, 1"):
                self.wrong('CUDA_VISIBLE_DEVICES="%s"' % value, CUDA_VISIBLE_DEVICES=value, **env)

    def test_visible_devices_in_a_list(self):
        """Read among those that the guard leaves."""
        self.well(**self.box(CUDAGUARD_VISIBLE_DEVICES="2,5", CUDA_VISIBLE_DEVICES="1"))
        self.wrong('entry 1 "5" is no GPU (CUDAGUARD_VISIBLE_DEVICES leaves 0 to 1)',
                   **self.box(CUDAGUARD_VISIBLE_DEVICES="2,5", CUDA_VISIBLE_DEVICES="5"))
        self.wrong("(CUDAGUARD_VISIBLE_DEVICES leaves 0)",
                   **self.box(CUDAGUARD_VISIBLE_DEVICES="2", CUDA_VISIBLE_DEVICES="1"))

    def test_device_order(self):
        for value in (None, "", "PCI_BUS_ID", "FASTEST_FIRST"):
            self.well(CUDA_DEVICE_ORDER=value)
        self.wrong('CUDA_DEVICE_ORDER="PCI_BUS" is not known to CUDA', CUDA_DEVICE_ORDER="PCI_BUS")

    def test_own_variables(self):
        for env in ({"POLICY": "clamp"}, {"VISIBLE_DEVICES": "2,5"}, {"VISIBLE_DEVICES": ""},
                    {"POLICY": "VALIDATE", "CHILDREN": "FORCE_CPU", "ROOT": "1"},
                    {"LOG": "all"}, {"REPORT": "/dev/stderr"}, {"REPORT": self.path("r.%p")}):
            self.well(**self.box(**{"CUDAGUARD_" + key: value for key, value in env.items()}))
        for meaning, env in (
                ('CUDAGUARD_POLICY="gpu" is not accepted (accepted: FORCE_CPU,', {"POLICY": "gpu"}),
                ('CUDAGUARD_LOG="x" is not accepted', {"LOG": "x"}),
                ('CUDAGUARD_ROOT="x" is not accepted', {"ROOT": "x"}),
                ('CUDAGUARD_CHILDREN="x" is not accepted',
                 {"CHILDREN": "x", "POLICY": "CLAMP", "ROOT": "1"}),
                ("CUDAGUARD_CHILDREN needs sh -c 'CUDAGUARD_ROOT=$$ exec APP'; FORCE_CPU applies",
                 {"CHILDREN": "FORCE_CPU", "POLICY": "CLAMP"}),
                ('CUDAGUARD_ROOT="1:x" is not accepted', {"ROOT": "1:x"}),
                ('CUDAGUARD_VISIBLE_DEVICES="1,1": entry 2', {"VISIBLE_DEVICES": "1,1"}),
                ('"2,9": entry 2 "9" does not exist', {"VISIBLE_DEVICES": "2,9"}),
                ("(this machine has 8 GPUs)", {"VISIBLE_DEVICES": "GPU-0"}),
                ('"all": entry 1 "all" is no index', {"VISIBLE_DEVICES": "all"}),
                ('CUDAGUARD_VISIBLE_DEVICES="1" has no effect under FORCE_CPU',
                 {"POLICY": "FORCE_CPU", "VISIBLE_DEVICES": "1"}),
                ('CUDAGUARD_VISIBLE_DEVICES="1" has no effect under CUDAGUARD_POLICY=OFF',
                 {"POLICY": "OFF", "VISIBLE_DEVICES": "1"}),
                ('CUDAGUARD_CHILDREN="FORCE_CPU" has no effect under CUDAGUARD_POLICY=OFF',
                 {"POLICY": "OFF", "CHILDREN": "FORCE_CPU"}),
                ("CUDAGUARD_POLICIY is not a variable of cudaguard", {"POLICIY": "OFF"}),
                ('CUDAGUARD_REPORT="%s": no such folder' % self.path("no", "r"),
                 {"REPORT": self.path("no", "r")})):
            with self.subTest(env=env):
                self.wrong(meaning, **self.box(**{"CUDAGUARD_" + key: value
                                                  for key, value in env.items()}))
        self.assertFalse(os.path.exists(self.path("r.%p")))

    def test_other_software(self):
        """What leads around the guard, where its variables tell."""
        for mode in ("reloc", "RELOC"):
            self.wrong('UCX_MEM_MMAP_HOOK_MODE="%s"' % mode, "past the guard",
                       **self.box(UCX_MEM_MMAP_HOOK_MODE=mode))
        self.well(**self.box(UCX_MEM_MMAP_HOOK_MODE="bistro"))
        said = "tox has started this: it hands LD_PRELOAD"
        self.assertIn(said, self.well(**self.box(TOX_ENV_NAME="py311")).text)
        self.assertNotIn(said, self.well(**self.box()).text)
        self.assertNotIn(said, self.well(
            **self.box(TOX_ENV_NAME="py311", LD_PRELOAD=harness.GUARD)).text)

    def test_nothing_to_let_through(self):
        """GPUs are chosen, or CUDA let through, where there is none. Without a choice it is well."""
        no_gpu = {"LD_LIBRARY_PATH": self.sick(), "CG_ANSWER": "100"}
        for machine, why in (({}, "there is no driver here (no libcuda.so.1)"),
                             (no_gpu, "this machine shows no GPU")):
            for meaning, env in (
                    ('CUDAGUARD_VISIBLE_DEVICES="0,2" chooses GPUs', {"VISIBLE_DEVICES": "0,2"}),
                    ('CUDAGUARD_VISIBLE_DEVICES="0" chooses GPUs',
                     {"VISIBLE_DEVICES": "0", "POLICY": "clamp"}),
                    ('CUDAGUARD_POLICY="VALIDATE" lets CUDA through', {"POLICY": "VALIDATE"}),
                    ('CUDAGUARD_POLICY="clamp" lets CUDA through', {"POLICY": "clamp"})):
                with self.subTest(env=env, why=why):
                    env = {"CUDAGUARD_" + key: value for key, value in env.items()}
                    self.wrong("%s, but %s: programs find no CUDA device" % (meaning, why),
                               **env, **machine)
                    # The control: the same where there are eight.
                    self.well(**self.box(**env))
            for env in ({}, {"POLICY": "FORCE_CPU"}, {"POLICY": "OFF"}, {"VISIBLE_DEVICES": ""}):
                self.well(**{"CUDAGUARD_" + key: value for key, value in env.items()}, **machine)
        # Somebody has hidden them.
        self.well(**self.box(CUDAGUARD_POLICY="VALIDATE", CUDA_VISIBLE_DEVICES=""))

    def test_list_order(self):
        """Indices are in PCI order, whatever CUDA's own order is."""
        first = "GPU-8a1f03c2"  # of the bus; CUDA's own second
        self.wrong('entry 2 "GPU-8a1f03c2" names a GPU again',
                   **self.box(CUDAGUARD_VISIBLE_DEVICES="0," + first))
        self.well(**self.box(CUDAGUARD_VISIBLE_DEVICES="1," + first))


class Preload(doctor.Case):
    def wrong(self, *meaning, **env):
        answer = self.doctor(**env)
        self.problem(answer, *meaning)
        return answer

    def test_well(self):
        for value in (harness.GUARD, harness.GUARD + ":libm.so.6", "libm.so.6 " + harness.GUARD,
                      "%s:%s" % (harness.GUARD, harness.STANDIN_CUDA)):
            answer = self.doctor(LD_PRELOAD=value)
            self.assertEqual((answer.code, answer.problems), (0, []), answer.text)
            self.assertEqual(answer.machine["shell"]["by"], "LD_PRELOAD")
        answer = self.doctor(LD_PRELOAD="libm.so.6")
        self.assertEqual((answer.code, answer.machine["shell"]["guarded"]), (0, False))

    def test_by_its_bare_name(self):
        answer = self.doctor(LD_PRELOAD="libcudaguard.so", LD_LIBRARY_PATH=harness.LIB)
        self.assertEqual((answer.code, answer.machine["shell"]["by"]), (0, "LD_PRELOAD"))
        self.assertEqual(os.path.realpath(answer.machine["guard"]["bare_name"]),
                         os.path.realpath(harness.GUARD))
        # A long path is on a line of its own.
        self.assertIn("LD_PRELOAD=libcudaguard.so finds " + harness.GUARD,
                      " ".join(answer.text.split()))
        answer = self.wrong('LD_PRELOAD names "libcudaguard.so", which ld.so does not find: '
                            "programs run unguarded", LD_PRELOAD="libcudaguard.so")
        self.assertFalse(answer.machine["shell"]["guarded"])

    def test_not_there(self):
        answer = self.wrong('LD_PRELOAD names "/none/libcudaguard.so", which is not there: programs '
                            "run unguarded", LD_PRELOAD="/none/libcudaguard.so:libm.so.6")
        self.assertFalse(answer.machine["shell"]["guarded"])

    def test_relative(self):
        here = os.getcwd()
        os.chdir(os.path.dirname(harness.LIB))
        self.addCleanup(os.chdir, here)
        self.wrong('LD_PRELOAD names "lib/libcudaguard.so", a relative path',
                   "write " + harness.GUARD, LD_PRELOAD="lib/libcudaguard.so")

    def test_with_a_space(self):
        """ld.so takes it for two."""
        answer = self.doctor(LD_PRELOAD="/my tools/libcudaguard.so")
        self.assertIn('LD_PRELOAD names "tools/libcudaguard.so", which is not there',
                      answer.problems[0])

    def test_another_copy(self):
        self.installed("other")
        other = self.path("other", "lib", "libcudaguard.so")
        self.wrong('LD_PRELOAD names "%s", another copy than this command\'s' % other,
                   LD_PRELOAD=other)
        link = self.path("link.so")
        os.symlink(harness.GUARD, self.path("libcudaguard.so"))
        self.assertEqual(self.doctor(LD_PRELOAD=self.path("libcudaguard.so")).code, 0, link)

    def test_sanitizer(self):
        runtime = self.bare("gcc", "-print-file-name=libasan.so").stdout.strip()
        self.assertTrue(os.path.isabs(runtime), runtime)
        runtime = os.path.realpath(runtime)
        options = {"ASAN_OPTIONS": "detect_leaks=0"}
        self.assertEqual(self.doctor(LD_PRELOAD=runtime + ":" + harness.GUARD, **options).code, 0)
        self.wrong('LD_PRELOAD names "%s" behind the guard: a sanitizer\'s runtime must come first' %
                   runtime, LD_PRELOAD=harness.GUARD + ":" + runtime, **options)

    def root(self, *more):
        """A root of its own, which may have an /etc/ld.so.preload."""
        argv = ["bwrap", "--ro-bind", "/usr", "/usr", "--dev", "/dev", "--proc", "/proc", "--tmpfs",
                "/tmp", "--ro-bind", harness.LIB, "/cg/lib", "--ro-bind", launcher.LAUNCHER,
                "/cg/bin/cudaguard", *more]
        for name in ("bin", "lib", "lib64"):
            argv += ["--symlink", "usr/" + name, "/" + name]
        return argv + ["--", "/cg/bin/cudaguard", "doctor"]

    def test_system_wide(self):
        if not os.path.islink("/lib"):
            harness.skip(self, "/lib is no link to /usr/lib here")
        line = self.make("preload", "/cg/lib/libcudaguard.so\n", 0o644)
        driver = ["--ro-bind", BOX, "/box"]
        env = {"LD_LIBRARY_PATH": "/box"}
        done = self.bare("env", "-i", *self.root(*driver), env={})
        self.assertIn("this shell         not guarded", done.stdout, done.stderr)
        command = self.root(*driver, "--ro-bind", line, "/etc/ld.so.preload", "--setenv",
                            "LD_LIBRARY_PATH", env["LD_LIBRARY_PATH"])
        done = self.bare(*command, env={})
        self.assertIn("this shell         is guarded already, by /etc/ld.so.preload; its "
                      "programs' policy: FORCE_CPU", done.stdout, done.stderr)
        # The driver is asked all the same.
        self.assertIn("cuInit             0 CUDA_SUCCESS", done.stdout)
        self.assertIn("GPUs seen          8\n", done.stdout)


class Installation(doctor.Case):
    def test_missing_files(self):
        command = self.installed()
        for name in ("libcuda.so.1", "libcudaguard-nvml.so", "libnvidia-opencl.so.1"):
            path = self.path("install", "lib", "cudaguard", name)
            shutil.move(path, path + ".away")
            answer = self.doctor(command=command)
            self.assertIn(path, answer.machine["guard"]["missing"])
            self.assertIn(path + " is missing: install cudaguard again", answer.problems)
            shutil.move(path + ".away", path)
        self.assertEqual(self.doctor(command=command).machine["guard"]["missing"], [])
        os.unlink(self.path("install", "lib", "libcudaguard.so"))
        self.refused(self.start("doctor", launcher=command), 125, "libcudaguard.so is missing")

    def overwrite(self, name, old, new):
        path = self.path("install", "lib", name)
        with open(path, "rb") as stream:
            content = stream.read()
        self.assertEqual(content.count(old), 1, path)
        with open(path, "wb") as stream:
            stream.write(content.replace(old, new))
        return path

    def test_versions(self):
        """Which guard it would preload; files of two versions are a problem."""
        command = self.installed()
        version = self.start("--version").stdout.split()[1]
        answer = self.doctor(command=command)
        self.assertEqual((answer.code, answer.machine["guard"]["version"]), (0, version),
                         answer.text)
        self.assertIn("version %s\n" % version, answer.text)
        own, other = b"cudaguard %s\0" % version.encode(), b"cudaguard 0.0.9\0"
        self.assertEqual(len(own), len(other))
        changed = "is of cudaguard 0.0.9, %s of " + version + ": install all of one version"
        for name, beside in (("libcudaguard.so", "this command"),
                             ("cudaguard/libcuda.so.1", "libcudaguard.so"),
                             ("cudaguard/libnvidia-ml.so.1", "libcudaguard.so"),
                             ("cudaguard/libcudaguard-driver.so", "libcudaguard.so"),
                             ("cudaguard/libcudaguard-nvml.so", "libcudaguard.so")):
            with self.subTest(name=name):
                path = self.overwrite(name, own, other)
                answer = self.doctor(command=command)
                self.assertIn("%s %s" % (path, changed % beside), answer.problems)
                # A guard of another version than all of the rest: the rest is not well either.
                self.assertEqual(len(answer.problems), 5 if name == "libcudaguard.so" else 1)
                self.assertEqual(answer.machine["guard"]["version"],
                                 "0.0.9" if name == "libcudaguard.so" else version)
                self.overwrite(name, other, own)
        # One that does not say it; another program's notes say nothing.
        path = self.overwrite("libcudaguard.so", own, b"cudaguards\0" + bytes(len(own) - 11))
        answer = self.doctor(command=command)
        self.assertIn(path + " does not say of which cudaguard it is", answer.problems[0])
        self.assertIsNone(answer.machine["guard"]["version"])
        shutil.copy(self.compile("lib", "int x;", "-shared"), path)
        self.assertIsNone(self.doctor(command=command).machine["guard"]["version"])

    def test_bytes_that_are_no_text(self):
        env = launcher.environment()
        env["CUDA_VISIBLE_DEVICES"] = b"\xff\x1b[31m"
        done = self.bare(*harness.sandbox("none", self.kernel()), launcher.LAUNCHER, "doctor",
                         env=env)
        self.assertEqual(done.returncode, 1, done)
        self.assertTrue(done.stdout.isascii() and "\x1b" not in done.stdout)
        done = self.bare(*harness.sandbox("none", self.kernel()), launcher.LAUNCHER, "doctor",
                         "--json", env=env)
        self.assertEqual(done.returncode, 1, done)
        doctor.jsonschema.Draft202012Validator(doctor.schema()).validate(
            doctor.json.loads(done.stdout))

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_a_full_disk(self):
        for words in (["doctor"], ["doctor", "--json"]):
            done = self.bare(*harness.sandbox("none"), "sh", "-c", '"$0" "$@" >/dev/full',
                             launcher.LAUNCHER, *words)
            self.assertEqual((done.returncode, done.stderr), (125, "cudaguard: cannot print\n"))

    def test_closed_descriptors(self):
        """0, 1 and 2 closed: nothing of ours is written into somebody else's file."""
        for closed in ("<&-", "2>&-", "<&- 2>&-"):
            done = self.bare(*harness.sandbox("none", self.kernel()), "sh", "-c",
                             'LD_LIBRARY_PATH=%s exec "$0" doctor %s' % (BOX, closed),
                             launcher.LAUNCHER)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done)
            self.assertIn("GPUs seen          8\n", done.stdout)


if __name__ == "__main__":
    harness.main()
