# SPDX-License-Identifier: Apache-2.0
"""A real Twisted treats a child's standard error as a failure (docs/troubleshooting.md)."""

import pytest

from support import harness, places
from support.places import launcher

pytestmark = pytest.mark.full  # needs a download

ASK = """import sys
from twisted.internet import reactor, utils


def stop(text):
    print(text)
    reactor.stop()


utils.getProcessOutput(sys.argv[1], sys.argv[2:], env=None).addCallbacks(
    lambda output: stop(output.decode()),
    lambda failure: stop("failed=%s" % failure.type.__name__))
reactor.run()
"""


class Twisted(places.Case):
    def setUp(self):
        super().setUp()
        self.need_platforms()

    def parent(self, *launch, **env):
        """Returns what a guarded program's parent has read from it."""
        result = harness.run(
            [*launch, places.PLATFORMS + "/python", self.make("ask.py", ASK, 0o644), *places.OPEN],
            guard=False, trace=False, env={**dict.fromkeys(launcher.PRESETS), **env})
        self.assertEqual(result.rc, 0, result)
        return result.answers, result.fake_calls

    def test_message_is_a_failure_unless_logs_are_off(self):
        run = [launcher.LAUNCHER, "run"]
        self.reached(*self.parent())
        answers, calls = self.parent(*run, "--")
        self.assertEqual((answers, calls), ({"failed": "_UnexpectedErrorOutput"}, []))
        self.guarded(*self.parent(*run, "--log=off", "--"))
        self.guarded(*self.parent(*run, "--", CUDAGUARD_LOG="off"))
        self.guarded(*self.parent(LD_PRELOAD=harness.GUARD, CUDAGUARD_LOG="off"))
