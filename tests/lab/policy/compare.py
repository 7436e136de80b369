# SPDX-License-Identifier: Apache-2.0
"""Compares the pods of admit.go on standard input with admitted.json. A pod that is not in it must
not have been changed."""

import json
import sys


def spec(pod):
    for key in ("containers", "initContainers", "ephemeralContainers"):
        for container in pod["spec"].get(key, ()):
            if container["resources"] == {}:
                del container["resources"]
    return pod["spec"]


with open("admitted.json", encoding="utf-8") as stream:
    expected = json.load(stream)
lines = [json.loads(line) for line in sys.stdin]
wrong = [pod if isinstance(pod, str) else pod["metadata"]["name"] for pod in lines
         if isinstance(pod, str) or (
             spec(pod) != expected[pod["metadata"]["name"]]
             if pod["metadata"]["name"] in expected else "cudaguard-image" in json.dumps(pod))]
for pod in wrong:
    print(f"{pod}: not as expected")
print(f"{len(lines) - len(wrong)} pods as expected")
sys.exit(1 if wrong or not lines else 0)
