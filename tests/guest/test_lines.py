# SPDX-License-Identifier: Apache-2.0
"""The words of the message: the caller and its program, and what allows CUDA there."""

import os
import re
import shutil

from support import guest, harness, messages

SCRIPT = """import ctypes, sys
for name, call in (("libnvidia-ml.so.1", "nvmlInit_v2"), ("libcuda.so.1", "cuInit")):
    print(call, getattr(ctypes.CDLL(name), call)(0), sep="=")
"""
FORKS = ("fork", "ask", "end", "fork", "nvml", "ask", "end")
# A package; its function, called by its own module, by a pool, by a spawned child.
ASKS = """import ctypes
def ask():
    return ctypes.CDLL("libcuda.so.1").cuInit(0)
if __name__ == "__main__":
    ask()
"""
POOL = """import ctypes, sys
from concurrent.futures import ThreadPoolExecutor
from pkg.asks import ask
with ThreadPoolExecutor(1) as pool:
    pool.submit(*((ask,) if sys.argv[1:] else (ctypes.CDLL("libcuda.so.1").cuInit, 0))).result()
"""
SPAWNS = """import multiprocessing, pkg.asks, sys
def own():
    pkg.asks.ask()
if __name__ == "__main__":
    here = multiprocessing.get_context(sys.argv[1])
    child = here.Process(target=own if sys.argv[2:] else pkg.asks.ask)
    child.start()
    child.join()
"""
# As IPython runs a cell.
CELL = """import sys
cell = "import ctypes\\n\\nctypes.CDLL('libcuda.so.1').cuInit(0)\\n"
exec(compile(cell, sys.argv[1], "exec"), {})
"""


