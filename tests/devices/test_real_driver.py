# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own driver, without a GPU, gives the same answers through the proxy and unguarded."""

import re

from support import box, harness
from devices import test_names

GUARDED = {re.sub(r"_v\d$", "", name) for name in test_names.GUARDED}
FIXED = ["cu.version", "cu.count", "cu.get=0", "cu.init=1", "cu.init", "cu.init", "cu.count",
         "cu.context=v2,0", "cu.load=library", "cu.memory", "cu.brandnew", "cu.where=cuNoSuchThing",
         "cu.where=cuInit_v2", "cu.ask=cuNoSuchThing,12000,0", "cu.ask=,12000,0",
         "cu.ask=cuMemAlloc,12000,4", "nv.count", "nv.init", "nv.initold", "nv.list", "nv.shutdown"]


class RealDriver(box.Case):

    def setUp(self):
        super().setUp()
        self.need_real_driver()

    def run_real(self, steps, name="open", guard=True, **env):
        return harness.run([box.program(name)] + steps, world="real", guard=guard, trace=False,
                           env=env, timeout=300)

    def both(self, steps, name="open", **env):
        unguarded = self.run_real(steps, name, guard=False)
        guarded = self.run_real(steps, name, **env)
        self.assertEqual((unguarded.rc, guarded.rc), (0, 0), guarded)
        return unguarded, guarded

    def test_calls_without_a_device_answer_as_unguarded(self):
        steps = FIXED + ["cu.error=%d" % code for code in list(range(0, 1000, 1)) + [-1, 5555]]
        for name in ("open", "cuda", "cuda_now"):
            for policy in ("VALIDATE", "CLAMP"):
                for bind in (None, "1"):
                    with self.subTest(program=name, policy=policy, bind=bind):
                        unguarded, guarded = self.both(steps, name, CUDAGUARD_POLICY=policy,
                                                       LD_BIND_NOW=bind)
                        self.assertEqual(guarded.out, unguarded.out)
                        self.assertEqual(unguarded.answers["cu.version"][:2], "0:", unguarded)
                        self.assertEqual(unguarded.answers["cu.init"], "100", unguarded)

    def test_every_unguarded_name_has_the_same_status_and_place(self):
        """A guarded name has its place in the proxy."""
        names = test_names.bases()
        questions = ["%s,%d,%d" % (name, version, flags) for name in names
                     for version in (11030, 12000, 12020) for flags in (0, 2)]
        for bind in (None, "1"):
            ours = set()
            for start in range(0, len(questions), 1000):
                asked = questions[start:start + 1000]
                unguarded, guarded = self.both(["cu.ask=" + question for question in asked],
                                               CUDAGUARD_POLICY="VALIDATE", LD_BIND_NOW=bind)
                pairs = zip(asked, test_names.answers(unguarded), test_names.answers(guarded))
                for question, without, within in pairs:
                    if within == without:
                        continue
                    self.assertEqual(re.sub(r"libcudaguard-driver\.so\+[0-9a-f]+", "X", within),
                                     re.sub(r"libcuda\.so[.\d]*\+[0-9a-f]+", "X", without),
                                     question)
                    ours.add(question.split(",")[0])
            # The list has the guarded names that this driver has.
            self.assertEqual(ours, GUARDED)

    def test_dlsym_leads_only_guarded_names_to_the_proxy(self):
        names = test_names.all_names()
        unguarded, guarded = self.both(["cu.where=" + name for name in names],
                                       CUDAGUARD_POLICY="VALIDATE")
        differ = set()
        for name, without, within in zip(names, test_names.answers(unguarded),
                                         test_names.answers(guarded)):
            if within != without:
                # The guard defines no name that this driver lacks.
                self.assertTrue(without.startswith("libcuda.so"), name)
                self.assertTrue(within.startswith("libcudaguard-driver.so+"), name)
                differ.add(name)
        self.assertLessEqual(differ, test_names.GUARDED)
        self.assertIn("cuInit", differ)

    def test_allow_list_without_a_gpu_gives_100(self):
        """There is no GPU to choose, so the program gets 100 from the driver or from FORCE_CPU, and
        never a crash."""
        for allow in ("0", "1,0", box.uuid(1), "0,0"):
            for bind in (None, "1"):
                result = self.run_real(["cu.init", "cu.count", "nv.count"], LD_BIND_NOW=bind,
                                       CUDAGUARD_VISIBLE_DEVICES=allow)
                self.assertEqual(result.rc, 0, result)
                self.assertEqual(result.answers["cu.init"], "100", result)
                self.assertEqual(result.answers["cu.count"][:1], "3", result)

    def test_fake_driver_answers_as_the_real_one(self):
        """The tests' fake driver gives the same answers to the calls that need no device."""
        steps = ["cu.count", "cu.get=0", "cu.init=1", "cu.where=cuNoSuchThing",
                 "cu.ask=cuNoSuchThing,12000,0", "cu.ask=cuMemAlloc,12000,4", "nv.count"]
        steps += ["cu.error=%d" % code for code in (0, 1, 2, 3, 100, 101, 201, 500, 999, 5555)]
        for guard in (False, True):
            real = self.run_real(steps, guard=guard, CUDAGUARD_POLICY="VALIDATE")
            fake = box.run(steps, guard=guard, policy="VALIDATE")
            self.assertEqual(fake.out, real.out, fake)
