# SPDX-License-Identifier: Apache-2.0
"""With CUDAGUARD_CHILDREN=FORCE_CPU, the root keeps the GPUs and its children get none."""

import os
import shlex

from support import box, harness, messages

SEE = ["cu.see", "nv.see", "rt12.see"]
CPU = {"CUDAGUARD_CHILDREN": "FORCE_CPU"}
# Workers of every kind: forked, spawned, forked and replaced, and a worker's worker.
WORKERS = (["fork=f"] + SEE + ["end", "spawn=s"] + SEE + ["end"] +
           ["fork=x", "exec", "label", "x"] + SEE + ["end"] +
           ["spawn=ss", "spawn=deep"] + SEE + ["end", "end"] +
           ["fork=ff", "fork=deeper"] + SEE + ["end", "end"])
# The process sets CUDAGUARD_ROOT to its own id and executes a program, as a launcher does.
ROOT = ["setpid=CUDAGUARD_ROOT", "exec"]
LABELS = ("f", "s", "x", "deep", "deeper")


class Children(box.Case):

    def check(self, result, root, workers):
        for label in LABELS:
            for key, wanted in workers.items():
                self.assertEqual(box.seen(result.answers["%s.%s.see" % (label, key)]), wanted,
                                 "%s of %s\n%s" % (key, label, result))
        self.sees(result, **root)

    def test_control_without_the_variable_every_worker_has_the_gpus(self):
        """Every worker initialises a driver of its own."""
        result = box.run(WORKERS + SEE, allow="1,2")
        self.silent(result)
        self.check(result, dict.fromkeys(("cu", "nv", "rt12"), [1, 2]),
                   dict.fromkeys(("cu", "nv", "rt12"), [1, 2]))
        self.assertEqual(result.fake_calls.count("cuInit:initialised"), 6, result)

    NOTHING = {"cu": "!100", "rt12": "!100", "nv": "!9"}

    def test_root_keeps_the_gpus_and_its_children_have_none(self):
        for policy, allow, gpus in (("VALIDATE", "1,2", [1, 2]), ("CLAMP", "2", [2]),
                                    (None, "1", [1])):
            with self.subTest(policy=policy):
                result = box.run(ROOT + WORKERS + SEE, policy=policy,
                                 allow=allow, **CPU)
                self.assertEqual(result.rc, 0, result)
                self.check(result, dict.fromkeys(("cu", "nv", "rt12"), gpus), self.NOTHING)
                self.assertEqual(result.fake_calls.count("cuInit:initialised"), 1, result)

    def test_message_names_the_process_that_has_the_gpu(self):
        """The refused child may also be the child of a fork server."""
        for steps in (["spawn=s", "cu.init", "end"], ["fork=f", "cu.init", "end"],
                      ["spawn=s", "lib.open=libm.so.6", "fork=f", "cu.init", "end", "end"]):
            with self.subTest(steps=steps):
                result = box.run(ROOT + ["pid"] + steps + ["cu.init"], allow="1,2", **CPU)
                self.assertEqual(result.answers["cu.init"], "0", result)
                self.message(result, "no_cuda", cause="CUDAGUARD_CHILDREN=FORCE_CPU",
                             root=result.answers["pid"], asked_by="open",
                             remedy="CUDAGUARD_CHILDREN=")

    def test_children_get_no_gpu_without_an_allow_list(self):
        result = box.run(ROOT + WORKERS + SEE, policy="VALIDATE", **CPU)
        self.check(result, {"cu": box.FASTEST, "nv": box.ALL}, self.NOTHING)

    def test_root_may_initialise_before_its_workers(self):
        """There is no error 3 and no message about forks."""
        result = box.run(ROOT + SEE + WORKERS, allow="1,2", **CPU)
        self.check(result, dict.fromkeys(("cu", "nv", "rt12"), [1, 2]),
                   {"cu": "!100", "nv": "!9"})
        self.assertEqual(messages.find(result.err, "fork"), [], result)

    def test_root_keeps_the_gpus_in_threads_and_after_exec(self):
        """The process executes another program, and it starts threads."""
        result = box.run(ROOT + ["exec", "label", "e", "thread=t"] + SEE +
                         ["end"] + SEE, allow="1,2", **CPU)
        self.assertEqual(box.seen(result.answers["e.cu.see"]), [1, 2], result)
        self.assertEqual(box.seen(result.answers["t.cu.see"]), [1, 2], result)
        self.silent(result)

    def test_children_of_linked_programs_get_no_gpu(self):
        for name, steps in (("cuda", ["cu.see"]), ("nvml", ["nv.see"]), ("runtime13", ["rt.see"]),
                            ("mixed", ["rt.see", "nv.see", "cu.see"])):
            with self.subTest(program=name):
                blocks = ["fork=f"] + steps + ["end", "spawn=s"] + steps + ["end"] + steps
                result = box.run(ROOT + blocks, name, allow="1,2",
                                 **CPU)
                for step in steps:
                    self.assertEqual(box.seen(result.answers[step]), [1, 2], result)
                    for label in ("f.", "s."):
                        self.assertIn(box.seen(result.answers[label + step]), ("!100", "!9"), result)

    def test_only_the_root_of_24_workers_initialises_the_driver(self):
        """Only one process has contexts."""
        worker = ["rt12.sync", "cu.context=v4,0", "end"]
        steps = ["rt12.sync"]
        for number in range(12):
            steps += ["fork=f%d" % number] + worker + ["spawn=s%d" % number] + worker
        unguarded = box.run(steps, allow="1,2")
        self.assertEqual(unguarded.fake_calls.count("cuInit:initialised"), 13, unguarded)
        result = box.run(ROOT + steps, allow="1,2", **CPU)
        self.assertEqual(result.fake_calls.count("cuInit:initialised"), 1, result)
        self.assertEqual(result.fake_calls.count("cuDevicePrimaryCtxRetain"), 1, result)
        self.assertEqual(result.out.count("rt12.sync=100"), 24, result)

    RECIPE = "sh -c 'CUDAGUARD_ROOT=$$ exec APP'"

    def test_missing_root_gives_no_process_a_gpu_and_prints_the_remedy(self):
        for policy, allow in (("VALIDATE", "1,2"), ("CLAMP", None), (None, "1")):
            with self.subTest(policy=policy):
                result = box.run(WORKERS + SEE, policy=policy, allow=allow, **CPU)
                self.check(result, self.NOTHING, self.NOTHING)
                self.assertEqual(result.fake_calls, [], result)
                lines = [line for line in box.lines(result) if self.RECIPE in line]
                self.assertEqual(len({line.split(":")[0] for line in lines}), len(lines), result)
                self.assertTrue(messages.find(lines[0], "root_missing", remedy=self.RECIPE), result)
                self.assertLessEqual(len(lines[0]), 120)

    def test_changed_title_makes_no_root(self):
        """Like setproctitle, the root changes its title and so wipes what /proc shows of its
        environment. Its spawned workers do not become roots."""
        result = box.run(["title"] + WORKERS + SEE, allow="1,2", **CPU)
        self.check(result, self.NOTHING, self.NOTHING)
        result = box.run(ROOT + ["title"] + WORKERS + SEE, allow="1,2", **CPU)
        self.check(result, dict.fromkeys(("cu", "nv", "rt12"), [1, 2]), self.NOTHING)

    def test_programs_of_a_script_are_root_only_if_the_script_says_so(self):
        """The variable is set for a whole script. CUDAGUARD_ROOT=$$ makes one program of the script
        the root."""
        see = shlex.join([box.program("open"), "cu.see"])
        env = box.environment(allow="1,2", **CPU)
        result = harness.run(["sh", "-c", see + "; exit $?"], world="none", env=env, trace=False)
        self.sees(result, cu="!100")
        result = harness.run(["sh", "-c", "CUDAGUARD_ROOT=$$ exec " + see], world="none", env=env,
                             trace=False)
        self.sees(result, cu=[1, 2])

    def in_a_namespace(self, root, start=()):
        """Returns the GPUs that a child sees if it has the root's process id in its own PID
        namespace. Both are process 1 of a namespace, as in a container."""
        see = lambda label: shlex.join([box.program("open"), "label", label, "cu.see"])  # noqa: E731
        nest = "unshare --pid --fork "
        inner = "%s %s%s; exec %s" % (root, nest, see("child"), see("root"))
        words = ["unshare", "--map-root-user", "--pid", "--fork", *start, "sh", "-c", inner]
        result = harness.run(words, world="none", trace=False, env=box.environment(
            allow=None if start else "1,2", **({} if start else CPU)))
        self.assertEqual(result.rc, 0, result)
        self.sees(result, root_cu=[1, 2])
        return box.seen(result.answers["child.cu.see"])

    def test_same_pid_in_another_namespace_is_not_the_root(self):
        exact = "export CUDAGUARD_ROOT=$$:$(readlink /proc/self/ns/pid);"
        self.assertEqual(self.in_a_namespace(exact), "!100")
        launcher = os.path.join(os.path.dirname(harness.LIB), "bin", "cudaguard")
        self.assertEqual(self.in_a_namespace("", [
            launcher, "run", "--gpus", "1,2", "--children=cpu", "--"]), "!100")
        # The process id alone cannot distinguish them, as docs/devices.md says.
        self.assertEqual(self.in_a_namespace("export CUDAGUARD_ROOT=$$;"), [1, 2])

    def test_root_outside_the_tree_gives_no_process_a_gpu(self):
        for root in ("1", "4194304", "%d" % os.getpid()):
            result = box.run(WORKERS + SEE, allow="1,2", CUDAGUARD_ROOT=root, **CPU)
            self.check(result, self.NOTHING, self.NOTHING)

    def test_bad_root_is_reported_and_gives_no_process_a_gpu(self):
        for root in ("abc", "-1", "0", "1x", "1:", "1:x", " 1", "99999999999999999999", "0x10", "1,2"):
            with self.subTest(root=root):
                result = box.run(WORKERS + SEE, allow="1,2", CUDAGUARD_ROOT=root, **CPU)
                self.check(result, self.NOTHING, self.NOTHING)
                self.assertTrue(messages.find(result.err, "bad_value", variable="CUDAGUARD_ROOT",
                                              value=root), result)

    def test_bad_value_is_reported_and_gives_children_no_gpu(self):
        for value in ("maybe", "OFF", "VALIDATE", "0", "FORCE_CPU "):
            with self.subTest(value=value):
                result = box.run(ROOT + WORKERS + SEE, allow="1,2",
                                 CUDAGUARD_CHILDREN=value)
                self.check(result, dict.fromkeys(("cu", "nv", "rt12"), [1, 2]), self.NOTHING)
                self.assertTrue(messages.find(result.err, "bad_value", variable="CUDAGUARD_CHILDREN",
                                              value=value), result)
        for value in ("force-cpu", "Force_Cpu"):
            result = box.run(ROOT + WORKERS + SEE, allow="1,2",
                             CUDAGUARD_CHILDREN=value)
            self.check(result, dict.fromkeys(("cu", "nv", "rt12"), [1, 2]), self.NOTHING)
            self.assertEqual(messages.find(result.err, "bad_value"), [], result)

    def test_variable_does_not_change_off_and_force_cpu(self):
        result = box.run(ROOT + WORKERS + SEE, policy="OFF", **CPU)
        self.check(result, {"cu": box.FASTEST}, {"cu": box.FASTEST, "nv": box.ALL})
        result = box.run(ROOT + WORKERS + SEE, policy="FORCE_CPU", **CPU)
        self.check(result, self.NOTHING, self.NOTHING)
        self.assertEqual(result.fake_calls, [], result)
