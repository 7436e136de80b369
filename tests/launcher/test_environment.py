# SPDX-License-Identifier: Apache-2.0
"""What `run` puts into the environment, and what it leaves alone."""

import os
import shutil
import subprocess

from support import harness, launcher

GUARD = harness.GUARD
ALL_PRESETS = ",".join(launcher.PRESETS)


class Environment(launcher.Case):
    def seen(self, *options, **given):
        """The program's environment, and its process id under "pid"."""
        done = self.start("run", *options, "sh", "-c", "echo pid=$$; exec env -0",
                          env=launcher.environment(**given))
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        first, rest = done.stdout.split("\n", 1)
        result = dict(entry.split("=", 1) for entry in rest.split("\0")[:-1])
        result["pid"] = first[4:]
        return result

    def ours(self, *options, **given):
        env = self.seen(*options, **given)
        # The root is this process, of this PID namespace.
        root = env["pid"] + ":" + os.readlink("/proc/self/ns/pid")
        return {key[len("CUDAGUARD_"):]: value.replace(root, "PID")
                for key, value in env.items() if key.startswith("CUDAGUARD_")}

    def test_options(self):
        root = {"ROOT": "PID"}
        cpu = {"POLICY": "FORCE_CPU", "PRESETS": ALL_PRESETS, **root}
        chosen = {"POLICY": "VALIDATE", "VISIBLE_DEVICES": "2,5", "PRESETS": "gpus=2,5", **root}
        for options, wanted in (
                ([], cpu), (["--cpu"], cpu),
                (["--policy", "clamp"], {"POLICY": "clamp", "PRESETS": "", **root}),
                (["--gpus", "2,5"], chosen), (["--gpus=2,5"], chosen),
                (["--gpus", "1", "--policy=CLAMP"],
                 {"POLICY": "CLAMP", "VISIBLE_DEVICES": "1", "PRESETS": "gpus=1", **root}),
                (["--gpus", "2,5", "--children=cpu"], {"CHILDREN": "FORCE_CPU", **chosen}),
                (["--gpus", "2,5", "--children", "cpu"], {"CHILDREN": "FORCE_CPU", **chosen}),
                (["--gpus", "-1"], {**cpu, "POLICY": "VALIDATE", "VISIBLE_DEVICES": "-1",
                                    "PRESETS": ALL_PRESETS + ",gpus=-1"}),
                (["--gpus", ""], {**cpu, "POLICY": "VALIDATE", "VISIBLE_DEVICES": "",
                                  "PRESETS": ALL_PRESETS + ",gpus="}),
                (["--policy", "off"], {"POLICY": "off", **root}),
                (["--log", "all"], {"LOG": "all", **cpu}),
                (["--report", "/dev/stderr"], {"REPORT": "/dev/stderr", **cpu}),
                (["--report", self.path("r.%p")], {"REPORT": self.path("r.%p"), **cpu})):
            with self.subTest(options=options):
                self.assertEqual(self.ours(*options), wanted)

    def test_relative_report(self):
        """The guard would take it from the folder that the process is in when it writes."""
        here = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, here)
        self.assertEqual(self.ours("--report", "r")["REPORT"], self.path("r"))
        self.assertEqual(os.listdir(self.folder), [])

    def test_leftovers(self):
        """Flag, then environment, then default; what contradicts goes."""
        left = {"CUDAGUARD_POLICY": "CLAMP", "CUDAGUARD_VISIBLE_DEVICES": "1",
                "CUDAGUARD_CHILDREN": "FORCE_CPU", "CUDAGUARD_ROOT": "77"}
        kept = {key[len("CUDAGUARD_"):]: value for key, value in left.items()}
        self.assertEqual(self.ours(**left), {**kept, "PRESETS": ""})
        cpu = {"POLICY": "FORCE_CPU", "PRESETS": ALL_PRESETS, "ROOT": "PID"}
        self.assertEqual(self.ours("--cpu", **left), cpu)
        self.assertEqual(self.ours("--policy", "OFF", **left), {"POLICY": "OFF", "ROOT": "PID"})
        self.assertEqual(self.ours("--gpus", "3", **left),
                         dict(kept, VISIBLE_DEVICES="3", ROOT="PID", PRESETS="gpus=3"))
        self.assertEqual(self.ours("--policy", "VALIDATE", **left),
                         dict(kept, POLICY="VALIDATE", ROOT="PID", PRESETS=""))
        for policy in ("FORCE_CPU", "OFF"):
            self.assertEqual(self.ours("--gpus", "3", CUDAGUARD_POLICY=policy),
                             {"POLICY": "VALIDATE", "VISIBLE_DEVICES": "3", "ROOT": "PID",
                              "PRESETS": "gpus=3"})
        self.assertEqual(self.ours("--cpu", CUDAGUARD_POLICY="nonsense"), cpu)
        self.assertEqual(self.ours(CUDAGUARD_POLICY="", CUDAGUARD_ROOT="nonsense"), cpu)
        self.assertEqual(self.ours(CUDAGUARD_VISIBLE_DEVICES="1"),
                         {"VISIBLE_DEVICES": "1", "ROOT": "PID", "PRESETS": ""})

    def test_presets(self):
        presets = launcher.PRESETS
        pick = lambda env: {key: env[key] for key in launcher.PRESETS if key in env}  # noqa: E731
        self.assertEqual(pick(self.seen()), presets)
        self.assertEqual(pick(self.seen("--gpus", "-1")), presets)
        self.assertEqual(pick(self.seen("--no-presets")), {})
        for options in (["--gpus", "0"], ["--policy", "VALIDATE"], ["--policy", "OFF"]):
            self.assertEqual(pick(self.seen(*options)), {})
        for name in launcher.PRESETS:
            for value in ("mine", ""):
                self.assertEqual(pick(self.seen(**{name: value})), {**presets, name: value})

    def test_the_user_s_cache(self):
        """GStreamer's registry lies there, as GStreamer's own does; without one it is not set."""
        for given, folder in (({"XDG_CACHE_HOME": "/c"}, "/c"), ({"HOME": "/h"}, "/h/.cache"),
                              ({"XDG_CACHE_HOME": "c", "HOME": "/h"}, "/h/.cache"),
                              ({"XDG_CACHE_HOME": "", "HOME": "h"}, None), ({"HOME": None}, None)):
            with self.subTest(given=given):
                self.assertEqual(self.seen(**given).get("GST_REGISTRY_1_0"),
                                 folder and folder + launcher.REGISTRY)
                for name in ("GST_REGISTRY_1_0", "GST_REGISTRY"):  # in GStreamer's order
                    seen = self.seen(**{name: "/mine"}, **given)
                    self.assertEqual({key: seen[key] for key in seen if key.startswith("GST_")},
                                     {name: "/mine"})

    def test_what_gets_past_the_guard(self):
        """There the driver itself shows no GPU, by the preset CUDA_VISIBLE_DEVICES=."""
        see = ["env", "-u", "LD_PRELOAD", os.path.join(harness.BUILD, "tests", "devices", "programs", "open"), "cu.see"]
        env = launcher.environment(LD_LIBRARY_PATH=os.path.join(harness.FAKES, "lazy"))
        seen = {options: self.start("run", *options, *see, env=env).stdout.split(":")[1:3]
                for options in ((), ("--no-presets",))}
        self.assertEqual(seen, {(): ["3", "-7"], ("--no-presets",): ["0", "8"]})

    def test_a_sign_of_the_launcher(self):
        """By it the guard's messages know what the user has written: an option or a variable. Set
        by every run but one with OFF, whether or not a preset was."""
        for options in ([], ["--cpu"]):
            self.assertEqual(self.seen(*options)["CUDAGUARD_PRESETS"], ALL_PRESETS)
            self.assertEqual(self.seen("--no-presets", *options)["CUDAGUARD_PRESETS"], "")
        own = dict.fromkeys(launcher.PRESETS, "mine")
        self.assertEqual(self.seen(**own)["CUDAGUARD_PRESETS"], "")
        self.assertEqual(self.seen("--gpus", "1,2")["CUDAGUARD_PRESETS"], "gpus=1,2")
        for options in (["--policy", "CLAMP"], ["--policy", "VALIDATE"]):
            self.assertEqual(self.seen(*options)["CUDAGUARD_PRESETS"], "")
        self.assertNotIn("CUDAGUARD_PRESETS", self.seen("--policy", "OFF"))

    def inner(self, outer, inner, between="", **given):
        """The presets as a program has them in a run in a run."""
        done = self.start("run", *outer, "sh", "-c", between + '\nexec "$0" run "$@" env -0',
                          launcher.LAUNCHER, *inner, env=launcher.environment(**given))
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        env = dict(entry.split("=", 1) for entry in done.stdout.split("\0")[:-1])
        return {key: env[key] for key in (*launcher.PRESETS, "CUDAGUARD_PRESETS") if key in env}

    def test_presets_of_an_outer_run(self):
        """Its empty CUDA_VISIBLE_DEVICES would leave an inner --gpus without one."""
        cpu, gpus, option = ["--cpu"], ["--gpus", "2"], {"CUDAGUARD_PRESETS": "gpus=2"}
        alone = self.inner(cpu, cpu)
        self.assertEqual(alone, dict(launcher.PRESETS, CUDAGUARD_PRESETS=ALL_PRESETS))
        self.assertEqual(self.inner(cpu, gpus), option)
        self.assertEqual(self.inner(gpus, cpu), alone)
        self.assertEqual(self.inner(cpu, ["--policy", "OFF"]), {})
        self.assertEqual(self.inner(cpu, ["--no-presets"] + gpus), option)
        self.assertEqual(self.inner(cpu, ["--no-presets"] + cpu), {"CUDAGUARD_PRESETS": ""})
        self.assertEqual(self.inner(cpu, gpus, "export JAX_PLATFORMS=cuda"),
                         {"JAX_PLATFORMS": "cuda", **option})
        # What the user has set stays, the preset's own value too.
        self.assertEqual(self.inner(cpu, gpus, CUDA_VISIBLE_DEVICES=""),
                         {"CUDA_VISIBLE_DEVICES": "", **option})
        self.assertEqual(self.inner(gpus, gpus, JAX_PLATFORMS="cpu"),
                         {"JAX_PLATFORMS": "cpu", **option})
        self.assertEqual(self.inner(["--no-presets"] + cpu, gpus, MPIR_CVAR_ENABLE_GPU="0"),
                         {"MPIR_CVAR_ENABLE_GPU": "0", **option})
        # Ours, of whatever home; not the user's own.
        for value, left in (("/elsewhere" + launcher.REGISTRY, {}),
                            ("/mine/registry.bin", {"GST_REGISTRY_1_0": "/mine/registry.bin"})):
            self.assertEqual(self.inner(gpus, gpus, CUDAGUARD_PRESETS="GST_REGISTRY_1_0",
                                        GST_REGISTRY_1_0=value), {**left, **option})
        # Other people's names in our variable are nobody's business.
        self.assertEqual(self.inner(gpus, gpus, CUDAGUARD_PRESETS="HOME,,JAX_PLATFORMS,x",
                                    JAX_PLATFORMS="cuda"),
                         {"JAX_PLATFORMS": "cuda", **option})

    def test_nothing_else_is_changed(self):
        given = {"A": "", "B": "x=y", "LD_LIBRARY_PATH": "/nowhere", "PATH": os.environ["PATH"]}
        bare = self.bare("env", "-0", env=given).stdout.split("\0")
        done = self.start("run", "env", "-0", env=given).stdout.split("\0")
        changed = ("CUDAGUARD_", "LD_PRELOAD", *launcher.PRESETS)
        self.assertEqual([entry for entry in done if not entry.startswith(changed)], bare)

    def test_preload(self):
        install = os.path.join(self.folder, "old")
        shutil.copytree(harness.LIB, install, symlinks=True)
        old = os.path.join(install, "libcudaguard.so")
        standin = os.path.join(install, "cudaguard", "libcuda.so.1")
        companion = os.path.join(install, "cudaguard", "libcudaguard-driver.so")
        for before, wanted in (
                (None, GUARD), ("", GUARD), ("libm.so.6", GUARD + ":libm.so.6"),
                ("libm.so.6:" + GUARD, GUARD + ":libm.so.6"),
                ("%s:libm.so.6 %s  %s::libdl.so.2" % (old, standin, companion),
                 GUARD + ":libm.so.6:libdl.so.2"),
                ("libm.so.6:libm.so.6", GUARD + ":libm.so.6:libm.so.6")):
            with self.subTest(before=before):
                done = self.start("run", "printenv", "LD_PRELOAD",
                                  env=launcher.environment(LD_PRELOAD=before))
                self.assertEqual((done.stdout, done.stderr), (wanted + "\n", ""))


class Print(launcher.Case):
    def test_print(self):
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
            "export LD_PRELOAD='%s:lib'\\''m.so'" % GUARD)))
        self.assertFalse(os.path.exists(mark))
        self.start("run", "--cpu", "touch", mark)  # the control
        self.assertTrue(os.path.exists(mark))

    def test_a_shell_takes_it(self):
        """What a shell makes of it is what a program under `run` has."""
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
