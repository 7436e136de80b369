# SPDX-License-Identifier: Apache-2.0
"""The words of the line: who asked in which program, what lifts it there, and who says it."""

import os
import shutil

import guest
import harness

SCRIPT = """import ctypes, sys
for name, call in (("libnvidia-ml.so.1", "nvmlInit_v2"), ("libcuda.so.1", "cuInit")):
    print(call, getattr(ctypes.CDLL(name), call)(0), sep="=")
"""
FORKS = ("fork", "touch", "end", "fork", "nvml", "touch", "end")


class Lines(guest.Case):

    def script(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as stream:
            stream.write(text)
        return self.path(name)

    def said(self, result):
        """The guard's lines, with the process that each is of."""
        return [match.groups() for match in map(guest.LINE.match, result.err.splitlines()) if match]

    def test_control(self):
        result = self.steps("nvml", "touch", "fork", "touch", "end", guard=False)
        result.assert_reached(self)
        calls = ["nvmlInit_v2", "nvmlInitWithFlags", "cuInit"]  # the first calls the second
        self.assertEqual(result.init_calls()[:3], calls, result)
        result = harness.run([guest.PYTHON, self.script("ppo.py", SCRIPT)], guard=False)
        self.assertEqual(result.init_calls(), calls, result)

    def test_cuda_after_nvml(self):
        """A process's line is not spent on NVML; there are two at most."""
        cuda, nvml = guest.DENIED % "steps", guest.NO_GPU % "steps"
        for steps, lines in ((["nvml", "touch", "nvml", "touch"], [nvml, cuda]),
                             (["touch", "nvml", "touch"], [cuda]), (["nvml", "nvml"], [nvml]),
                             (["nvml", "load:libnvidia-opencl.so.1", "touch"], [nvml, cuda])):
            with self.subTest(steps=steps):
                result = self.steps(*steps)
                result.assert_untouched(self)
                self.assertEqual(guest.lines_of(result.err), lines, result)

    def test_ctypes_in_a_script(self):
        """The script's line, ctypes by its name; as a module; from the command line."""
        script = self.script("ppo.py", SCRIPT)
        for argv, file in (([script, "--cuda"], "ppo.py"), (["-u", "-B", script], "ppo.py"),
                           (["-m", "ppo"], "ppo.py"), (["-c", SCRIPT], "<string>")):
            with self.subTest(argv=argv):
                result = harness.run([guest.PYTHON, *argv], cwd=self.folder,
                                     env={"PYTHONDONTWRITEBYTECODE": "1"})
                result.assert_untouched(self)
                by = file + ":3 through ctypes/cffi"
                self.assertEqual(guest.lines_of(result.err), [guest.NO_GPU % by, guest.DENIED % by],
                                 result)

    def test_other_interpreters(self):
        """Ruby calls by libffi as well: it is not called ctypes."""
        self.need("ruby")
        text = ('require "fiddle"\nf = Fiddle.dlopen("libcuda.so.1")["cuInit"]\n'
                "puts Fiddle::Function.new(f, [4], 4).call(0)\n")
        argv = [shutil.which("ruby"), self.script("a.rb", text)]
        harness.run(argv, guard=False).assert_reached(self)
        result = harness.run(argv)
        result.assert_untouched(self)
        self.assertEqual(len(guest.lines_of(result.err)), 1, result)
        self.assertRegex(result.err, r"asked by libffi\.so\.[\d.]+ in ruby a\.rb\); ")

    def test_the_opencl_loader(self):
        """Behind it are Python's frames."""
        loader = next((path for path in ("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1",
                                         "/usr/lib/aarch64-linux-gnu/libOpenCL.so.1")
                       if os.path.exists(path)), None)
        if loader is None:
            harness.skip(self, "not installed: the OpenCL loader (ocl-icd-libopencl1)")
        text = ("import ctypes\nn = ctypes.c_uint(0)\n"
                "print(ctypes.CDLL('libOpenCL.so.1').clGetPlatformIDs(0, None, ctypes.byref(n)))\n")
        icd = os.path.join(harness.FAKE_DRIVER, "libnvidia-opencl.so.1")
        argv, env = [guest.PYTHON, self.script("cl.py", text)], {"OCL_ICD_VENDORS": icd}
        harness.run(argv, guard=False, env=env).assert_reached(self)
        result = harness.run(argv, env=env)
        result.assert_untouched(self)
        self.assertRegex(result.err, r"asked by cl\.py:3 through libOpenCL\.so[\d.]*\); ")

    def test_the_advice_works(self):
        """In front of the program; inside `cudaguard run`, where the presets stay, by run."""
        outer = [os.path.join(harness.BUILD, "bin", "cudaguard"), "run", "--"]
        script = self.script("see.sh", 'echo "CUDA=${CUDA_VISIBLE_DEVICES-unset}"\nexec "$0" touch\n')
        inner = ["sh", "-c", open(script, encoding="utf-8").read(), guest.STEPS]
        for argv, advice, lifted in (
                ([guest.STEPS, "touch"], "CUDAGUARD_POLICY=OFF in front", None),
                (outer + inner, "cudaguard run --policy OFF", outer[:2] + ["--policy", "OFF", "--"])):
            guarded = harness.run(argv, guard=lifted is None, trace=False)
            self.assertIn("; %s lifts it\n" % advice, guarded.err, guarded)
            self.assertIn("cuInit=100", guarded.out, guarded)
            if lifted is None:
                free = harness.run(argv, trace=False, env={"CUDAGUARD_POLICY": "OFF"})
            else:
                free = harness.run(outer + lifted + inner, guard=False, trace=False)
                self.assertIn("CUDA=unset", free.out, free)
            self.assertIn("cuInit=0", free.out, free)
            self.assertEqual(free.err, "", free)
        # What the other advice would do there: the preset still hides the GPUs.
        result = harness.run(outer + ["env", "CUDAGUARD_POLICY=OFF"] + inner, guard=False, trace=False)
        self.assertIn("CUDA=\n", result.out, result)

    def test_forked_children(self):
        """Silent where the parent has said the same; their records are written all the same."""
        report = self.path("report")
        result = self.steps("touch", *FORKS, "touch", env={"CUDAGUARD_REPORT": report})
        self.assertEqual(guest.lines_of(result.err), [guest.DENIED % "steps"], result)
        records = harness.records(report)
        self.assertEqual(len({record["pid"] for record in records}), 3, records)
        # A parent that has said nothing, or another thing.
        result = self.steps(*FORKS, "touch")
        said = self.said(result)
        self.assertEqual(len({pid for pid, _ in said}), 3, result)
        self.assertEqual([line for _, line in said].count(guest.DENIED % "steps"), 3, result)
        result = self.steps("nvml", *FORKS)
        self.assertEqual(guest.lines_of(result.err),
                         [guest.NO_GPU % "steps"] + [guest.DENIED % "steps"] * 2, result)
        # What a parent would have said, if its log were not off, is not said.
        result = self.steps("touch", "setenv:CUDAGUARD_LOG=deny", "fork", "touch", "end",
                            env={"CUDAGUARD_LOG": "off"})
        self.assertEqual(guest.lines_of(result.err), [guest.DENIED % "steps"], result)

    def test_forked_childrens_complaints(self):
        """The parent's are not repeated; a value of the child's own is."""
        bad = 'CUDAGUARD_LOG="%s" is not accepted (accepted: off, error, deny, all); deny applies'
        result = self.steps("touch", "fork", "touch", "end", "setenv:CUDAGUARD_LOG=quiet", "fork",
                            "touch", "end", env={"CUDAGUARD_LOG": "loud"})
        self.assertEqual(guest.lines_of(result.err),
                         [bad % "loud", guest.DENIED % "steps", bad % "quiet"], result)

    def test_the_cause_is_inherited(self):
        """A forked child is told why, too: OFF would not be the remedy."""
        for env in ({"CUDAGUARD_VISIBLE_DEVICES": ""}, {"CUDAGUARD_VISIBLE_DEVICES": "0,0x"}):
            result = self.steps("load:libm.so.6", "fork", "fork", "touch", "end", "end", env=env)
            line = guest.lines_of(result.err)[-1]
            self.assertRegex(line, r"no CUDA here \(CUDAGUARD_VISIBLE_DEVICES .*; asked by steps\)$")


if __name__ == "__main__":
    harness.main()