class Programs(guest.Case):
    def script(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as stream:
            stream.write(text)
        return self.path(name)


class Lines(Programs):
    def test_without_a_line_of_the_users_a_package_is_named(self):
        """Never the standard library; where there is nothing else, the command."""
        os.makedirs(self.path("site-packages", "pkg"))
        self.script("site-packages/pkg/__init__.py", "")
        self.script("site-packages/pkg/asks.py", ASKS)
        pool, spawns = self.script("pool.py", POOL), self.script("spawns.py", SPAWNS)
        env = {"PYTHONPATH": self.path("site-packages"), "PYTHONDONTWRITEBYTECODE": "1"}
        for words, by in ((["-m", "pkg.asks"], "pkg/asks.py:5 through ctypes/cffi"),
                          ([pool, "package"], "pkg/asks.py:3 through ctypes/cffi"),
                          ([pool], r"ctypes/cffi \(libffi\S+\) in python3 pool\.py"),
                          ([spawns, "spawn"], "pkg/asks.py:3 through ctypes/cffi"),
                          ([spawns, "forkserver"], "pkg/asks.py:3 through ctypes/cffi"),
                          ([spawns, "spawn", "own"], "spawns.py:3 through ctypes/cffi")):
            with self.subTest(words=words):
                harness.run([guest.PYTHON, *words], guard=False, env=env).assert_reached(self)
                result = harness.run([guest.PYTHON, *words], env=env)
                result.assert_untouched(self)
                self.assertEqual(len(guest.lines_of(result.err)), 1, result)
                found, = messages.find(result.err, "no_cuda")
                self.assertRegex(found["asked_by"], r"\A%s\Z" % by)

    def test_message_names_the_notebook_cell(self):
        script = self.script("kernel.py", CELL)
        for file, cell, remedy in (
                ("/tmp/ipykernel_7/2815143473.py", "notebook cell, line 3",
                 messages.text("remedy_kernel", remedy=guest.OFF, key="env")),
                ("<ipython-input-12-0a1b2c>", "notebook cell 12, line 3", guest.OFF)):
            with self.subTest(file=file):
                argv = [guest.PYTHON, script, file]
                harness.run(argv, guard=False).assert_reached(self)
                result = harness.run(argv)
                result.assert_untouched(self)
                self.assertEqual(guest.lines_of(result.err), [messages.text(
                    "no_cuda", cause="FORCE_CPU", asked_by=cell + " through ctypes/cffi",
                    remedy=remedy)], result)

    def asked_by(self, result, caller):
        self.assertTrue(messages.find(result.err, *messages.DENIED, asked_by=re.compile(caller)),
                        result)

    def messages_by_process(self, result):
        """The guard's lines, with the process that each is of."""
        return [match.groups() for match in map(guest.LINE.match, result.err.splitlines()) if match]

    def test_control_driver_is_reached_without_the_guard(self):
        result = self.steps("nvml", "ask", "fork", "ask", "end", guard=False)
        result.assert_reached(self)
        # NVML's entry points call each other.
        calls = ["nvmlInit_v2", "nvmlInitWithFlags", "cuInit"]
        self.assertEqual(result.init_calls()[:3], calls, result)
        result = harness.run([guest.PYTHON, self.script("ppo.py", SCRIPT)], guard=False)
        self.assertEqual(result.init_calls(), calls, result)

    def test_nvml_opencl_and_cuda_each_have_a_message(self):
        """NVML, OpenCL and CUDA each have a message; the first two none after CUDA's."""
        cuda, nvml, opencl = (line % "steps" for line in
                              (guest.DENIED, guest.NO_GPU, guest.NO_OPENCL))
        for steps, lines in ((["nvml", "ask", "nvml", "ask"], [nvml, cuda]),
                             (["ask", "nvml", "ask"], [cuda]), (["nvml", "nvml"], [nvml]),
                             (["nvml", "load:libnvidia-opencl.so.1", "ask"],
                              [nvml, opencl, cuda]),
                             (["load:libnvidia-opencl.so.1", "load:libnvidia-opencl.so.1", "nvml",
                               "ask"], [opencl, nvml, cuda]),
                             (["ask", "load:libnvidia-opencl.so.1"], [cuda])):
            with self.subTest(steps=steps):
                result = self.steps(*steps)
                result.assert_untouched(self)
                self.assertEqual(guest.lines_of(result.err), lines, result)

    def test_message_names_the_scripts_line_and_ctypes(self):
        """The script's line, ctypes by its name; as a module; from the command line."""
        script = self.script("ppo.py", SCRIPT)
        for argv, file in (([script, "--cuda"], "ppo.py"), (["-u", "-B", script], "ppo.py"),
                           (["-m", "ppo"], "ppo.py"), (["-c", SCRIPT], "<string>")):
            with self.subTest(argv=argv):
                result = harness.run([guest.PYTHON, *argv], cwd=self.directory,
                                     env={"PYTHONDONTWRITEBYTECODE": "1"})
                result.assert_untouched(self)
                by = file + ":3 through ctypes/cffi"
                self.assertEqual(guest.lines_of(result.err), [guest.NO_GPU % by, guest.DENIED % by],
                                 result)

    def test_libffi_in_ruby_is_not_called_ctypes(self):
        """Ruby calls by libffi, too."""
        self.need("ruby")
        text = ('require "fiddle"\nf = Fiddle.dlopen("libcuda.so.1")["cuInit"]\n'
                "puts Fiddle::Function.new(f, [4], 4).call(0)\n")
        argv = [shutil.which("ruby"), self.script("a.rb", text)]
        harness.run(argv, guard=False).assert_reached(self)
        result = harness.run(argv)
        result.assert_untouched(self)
        self.assertEqual(len(guest.lines_of(result.err)), 1, result)
        self.asked_by(result, r"libffi\.so\.[\d.]+ in ruby a\.rb")

    def test_php_names_the_script(self):
        self.need("php")
        text = '<?php echo FFI::cdef("int cuInit(unsigned);", "libcuda.so.1")->cuInit(0);'
        argv = ["php", "-d", "ffi.enable=1", self.script("a.php", text)]
        harness.run(argv, guard=False).assert_reached(self)
        result = harness.run(argv)
        result.assert_untouched(self)
        self.asked_by(result, r"libffi\.so\.[\d.]+ in php[\d.]* a\.php")

    def test_generated_code_names_the_program(self):
        """As a just-in-time compiler makes it."""
        program = guest.binary("jit")
        harness.run([program], guard=False).assert_reached(self)
        result = harness.run([program])
        result.assert_untouched(self)
        self.assertEqual(guest.lines_of(result.err), [guest.DENIED % "generated code in jit"], result)

    def test_message_names_the_line_that_calls_the_opencl_loader(self):
        """The callers of the loader are Python's frames."""
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
        self.asked_by(result, r"cl\.py:3 through libOpenCL\.so[\d.]*")

    def test_advice_of_the_message_allows_cuda(self):
        """In front of the program; inside `cudaguard run`, where the presets stay, by run."""
        outer = [os.path.join(harness.BUILD, "bin", "cudaguard"), "run", "--"]
        script = self.script("see.sh", 'echo "CUDA=${CUDA_VISIBLE_DEVICES-unset}"\nexec "$0" ask\n')
        inner = ["sh", "-c", open(script, encoding="utf-8").read(), guest.STEPS]
        for argv, advice, lifted in (
                ([guest.STEPS, "ask"], "CUDAGUARD_POLICY=OFF", None),
                (outer + inner, "cudaguard run --policy OFF", outer[:2] + ["--policy", "OFF", "--"])):
            guarded = harness.run(argv, guard=lifted is None, trace=False)
            self.assertTrue(messages.find(guarded.err, "no_cuda", remedy=advice), guarded)
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

    def test_forked_child_does_not_repeat_its_parents_message(self):
        """The guard writes the child's record all the same."""
        report = self.path("report")
        result = self.steps("ask", *FORKS, "ask", env={"CUDAGUARD_REPORT": report})
        self.assertEqual(guest.lines_of(result.err), [guest.DENIED % "steps"], result)
        records = harness.records(report)
        self.assertEqual(len({record["pid"] for record in records}), 3, records)
        # The children print the message if the parent printed none, or another one.
        result = self.steps(*FORKS, "ask")
        printed = self.messages_by_process(result)
        self.assertEqual(len({pid for pid, _ in printed}), 3, result)
        self.assertEqual([line for _, line in printed].count(guest.DENIED % "steps"), 3, result)
        result = self.steps("nvml", *FORKS)
        self.assertEqual(guest.lines_of(result.err),
                         [guest.NO_GPU % "steps"] + [guest.DENIED % "steps"] * 2, result)

    def test_forked_child_does_not_repeat_complaints(self):
        """The parent's are not repeated, and the child's own value is not read."""
        result = self.steps("ask", "fork", "ask", "end", "setenv:CUDAGUARD_LOG=quiet", "fork",
                            "ask", "end", env={"CUDAGUARD_LOG": "loud"})
        self.assertEqual(guest.lines_of(result.err),
                         [messages.text("bad_log", value="loud"), guest.DENIED % "steps"], result)

    def test_message_of_a_forked_child_has_the_inherited_cause(self):
        """A forked child's message has the cause, too, because OFF would not be the remedy."""
        for env in ({"CUDAGUARD_VISIBLE_DEVICES": ""}, {"CUDAGUARD_VISIBLE_DEVICES": "0,0x"}):
            result = self.steps("load:libm.so.6", "fork", "fork", "ask", "end", "end", env=env)
            self.assertTrue(messages.find(
                result.err.splitlines()[-1], "no_cuda", asked_by="steps", remedy=None,
                cause=re.compile("CUDAGUARD_VISIBLE_DEVICES .*")), result)


class Musl(Programs):
    """musl preloads the guard, and cannot load NVIDIA's libraries, which are linked to glibc."""

    def test_musl_program_runs_as_without_the_guard(self):
        self.need("musl-gcc")
        program = guest.binary("opens_musl")
        library = guest.binary("empty_musl.so")
        words = [program, library, "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-opencl.so.1",
                 library]
        unguarded = harness.run(words, world="none", guard=False)
        self.assertEqual(unguarded.out.split(), ["1=set", "2=null", "3=null", "4=null", "5=set"],
                         unguarded)
        report = self.path("report")
        for env in ({}, {"CUDAGUARD_POLICY": "OFF"}, {"CUDAGUARD_POLICY": "VALIDATE"},
                    {"CUDAGUARD_VISIBLE_DEVICES": "0"},
                    {"CUDAGUARD_HELLO": "1", "CUDAGUARD_REPORT": report}):
            with self.subTest(env=env):
                result = harness.run(words, world="none", env=env)
                self.assertEqual((result.rc, result.out), (0, unguarded.out), result)
                found = messages.find(result.err, "list_in_vain",
                                      reason=messages.text("driver_missing"))
                self.assertEqual(len(found), int("CUDAGUARD_VISIBLE_DEVICES" in env), result)
                self.assertEqual(len(guest.lines_of(result.err)), len(found), result)
