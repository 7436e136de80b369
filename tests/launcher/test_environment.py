# SPDX-License-Identifier: Apache-2.0
"""What `run` puts into the environment, and what it leaves alone. Which option becomes which variable
is in tests/unit/settings.txt."""

import os
import shutil
import subprocess

from support import fixtures, harness, launcher

GUARD = harness.GUARD
ALL_PRESETS = ",".join(launcher.PRESETS)


class Environment(launcher.Case):
    def test_first_process_is_the_program_in_its_namespace(self):
        done = self.start("run", "sh", "-c", "echo $$; exec printenv CUDAGUARD_ROOT")
        number, root = done.stdout.splitlines()
        self.assertEqual(root, number + ":" + os.readlink("/proc/self/ns/pid"))

    def test_preset_hides_the_gpus_from_an_unguarded_program(self):
        """The driver itself shows no GPU, because of the preset CUDA_VISIBLE_DEVICES=."""
        see = ["env", "-u", "LD_PRELOAD", os.path.join(harness.BUILD, "tests", "devices", "programs", "open"), "cu.see"]
        env = launcher.environment(LD_LIBRARY_PATH=os.path.join(harness.FAKES, "lazy"))
        seen = {options: self.start("run", *options, *see, env=env).stdout.split(":")[1:3]
                for options in ((), ("--no-presets",))}
        self.assertEqual(seen, {(): ["3", "-7"], ("--no-presets",): ["0", "8"]})

    def test_run_changes_no_other_variable(self):
        given = {"A": "", "B": "x=y", "LD_LIBRARY_PATH": "/nowhere", "PATH": os.environ["PATH"]}
        unguarded = self.unguarded("env", "-0", env=given).stdout.split("\0")
        done = self.start("run", "env", "-0", env=given).stdout.split("\0")
        changed = ("CUDAGUARD_", "LD_PRELOAD", *launcher.PRESETS, *launcher.ASAN)
        self.assertEqual([entry for entry in done if not entry.startswith(changed)], unguarded)


make_case = fixtures.lent("case", Environment)


def test_ld_preload_loses_the_libraries_of_another_installation(case):
    shutil.copytree(harness.LIB, case.path("old"), symlinks=True)
    before = ("{0}/libcudaguard.so:libm.so.6 {0}/cudaguard/libcuda.so.1  "
              "{0}/cudaguard/libcudaguard-driver.so::libdl.so.2").format(case.path("old"))
    done = case.start("run", "printenv", "LD_PRELOAD", env=launcher.environment(LD_PRELOAD=before))
    assert (done.stdout, done.stderr) == (GUARD + ":libm.so.6:libdl.so.2\n", "")


class Print(launcher.Case):
    def test_print_writes_shell_commands_and_starts_nothing(self):
        env = launcher.environment(CUDAGUARD_VISIBLE_DEVICES="1", LD_PRELOAD="lib'm.so")
        mark, report = self.path("mark"), self.path("r 1")
        done = self.start("run", "--print", "--cpu", "--report", report, "touch", mark, env=env)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stdout, "".join(line + "\n" for line in (
            "export CUDAGUARD_POLICY=FORCE_CPU", "unset CUDAGUARD_VISIBLE_DEVICES",
            "export CUDAGUARD_ROOT=$$", "export CUDAGUARD_REPORT='%s'" % report,
            "export CUDA_VISIBLE_DEVICES=", "export JAX_PLATFORMS=cpu",
            "export MPIR_CVAR_ENABLE_GPU=0",
            "export GST_REGISTRY_1_0=" + launcher.PRESETS["GST_REGISTRY_1_0"],
            "export CUDAGUARD_PRESETS=" + ALL_PRESETS,
            "export ASAN_OPTIONS='verify_asan_link_order=0'",
            "export LD_PRELOAD='%s:lib'\\''m.so'" % GUARD)))
        self.assertFalse(os.path.exists(mark))
        self.start("run", "--cpu", "touch", mark)  # the control
        self.assertTrue(os.path.exists(mark))

    def test_shell_gets_the_same_variables_from_print(self):
        def variables(words):
            done = subprocess.run(words, env=launcher.environment(), capture_output=True, text=True,
                                  timeout=120, check=True)
            return sorted(line for line in done.stdout.splitlines()
                          if line.startswith(("CUDAGUARD_", "LD_PRELOAD", *launcher.PRESETS))
                          and not line.startswith("CUDAGUARD_ROOT="))

        printed = variables(["sh", "-c", 'eval "$("$0" run --print)"; exec env',
                             launcher.LAUNCHER])
        self.assertEqual(printed, variables([launcher.LAUNCHER, "run", "env"]))
        self.assertEqual(len(printed), 7, printed)
