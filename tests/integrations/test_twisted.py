# SPDX-License-Identifier: Apache-2.0
"""A real Twisted treats a child's standard error as a failure (docs/troubleshooting.md)."""

import pytest

from support import harness, places
from support.places import launcher

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


@pytest.mark.full  # needs a download
@pytest.mark.parametrize(("launch", "answer", "calls"), [
    ([], {"cuInit": "0"}, True), (["--"], {"failed": "_UnexpectedErrorOutput"}, False),
    (["--log=off", "--"], {"cuInit": "100"}, False)])
def test_message_is_a_failure_unless_logs_are_off(case, launch, answer, calls):
    python = case.need_fetched("platforms") + "/python"
    run = [launcher.LAUNCHER, "run", *launch] if launch else []
    path = case.make("ask.py", ASK, 0o644)
    result = harness.run([*run, python, path, *places.OPEN], guard=False, trace=False,
                         env=dict.fromkeys(launcher.PRESETS))
    assert result.rc == 0, result
    assert answer.items() <= result.answers.items(), result
    assert bool(result.fake_calls) == calls, result
