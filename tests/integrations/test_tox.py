# SPDX-License-Identifier: Apache-2.0
"""A real tox passes LD_PRELOAD on if its settings say so."""

from support import harness, places
from support.places import launcher

PLAIN = "[testenv]\n"
REST = """skip_install = true
allowlist_externals = *
set_env = CG_FAKE_LOG=%s
commands = %s
"""


class Tox(places.Case):
    def tox(self, settings, *launch, options=()):
        """Returns (the program's answer, the fake driver's calls)."""
        self.make("tox.ini", settings + REST % (self.fake_log(), " ".join(places.OPEN)), 0o644)
        result = harness.run(
            [*launch, self.need_fetched("runners") + "/tox", "run", "-q", "-e", "py", *options],
            guard=False, trace=False, cwd=self.directory, env=dict.fromkeys(launcher.PRESETS))
        self.assertEqual(result.rc, 0, result)
        return result.answers, self.logged()

    def test_pass_env_guards_the_tests(self):
        (settings,) = places.blocks("ini", "ci", "tox")
        run = [launcher.LAUNCHER, "run", "--"]
        self.reached(*self.tox(PLAIN))
        self.reached(*self.tox(PLAIN, *run))  # only tox itself is guarded
        self.guarded(*self.tox(settings, *run))
        self.reached(*self.tox(settings, launcher.LAUNCHER, "run", "--policy=OFF", "--"))
        self.assertIn("cudaguard run -- tox -x testenv.pass_env+=LD_PRELOAD,CUDAGUARD_*",
                      places.page("ci"))
        self.guarded(*self.tox(PLAIN, *run,
                               options=["-x", "testenv.pass_env+=LD_PRELOAD,CUDAGUARD_*"]))
