# SPDX-License-Identifier: Apache-2.0
"""Bad input makes one clear message. The program runs, and it is guarded."""

import os
import shutil
import struct

from support import guest, harness, messages

POLICY, LOG, REPORT = (messages.text(name, value="%s")
                       for name in ("bad_policy", "bad_log", "bad_report"))


class BadInput(guest.Case):
    def worlds(self):
        return ("fake", "real") if harness.have_real_driver() else ("fake",)

    def guarded(self, env, *expected, world="fake", steps=("ask", "nvml"), denied=1,
                line=guest.DENIED % "steps"):
        """One run: guarded, and these lines before the denied ones."""
        result = self.steps(*steps, world=world, env=env)
        self.assertEqual((result.rc, result.answers["cuInit"]), (0, "100"), result)
        self.untouched(result)
        lines = guest.lines_of(result.err)
        self.assertEqual(len(lines), result.err.count("\n"), result)
        self.assertEqual(len(lines), len(expected) + denied, result)
        for text in expected:
            self.assertEqual(lines.count(text), 1, (text, lines))
        if denied:
            self.assertIn(line, lines)
        return result

    def off(self, env, *steps):
        result = self.steps(*(steps or ("ask",)), env=env)
        result.assert_reached(self)
        self.assertEqual(result.err, "", result)
        return result

    def test_control_driver_is_reached_without_the_guard(self):
        self.steps("ask", guard=False).assert_reached(self)

    def test_variables_are_read_despite_the_programs_own_environ(self):
        """The variables are read where libc keeps them."""
        argv = [guest.binary("steps_own_environ"), "ask"]
        harness.run(argv, guard=False).assert_reached(self)
        harness.run(argv, env={"CUDAGUARD_POLICY": "OFF"}).assert_reached(self)
        result = harness.run(argv, env={"CUDAGUARD_POLICY": "x"})
        self.untouched(result)
        self.assertIn(POLICY % "x", guest.lines_of(result.err), result)

    def test_unknown_policy_is_reported_and_means_force_cpu(self):
        for world in self.worlds():
            for value in ("foo", "0", "force", "OFF ", " off", "none", "VALIDATED", "CLAMPED",
                          "FORCE_CPU,OFF"):
                with self.subTest(value=value, world=world):
                    self.guarded({"CUDAGUARD_POLICY": value}, POLICY % value, world=world)

    def test_values_are_made_printable(self):
        self.guarded({"CUDAGUARD_POLICY": 'a"b\n\x1b[31mé'}, POLICY % 'a"b??[31m??')

    def test_unknown_log_level_is_reported(self):
        self.guarded({"CUDAGUARD_LOG": "loud"}, LOG % "loud")
        self.guarded({"CUDAGUARD_LOG": "loud", "CUDAGUARD_POLICY": "x"}, LOG % "loud", POLICY % "x")

    def test_log_off_silences_complaints(self):
        self.guarded({"CUDAGUARD_LOG": "off", "CUDAGUARD_POLICY": "x"}, denied=0)

    def test_known_values_of_any_case_are_accepted(self):
        for value in ("", "force-cpu", "Force_Cpu", "FORCE_CPU", "force_CPU"):
            with self.subTest(value):
                self.guarded({"CUDAGUARD_POLICY": value})
        for value in ("off", "OFF", "Off"):
            with self.subTest(value):
                self.off({"CUDAGUARD_POLICY": value})
        self.guarded({"CUDAGUARD_LOG": "", "CUDAGUARD_REPORT": ""})
        self.guarded({"CUDAGUARD_LOG": "All"}, denied=2, line=guest.CALLED % ("cuInit", "steps"))

    def test_over_long_value_is_cut_in_its_message(self):
        for length in (5000, 100000):  # the kernel takes no more than 131,072 bytes in one string
            with self.subTest(length):
                long = "x" * length
                self.guarded({"CUDAGUARD_POLICY": long}, POLICY % (long[:80] + "..."))
                self.guarded({"CUDAGUARD_LOG": long}, LOG % (long[:80] + "..."))
                self.guarded({"CUDAGUARD_REPORT": "/" + long}, REPORT % ("/%s..." % long[:79]))

    def test_unusable_report_path_is_reported(self):
        os.mkdir(self.path("directory"))
        os.symlink(self.path("target"), self.path("link"))
        os.symlink(self.path("nowhere", "x"), self.path("dangling"))
        os.mkfifo(self.path("fifo"))
        for name in ("file", "other"):
            with open(self.path(name), "w", encoding="utf-8") as stream:
                stream.write("")
        os.link(self.path("other"), self.path("hard"))
        for path, why in (("directory", "Is a directory"), ("link", "it is a symbolic link"),
                          ("dangling", "it is a symbolic link"),
                          ("hard", "it is a hard link"), ("fifo", "no process reads this pipe"),
                          ("none/x", "No such file or directory"),
                          ("file/x", "Not a directory")):
            with self.subTest(path):
                self.guarded({"CUDAGUARD_REPORT": self.path(path)},
                             messages.text("report_failed", path=self.path(path), error=why))
        self.assertFalse(os.path.exists(self.path("target")))
        self.assertEqual(os.path.getsize(self.path("other")), 0)
        # The control: the same file, once it has one name.
        os.remove(self.path("hard"))
        self.guarded({"CUDAGUARD_REPORT": self.path("other")})
        self.assertGreater(os.path.getsize(self.path("other")), 0)
        self.guarded({"CUDAGUARD_REPORT": "/proc/cudaguard"},
                     messages.text("report_failed", path="/proc/cudaguard",
                                   error="No such file or directory"))
        self.guarded({"CUDAGUARD_REPORT": "/dev/full"},
                     messages.text("report_failed", path="/dev/full",
                                   error="No space left on device"))

    # --- a null driver that cannot be used
    # ---------------------------------------------------------

    def broken(self, name, make, why):
        """Both worlds, with the null driver `name` replaced by what make(bytes) returns. The guard
        prints the reason `why` once, at the first dlopen of any library."""
        lib = self.path("lib")
        for world in self.worlds():
            shutil.rmtree(lib, True)
            guard = harness.copy_install(lib)
            file = os.path.join(lib, "cudaguard", name)
            with open(file, "rb") as stream:
                data = stream.read()
            target = os.path.realpath(file)
            os.unlink(target)
            with open(target, "wb") as stream:
                stream.write(make(data))
            env = {"LD_PRELOAD": guard}
            message = messages.text("file_broken", file=file, why=messages.text(why),
                                    library="NVML" if "nvidia-ml" in name else "CUDA")
            for first in ("load:libm.so.6", "load:libcg-does-not-exist.so"):
                result = self.steps(first, "load:libm.so.6", guard=False, world=world, env=env)
                self.assertEqual((result.rc, guest.lines_of(result.err)), (0, [message]), result)
            silent = self.steps("load:libm.so.6", "ask", "nvml", guard=False, world=world,
                                env={"CUDAGUARD_LOG": "off", **env})
            self.assertEqual((silent.rc, silent.err), (0, ""), silent)
            self.untouched(silent)
            result = self.steps("load:libm.so.6", "ask", "ask:libcuda.so", "nvml", guard=False,
                                world=world, env=env)
            self.assertEqual(result.rc, 0, result)
            self.untouched(result)
            self.assertEqual(guest.lines_of(result.err)[0], message, result)
            self.assertEqual(guest.lines_of(result.err).count(message), 1, result)
            key = "cuInit" if name.startswith("libcuda") else "nvmlInit_v2"
            self.assertEqual(result.answers[key], "unavailable", result)

    def test_null_driver_that_is_cut_short_is_refused(self):
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            size = os.path.getsize(os.path.join(harness.NULL_DRIVER_DIR, name))
            with open(os.path.join(harness.NULL_DRIVER_DIR, name), "rb") as stream:
                header = stream.read(64)
            sections = struct.unpack_from("<Q", header, 40)[0]
            end = sections - 1024  # before the section headers; within the last loaded bytes
            for length in harness.sample((0, 1, 63, 64, 200, 1024, 4096, size // 4, size // 2,
                                          end * 3 // 4), 5):
                with self.subTest(name=name, length=length):
                    self.broken(name, lambda data, n=length: data[:n], "cut_short")

    def test_null_driver_that_cannot_be_loaded_is_refused(self):
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            self.broken(name, lambda data: data.replace(b"\0libc.so.6\0", b"\0libX.so.6\0"),
                        "not_loadable")

    def test_null_driver_that_is_no_library_is_refused(self):
        self.broken("libcuda.so.1", lambda data: b"#!/bin/sh\n" * 1000, "not_a_library")

    def test_null_driver_for_another_machine_is_refused(self):
        for field in (0xF3, 3):  # RISC-V; a 32-bit one
            self.broken("libcuda.so.1", lambda data, f=field: data[:18] + struct.pack("<H", f) +
                        data[20:], "other_machine")
        self.broken("libcuda.so.1", lambda data: data[:4] + b"\x01" + data[5:],
                    "other_machine")

    @staticmethod
    def patched(data, *fields):
        """data with these fields: (offset, struct format, value)."""
        changed = bytearray(data)
        for offset, form, value in fields:
            struct.pack_into(form, changed, offset, value)
        # One byte more: a file of exactly the length that was built is not looked into.
        return bytes(changed) + b"\0"

    def test_headers_that_overflow_are_refused(self):
        """Offsets and sizes whose sum is small again beyond 2^64: nothing is read out of bounds."""
        top = 1 << 64
        table, count = 32, 56  # e_phoff, e_phnum
        for offset, number in ((top - 56, 2), (top - 56 * 65535, 65535), (top - 1, 1), (top - 1, 0),
                               (top - 112, 4), (1 << 63, 65535)):
            with self.subTest(offset=hex(offset), number=number):
                self.broken("libcuda.so.1", lambda data, o=offset, n=number: self.patched(
                    data, (table, "<Q", o), (count, "<H", n)), "cut_short")
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            for at, size in harness.sample((
                    (top - 4096, 8192), (8192, top - 4096), (top - 1, 1), (top - 1, 2),
                    (0, top - 1), (1 << 63, 1 << 63)), 3):
                with self.subTest(name=name, at=hex(at), size=hex(size)):
                    # Elf64_Phdr: p_offset is at 8, p_filesz at 32; the first loaded segment.
                    self.broken(name, lambda data, a=at, s=size: self.patched(
                        data, (self.first_load(data) + 8, "<Q", a),
                        (self.first_load(data) + 32, "<Q", s)), "cut_short")

    @staticmethod
    def first_load(data):
        table, = struct.unpack_from("<Q", data, 32)
        count, = struct.unpack_from("<H", data, 56)
        return next(at for at in range(table, table + 56 * count, 56)
                    if struct.unpack_from("<I", data, at)[0] == 1)

    def test_null_driver_of_another_version_is_refused(self):
        """Our directory has another program's libcuda.so.1, or a later null driver of ours."""
        with open(guest.EMPTY, "rb") as stream:
            other = stream.read()
        self.broken("libcuda.so.1", lambda data: other, "other_version")
        self.broken("libnvidia-ml.so.1", lambda data: data.replace(
            b"cudaguard_standin_claim_v1", b"cudaguard_standin_claim_v9"), "other_version")

    def test_driver_in_the_guards_directory_is_refused(self):
        """A driver that was copied over the null driver is not used."""
        with open(os.path.join(harness.FAKE_DRIVER, "libcuda.so.1"), "rb") as stream:
            other = stream.read()
        self.broken("libcuda.so.1", lambda data: other, "other_version")
