# SPDX-License-Identifier: Apache-2.0
"""A program that ld.so starts with the driver, because one of its libraries is linked to the driver,
looks up cuInit in a handle. The launcher preloads the null drivers only for the program that it
starts itself, so here other programs start this one."""

import os

from support import harness, launcher

MIDDLE = harness.program("middle.so")
NVML = harness.program("plugin_linked_nvml.so")
RUN = [launcher.LAUNCHER, "run", "--"]
# This shell does not exec its last command.
SHELL = ["sh", "-c", '"$@"; exit $?', "sh"]
STARTERS = {"env": ["env"], "nice": ["nice"], "timeout": ["timeout", "100"],
            "xargs": ["xargs", "-a", os.devnull], "sh": SHELL,
            "make": ["make", "-s", "-f", "{makefile}"]}


def asks(program="linked_middle"):
    return [harness.program(program), "handle", MIDDLE]


def worlds():
    return ["fake"] + ["real"] * harness.have_real_driver()


class Started(launcher.Case):
    """Neither way to guard the tree depends on who starts the program."""

    def words(self, starter, program):
        if starter == "make":
            makefile = self.make("makefile", "all:\n\t@%s\n" % " ".join(program))
            return [word.format(makefile=makefile) for word in STARTERS[starter]]
        return STARTERS[starter] + program

    def check(self, program, env, answers):
        for starter in STARTERS:
            words = self.words(starter, program)
            for world in worlds():
                with self.subTest(starter=starter, world=world):
                    self.need(words[0])
                    control = harness.run(words, world=world, guard=False, env=env)
                    control.assert_reached(self)
                    for name, run in (("LD_PRELOAD", []), ("run", RUN)):
                        result = harness.run(run + words, world=world, guard=not run, env=env)
                        self.assertEqual((name, result.rc, result.answers), (name, 0, answers), result)
                        result.assert_untouched(self, linked=True)

    def test_cuda_is_denied(self):
        self.check(asks(), {}, {"cuInit": "100"})

    def test_nvml_is_denied(self):
        for name in ("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"):
            program = [harness.program("linked_middle"), "handle", NVML, name]
            self.check(program, {"LD_PRELOAD": NVML}, {name: "0"})
