# SPDX-License-Identifier: Apache-2.0
"""Runs one program many times, two at a time, inside the sandbox that started this.

    many.py '{"argv": [...], "env": {...}, "times": 100, "log": true}'

Prints JSON: how often each [exit code, stdout, stderr, real cuInits] occurred. Process ids in
stderr are "PID". With "log": false the fakes write no log, and the last item is null.
"""

import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile


def main():
    spec = json.loads(sys.argv[1])
    environment = dict(os.environ, **spec["env"])
    environment.pop("CG_FAKE_LOG", None)

    with tempfile.TemporaryDirectory(prefix="cg-") as directory:

        def once(number):
            env = dict(environment)
            log = os.path.join(directory, "%d.log" % number)
            if spec["log"]:
                env["CG_FAKE_LOG"] = log
            done = subprocess.run(spec["argv"], env=env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                                  check=False)
            inits = None
            if spec["log"]:
                inits = 0
                if os.path.exists(log):
                    with open(log, encoding="utf-8") as stream:
                        inits = stream.read().split("\n").count("cuInit")
                    os.remove(log)
            out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
            return done.returncode, out, re.sub(r"cudaguard\[\d+\]", "cudaguard[PID]", err), inits

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            outcomes = collections.Counter(pool.map(once, range(spec["times"])))
    json.dump([[*outcome, number] for outcome, number in outcomes.items()], sys.stdout)


main()
